#!/usr/bin/env bash
# Pairs of sentences in three classes (entailment, neutral, contradiction; SciTail has two): fetch, tokenise, binarise.
#
#   bash examples/snli/prepare.sh
#
#   DATASET=sick           4,500 / 500 / 4,927 pairs: seconds
#   DATASET=snli           549,367 / 9,842 / 9,824 pairs out of snli_1.0.zip (90 MB); not run here
#   DATASET=snli-small     1,666 pairs of SNLI's training set, with its whole dev and test sets; no punctuation
#   DATASET=mnli           382,702 / 10,000 pairs of MultiNLI's training set and both dev sets as test sets (matched 9,815,
#                          mismatched 9,832), out of multinli_1.0.zip (227 MB); not run here
#   DATASET=scitail        23,596 / 1,304 / 2,126 pairs out of SciTailV1.1.zip; not run here
#   DATASET=scitail-small  1,104 / 200 pairs of SciTail's dev set, with its whole test set
#   RAW_DIR=...            has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
# Pairs without a majority label ("-") are left out and counted. All text is lower-case.
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<data set>/data/bin.
set -euo pipefail
# shellcheck source=examples/snli/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name_vectors
keep_settings "$data" "dataset=$dataset" "word_vectors=$vectors_name" "trial=$trial${*:+ flags=$*}"
archive=
splits=(train valid test)
held_out=0 # the last training pairs, for validation
case "$dataset" in
  sick) names=(SICK_train.txt SICK_trial.txt SICK_test_annotated.txt) counts=(4500 500 4927) ;;
  snli) archive=snli_1.0.zip names=(snli_1.0_{train,dev,test}.txt) counts=(549367 9842 9824) ;;
  snli-small) names=(train.tsv dev.txt test.txt) counts=(1666 9842 9824) ;;
  mnli)
    archive=multinli_1.0.zip names=(multinli_1.0_{train,dev_matched,dev_mismatched}.txt) counts=(392702 9815 9832)
    splits=(train test test1) held_out=10000
    ;;
  scitail) archive=SciTailV1.1.zip names=(scitail_1.0_{train,dev,test}.tsv) counts=(23596 1304 2126) ;;
  scitail-small) names=(dev.txt test.txt) counts=(1304 2126) splits=(train test) held_out=200 ;;
esac
if [[ "$trial" == 1 ]] && ((held_out > 0)); then held_out=20; fi

fetch_files() { # fetch_files NAME...: scitail-small has a list of its own
  if [[ "$dataset" == scitail-small ]]; then
    here=$here/scitail-small fetch "$@"
  else
    fetch "$@"
  fi
}

hold_out() { # hold_out N: makes the last N training pairs the validation pairs
  local text=$data/text have
  have=$(wc -l <"$text/train.tsv")
  if ((have <= $1)); then fail "$text/train.tsv has $((have)) pairs, too few to hold out $1."; fi
  mv "$text/train.tsv" "$text/all.tsv"
  tail -n "$1" "$text/all.tsv" >"$text/valid.tsv"
  sed -n "1,$((have - $1))p" "$text/all.tsv" >"$text/train.tsv"
}

pairs() { # text/SPLIT.tsv: label, premise, hypothesis
  local i form=$dataset
  mkdir -p "$data/text"
  if [[ -n "$archive" ]]; then corpus extract "$raw_dir/$archive" "$data/original" "${names[@]}"; fi
  for i in "${!splits[@]}"; do
    if [[ "$dataset" == snli-small ]]; then form=snli-small$([[ "${splits[i]}" != train ]] || echo -train); fi
    make_pairs "$data" "${names[i]}" "$form" "${splits[i]}" "${counts[i]}"
  done
  if ((held_out > 0)); then hold_out "$held_out"; fi
}

if [[ -n "$archive" ]]; then files=("$archive"); else files=("${names[@]}"); fi
step "$data" download "fetch the files" fetch_files "${files[@]}"
step "$data" pairs "one form, labelled pairs only" pairs
tests=()
for split in "${splits[@]}"; do
  if [[ "$split" == test* ]]; then tests+=("$data/text/$split.tsv"); fi
done
step "$data" text "binarise" prepare_text "$data" --format tsv:text=2,pair=3,label=1 \
  --train "$data/text/train.tsv" --valid "$data/text/valid.tsv" --test "${tests[@]}" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
