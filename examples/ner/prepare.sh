#!/usr/bin/env bash
# Named entities in social media, WNUT-17 (six types, mostly unseen names in the test set): fetch, binarise. Seconds on one core.
#
#   bash examples/ner/prepare.sh
#
#   THRESHOLD=2    words that the training text has less often are unknown, unless WORD_VECTORS has them
#   LOWER_CASE=1   words are lower-cased, as tables of vectors often are; their characters stay as written
#   RAW_DIR=...    has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/ner/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name_tagger_data
keep_settings "$data" "${prepare_tagger_settings[@]}" "trial=$trial${*:+ flags=$*}"

files=(wnut17train.conll emerging.dev.conll emerging.test.annotated)
step "$data" download "fetch the files" fetch "${files[@]}"
step "$data" unpack "copy and count the lines" unpack_tagged conll 6000 1000 66124 16742 24681
step "$data" text "binarise" prepare_text "$data" --format conll:1,2 --tags bio "${prepare_tagger_flags[@]}" \
  --train "$data/text/train.conll" --valid "$data/text/valid.conll" --test "$data/text/test.conll" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
