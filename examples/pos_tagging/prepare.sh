#!/usr/bin/env bash
# Part-of-speech tagging, Universal Dependencies English EWT: fetch, binarise. A minute on one core (not measured).
#
#   bash examples/pos_tagging/prepare.sh
#
#   UPOS=1         the 17 universal tags instead of the Penn tags
#   THRESHOLD=2    words that the training text has less often are unknown, unless WORD_VECTORS has them
#   LOWER_CASE=1   words are lower-cased, as tables of vectors often are; their characters stay as written
#   RAW_DIR=...    has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
# See examples/recipe/sentence_recipe.sh for WORD_VECTORS, WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<tags>/data/bin.
set -euo pipefail
# shellcheck source=examples/pos_tagging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name_tagger_data
keep_settings "$data" "tags=$kind" "${prepare_tagger_settings[@]}" "trial=$trial${*:+ flags=$*}"

files=(en_ewt-ud-train.conllu en_ewt-ud-dev.conllu en_ewt-ud-test.conllu)
step "$data" download "fetch the files" fetch "${files[@]}"
step "$data" unpack "copy and count the lines" unpack_tagged conllu 10000 500 247862 32581 32851
# Column 4 has the universal tag, column 5 the Penn tag.
step "$data" text "binarise" prepare_text "$data" --format "conll:2,$([[ "$kind" == upos ]] && echo 4 || echo 5)" --conllu "${prepare_tagger_flags[@]}" \
  --train "$data/text/train.conllu" --valid "$data/text/valid.conllu" --test "$data/text/test.conllu" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
