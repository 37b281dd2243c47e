#!/usr/bin/env bash
# MTL-16: reviews of 16 kinds of products and films, two classes each: fetch, split, binarise. Seconds per domain on one core.
#
#   bash examples/mtl16/prepare.sh
#
#   DOMAIN="apparel MR"   some of the 16; all by default
#   RAW_DIR=...           has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
#   TEST=official         the test file of the source; TEST=held-out: the last 400 training lines instead. By default official,
#                         but held-out where RAW_DIR is given and has no test file of the domain
#   CLEAN=1               training reviews that are in the test set word for word are left out (see README.md)
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<domain>/data/bin.
set -euo pipefail
# shellcheck source=examples/mtl16/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

clean=${CLEAN:-0}
valid=$([[ "$trial" == 1 ]] && echo 20 || echo 200)

choose_test() { # prints official or held-out
  if [[ -n "${TEST:-}" ]]; then
    printf '%s' "$TEST"
  elif [[ -n "${RAW_DIR:-}" ]] && ! is_raw "$domain.task.test"; then
    printf 'held-out'
  else
    printf 'official'
  fi
}

split() { # split TEST: the domain's text as UTF-8, training and test set
  local flags=(--train "$data/raw/train" --output "$data/text")
  mkdir -p "$data/raw"
  read_raw "$domain.task.train" | limit_lines 200 >"$data/raw/train"
  if [[ "$1" == official ]]; then
    read_raw "$domain.task.test" | limit_lines 40 >"$data/raw/test"
    expect_lines "$data/raw/test" 400
    flags+=(--test "$data/raw/test")
  else
    flags+=(--hold-out "$([[ "$trial" == 1 ]] && echo 40 || echo 400)")
  fi
  if [[ "$clean" != 0 ]]; then flags+=(--drop-copies); fi
  python "$here/split_domain.py" "${flags[@]}" | tee >(cat >&3)
}

name_vectors
for domain in "${domains[@]}"; do
  choose_data
  test=$(choose_test)
  keep_settings "$data" "domain=$domain" "test=$test" "clean=$clean" "valid=$valid of train, seed 1" "word_vectors=$vectors_name" "trial=$trial${*:+ flags=$*}"
  files=("$domain.task.train")
  if [[ "$test" == official ]]; then files+=("$domain.task.test"); fi
  step "$data" download "fetch $domain" fetch "${files[@]}"
  step "$data" split "split $domain (test set: $test)" split "$test"
  step "$data" text "binarise $domain" prepare_text "$data" --train "$data/text/train.txt" --test "$data/text/test.txt" \
    --valid-from-train "$valid" --seed 1 --empty skip "$@"
done
printf '%s: ready: %s\n' "$recipe" "$work_dir/<domain>/data$vectors_suffix/bin"
