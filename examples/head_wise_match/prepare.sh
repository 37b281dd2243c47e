#!/usr/bin/env bash
# Pairs of texts for head-wise match: fetch, bring into one form, cut into word pieces (ENCODER=bert) or words, binarise.
#
#   DATASET=snli BERT_DIR=.../bert-base-uncased bash examples/head_wise_match/prepare.sh
#   DATASET=sick ENCODER=transformer bash examples/head_wise_match/prepare.sh
#
#   DATASET=snli           or mnli, qqp, squad_binary, mrpc, sick, qnli, wikiqa; qqp-small and qnli-small to try (see README.md)
#   ENCODER="bert muse"    which texts are made: word pieces for bert, words in lower case for transformer, multi_scale, muse,
#                          sub-words for translation
#   BERT_DIR=...           folder of a BERT, with vocab.txt; for ENCODER=bert
#   TRANSLATION_DATA=...   where prepare.sh of a translation recipe left bpe.codes and bin/dict.en.txt; for ENCODER=translation
#   LOWER_CASE=0           that translation model reads capitals
#   RAW_DIR=...            has the files of downloads.tsv for this data set, plain or as .gz: nothing is downloaded
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Arguments go to `muse-plugin prepare-text`.
# Result: WORK_DIR/<data set>/data-pieces/bin, data-translation/bin or data-words/bin.
set -euo pipefail
# shellcheck source=examples/head_wise_match/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need bert BERT_DIR "the folder of a BERT, with vocab.txt"
need translation TRANSLATION_DATA "the folder with bpe.codes and bin/dict.en.txt of the translation model"

# Of each split: its name, the file, its form for pairs.py, and how many pairs it must give (labelled ones).
valid_from_train=
archive=
case "$dataset" in
  snli)
    archive=snli_1.0.zip
    splits=("train snli_1.0_train.txt nli 549367" "valid snli_1.0_dev.txt nli 9842" "test snli_1.0_test.txt nli 9824")
    ;;
  mnli)
    archive=multinli_1.0.zip
    splits=("train multinli_1.0_train.txt nli 392702" "test multinli_1.0_dev_matched.txt nli 9815" "test1 multinli_1.0_dev_mismatched.txt nli 9832")
    valid_from_train=5000
    ;;
  qqp)
    archive=QQP-clean.zip
    splits=("train train.tsv qqp 363846" "test dev.tsv qqp 40430")
    valid_from_train=5000
    ;;
  qqp-small)
    splits=("train dev.txt qqp-numbered 10000" "test test.txt qqp-numbered 10000")
    valid_from_train=1000
    ;;
  squad_binary)
    splits=("train train-v2.0.json squad-train -" "valid train-v2.0.json squad-valid -" "test dev-v2.0.json squad 11873")
    ;;
  mrpc)
    splits=("train msr_paraphrase_train.txt mrpc 4076" "test msr_paraphrase_test.txt mrpc 1725")
    valid_from_train=408
    ;;
  sick)
    splits=("train SICK_train.txt sick 4500" "valid SICK_trial.txt sick 500" "test SICK_test_annotated.txt sick 4927")
    ;;
  qnli)
    archive=QNLIv2.zip
    splits=("train train.tsv qnli 104743" "test dev.tsv qnli 5463")
    valid_from_train=5000
    ;;
  qnli-small)
    splits=("train dev.tsv qnli 4463" "test dev.tsv qnli 1000")
    valid_from_train=463
    ;;
  wikiqa)
    splits=("train train.txt wikiqa 20360" "valid dev.txt wikiqa 2733" "test test.txt wikiqa 6165")
    ;;
esac
if [[ "$trial" == 1 && -n "$valid_from_train" ]]; then valid_from_train=40; fi

extract() {
  local names=() split name
  for split in "${splits[@]}"; do
    read -r _ name _ <<<"$split"
    names+=("$name")
  done
  corpus extract "$raw_dir/$archive" "$text_dir/original" "${names[@]}"
}

pairs() { # text/SPLIT.tsv: label, first text, second text; test.groups: the first text, where answers are ranked
  local split name file form count total=0 options
  mkdir -p "$text_dir/text"
  if [[ -n "$archive" ]]; then extract; fi
  for split in "${splits[@]}"; do
    read -r name file form count <<<"$split"
    options=()
    if [[ "$dataset" == qnli-small && "$name" == train ]]; then options+=(--limit 4463); fi
    if [[ "$dataset" == qnli-small && "$name" == test ]]; then options+=(--skip 4463); fi
    make_pairs "$text_dir" "$file" "$form" "$name" "$count" "${options[@]}"
    total=$((total + $(wc -l <"$text_dir/text/$name.tsv")))
  done
  if [[ "$dataset" == squad_binary && "$trial" != 1 ]] && ((total != 130319 + 11873)); then
    fail "SQuAD 2.0 must have 130319 and 11873 questions, but $total were found; delete $text_dir and run again."
  fi
  cut -f 2 "$text_dir/text/test.tsv" >"$text_dir/text/test.groups"
}

binarise() { # binarise FLAGS...: for $model, into $data
  local flags=(--format "tsv:text=2,pair=3,label=1" --train "$text_dir/text/train.tsv" --test "$text_dir/text/test.tsv")
  if [[ "$dataset" == mnli ]]; then flags+=("$text_dir/text/test1.tsv"); fi
  if [[ -n "$valid_from_train" ]]; then
    flags+=(--valid-from-train "$valid_from_train")
  else
    flags+=(--valid "$text_dir/text/valid.tsv")
  fi
  if [[ "$dataset" == qqp ]]; then flags+=(--empty skip); fi # a few questions have no text
  case "$model" in
    bert) flags+=(--tokenizer wordpiece --bert-dir "$bert_dir") ;;
    translation)
      flags+=(--tokenizer moses --bpe-codes "$translation_data/bpe.codes" --dictionary "$translation_data/bin/dict.en.txt")
      if [[ "$lower_case" == 1 ]]; then flags+=(--lower-case); fi
      ;;
    *) flags+=(--tokenizer moses --lower-case) ;;
  esac
  prepare_text "$data" "${flags[@]}" "$@"
}

keep_settings "$text_dir" "dataset=$dataset" "trial=$trial"
step "$text_dir" download "fetch the files" fetch_dataset
step "$text_dir" pairs "one form, labelled pairs only" pairs
for model in "${models[@]}"; do
  choose_data
  case "$model" in
    bert)
      bert_dir=${BERT_DIR:?}
      kept=("text=word pieces" "vocabulary=$(name_files "$bert_dir" "$bert_dir/vocab.txt")")
      ;;
    translation)
      translation_data=${TRANSLATION_DATA:?}
      lower_case=${LOWER_CASE:-1}
      kept=("text=sub-words" "vocabulary=$(name_files "$translation_data" "$translation_data/bpe.codes" "$translation_data/bin/dict.en.txt")" "lower_case=$lower_case")
      ;;
    *)
      name_vectors
      kept=("text=words" "word_vectors=$vectors_name")
      ;;
  esac
  keep_settings "$data" "dataset=$dataset" "${kept[@]}" "trial=$trial${*:+ flags=$*}"
  step "$data" text "binarise for $model" binarise "$@"
  printf '%s: ready: %s\n' "$recipe" "$data/bin"
done
