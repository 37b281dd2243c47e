#!/usr/bin/env bash
# Pairs of sentences in three classes (entailment, neutral, contradiction): fetch, tokenise, binarise.
#
#   bash examples/snli/prepare.sh
#
#   DATASET=sick         4,500 / 500 / 4,927 pairs: seconds
#   DATASET=snli         the paper's data, 549,367 / 9,842 / 9,824 pairs out of snli_1.0.zip (90 MB); not run here
#   DATASET=snli-small   1,666 pairs of SNLI's training set, with its whole dev and test sets; no punctuation
#   RAW_DIR=...          has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
# Pairs without a majority label ("-") are left out and counted. All text is lower-case.
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<data set>/data/bin.
set -euo pipefail
# shellcheck source=examples/snli/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

keep_settings "$data" "dataset=$dataset" "word_vectors=${vectors##*/}" "trial=$trial${*:+ flags=$*}"
case "$dataset" in
  sick) files=(SICK_train.txt SICK_trial.txt SICK_test_annotated.txt) counts=(4500 500 4927) ;;
  snli) files=(snli_1.0.zip) counts=(549367 9842 9824) ;;
  snli-small) files=(train.tsv dev.txt test.txt) counts=(1666 9842 9824) ;;
esac
splits=(train valid test)

read_pairs() { # read_pairs N: the file of split N, in the form of the source
  local names=(train dev test)
  if [[ "$dataset" == snli ]]; then
    cat "$data/original/snli_1.0_${names[$1]}.txt"
  else
    read_raw "${files[$1]}"
  fi
}

pairs() { # text/SPLIT.tsv: label, premise, hypothesis
  local i code
  mkdir -p "$data/text"
  if [[ "$dataset" == snli ]]; then
    corpus extract "$raw_dir/snli_1.0.zip" "$data/original" snli_1.0_{train,dev,test}.txt
  fi
  for i in 0 1 2; do
    code=0
    read_pairs "$i" | limit_lines 200 | python "$here/pairs.py" "$dataset-${splits[i]}" >"$data/text/${splits[i]}.tsv" 2>"$data/text/report" || code=$?
    tee >(cat >&3) <"$data/text/report"
    if ((code != 0)); then return "$code"; fi
    expect_lines "$data/text/${splits[i]}.tsv" "${counts[i]}"
  done
}

step "$data" download "fetch the files" fetch "${files[@]}"
step "$data" pairs "one form, labelled pairs only" pairs
step "$data" text "binarise" prepare_text "$data" --format tsv:text=2,pair=3,label=1 \
  --train "$data/text/train.tsv" --valid "$data/text/valid.tsv" --test "$data/text/test.tsv" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
