#!/usr/bin/env bash
# Stanford Sentiment Treebank, 8,544 film reviews of a sentence: fetch, split, phrases, binarise. Under a minute on one core.
#
#   bash examples/sst/prepare.sh
#
#   BINARY=1       two classes without the neutral sentences, instead of five
#   TREES=1        every phrase of the training trees is a training example, too
#   RAW_DIR=...    has the files of downloads.tsv already, plain or as .gz (the trees as trees/train.txt): nothing is downloaded
# The source has no test split. So dev is the test set, and every tenth training sentence the validation set; a file
# stsa.fine.test (or stsa.binary.test) in RAW_DIR is used as the test set, dev then validates, as published.
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<kind>/data/bin.
set -euo pipefail
# shellcheck source=examples/sst/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# What the source's train.txt must open with: the 8,544 training trees.
trees_sha256=e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7
test=dev
if is_raw "stsa.$kind.test"; then test=official; fi
name_vectors
keep_settings "$data" "kind=$kind" "trees=$trees" "test=$test" "word_vectors=$vectors_name" "trial=$trial${*:+ flags=$*}"

download() {
  fetch "stsa.$kind.train" "stsa.$kind.dev"
  if [[ "$trees" != 0 ]]; then raw_dir=$raw_dir/trees fetch train.txt; fi
}

split() { # the sentences; the last line of a file of the source may have no end
  mkdir -p "$data/text"
  read_raw "stsa.$kind.train" | awk 1 | limit_lines 200 >"$data/text/all.txt"
  read_raw "stsa.$kind.dev" | awk 1 | limit_lines 40 >"$data/text/dev.txt"
  expect_lines "$data/text/all.txt" "$([[ "$kind" == fine ]] && echo 8544 || echo 6920)"
  expect_lines "$data/text/dev.txt" "$([[ "$kind" == fine ]] && echo 1101 || echo 872)"
  if [[ "$test" == official ]]; then
    read_raw "stsa.$kind.test" | awk 1 | limit_lines 40 >"$data/text/test.txt"
    expect_lines "$data/text/test.txt" "$([[ "$kind" == fine ]] && echo 2210 || echo 1821)"
    cp "$data/text/dev.txt" "$data/text/valid.txt"
    cp "$data/text/all.txt" "$data/text/sentences.txt"
  else
    cp "$data/text/dev.txt" "$data/text/test.txt"
    awk 'NR % 10 == 0' "$data/text/all.txt" >"$data/text/valid.txt"
    awk 'NR % 10 != 0' "$data/text/all.txt" >"$data/text/sentences.txt"
  fi
}

add_phrases() { # text/train.txt: the sentences, with TREES=1 and the phrases of their trees
  local flags=(--trees "$data/text/trees.txt" --sentences "$data/text/sentences.txt" --without "$data/text/valid.txt" "$data/text/test.txt")
  if [[ "$trees" == 0 ]]; then
    cp "$data/text/sentences.txt" "$data/text/train.txt"
    return
  fi
  (raw_dir=$raw_dir/trees read_raw train.txt) | sed -n 1,8544p | limit_lines 100 >"$data/text/trees.txt"
  if [[ "$trial" != 1 ]]; then python "$here/phrases.py" --check "$trees_sha256" --trees "$data/text/trees.txt"; fi
  if [[ "$kind" == binary ]]; then flags+=(--binary); fi
  python "$here/phrases.py" "${flags[@]}" --output "$data/text/train.txt" | tee >(cat >&3)
}

step "$data" download "fetch the files" download
step "$data" split "copy, split, count the lines (test set: $test)" split
step "$data" phrases "training examples" add_phrases
step "$data" text "binarise" prepare_text "$data" --format label-space-text --train "$data/text/train.txt" \
  --valid "$data/text/valid.txt" --test "$data/text/test.txt" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
