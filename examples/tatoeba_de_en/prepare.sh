#!/usr/bin/env bash
# Tatoeba German-English, 169,813 short pairs (manythings.org, 2018): download, split, tokenise, BPE, binarise.
#
#   bash examples/tatoeba_de_en/prepare.sh
#
#   RAW_DIR=...   has deu.txt (or deu.txt.gz) already: nothing is downloaded
#   MERGES=8000   joint BPE merges
# No sentence, German or English, is in two of the sets, also not with other case or punctuation. Case is kept.
# Two minutes on two busy cores (measured), 75 MB of disk. See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest.
set -euo pipefail
# shellcheck source=examples/tatoeba_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-$([[ "$trial" == 1 ]] && echo 300 || echo 8000)}
keep_settings "$data" "merges=$merges" "trial=$trial" "flags=$*"

download() {
  if is_raw deu.txt; then
    fetch deu.txt
  else
    fetch deu-eng.zip
    corpus extract "$raw_dir/deu-eng.zip" "$raw_dir" deu.txt
    fetch deu.txt
  fi
}

split() {
  mkdir -p "$data/raw"
  # A trial takes every 300th pair: the file is sorted by length.
  read_raw deu.txt | awk -v every="$([[ "$trial" == 1 ]] && echo 300 || echo 1)" 'NR % every == 0' >"$data/raw/pairs.tsv"
  expect_lines "$data/raw/pairs.tsv" 169813
  corpus split-tatoeba "$data/raw/pairs.tsv" "$data/raw" --share "$([[ "$trial" == 1 ]] && echo 0.05 || echo 0.015)"
  expect_lines "$data/raw/train.en" 164019
  expect_lines "$data/raw/valid.en" 1970
  expect_lines "$data/raw/test.en" 2129
}

clean() {
  local part
  corpus clean --inputs "$data/tokenized/train.de" "$data/tokenized/train.en" --max 100 --ratio 3 \
    --outputs "$data/text/train.de" "$data/text/train.en"
  expect_about "$data/text/train.en" 164016
  for part in valid test; do cp "$data/tokenized/$part.de" "$data/tokenized/$part.en" "$data/text/"; done
}

step "$data" download "fetch the pairs" download
step "$data" split "split by English sentence" split
step "$data" tokenize "tokenise" tokenize_raw "$data" de en train valid test --
step "$data" clean "drop pairs of very different lengths" clean
step "$data" segment "learn and apply $merges subwords ($subwords)" segment_text "$data" "$merges" de en train valid test
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" de en joined "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
