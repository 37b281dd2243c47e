#!/usr/bin/env bash
# IWSLT15 English-Vietnamese, 133,317 pairs, tokenised by Stanford: download, 10,000 joint BPE merges, binarise.
#
#   bash examples/iwslt15_en_vi/prepare.sh
#
#   SUBWORDS=none words instead, as in the paper's text: dictionaries of 17,200 and 6,800 symbols
#   RAW_DIR=...   has the six files of downloads.tsv already, plain or as .gz: nothing is downloaded
# Case and entities are kept, tst2012 is for validation, tst2013 for testing, as in the authors' script.
# Minutes on two cores (not measured on the full data), 200 MB of disk.
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/iwslt15_en_vi/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-$([[ "$trial" == 1 ]] && echo 300 || echo 10000)}
keep_settings "$data" "merges=$merges" "trial=$trial" "flags=$*"

unpack() {
  local language
  mkdir -p "$data/text" "$data/raw"
  for language in en vi; do
    read_raw "train.$language" | limit_lines 300 >"$data/raw/train.$language"
    read_raw "tst2012.$language" | limit_lines 50 >"$data/text/valid.$language"
    read_raw "tst2013.$language" | limit_lines 50 >"$data/text/test.$language"
    expect_lines "$data/raw/train.$language" 133317
    expect_lines "$data/text/valid.$language" 1553
    expect_lines "$data/text/test.$language" 1268
  done
  # Empty lines go, nothing else: no length is too long here.
  corpus clean --inputs "$data/raw/train.en" "$data/raw/train.vi" --outputs "$data/text/train.en" "$data/text/train.vi" \
    --max 100000 --ratio 100000
  corpus check "$data/text/valid.en" "$data/text/valid.vi"
  corpus check "$data/text/test.en" "$data/text/test.vi"
}

step "$data" download "fetch the files" fetch {train,tst2012,tst2013}.{en,vi}
step "$data" unpack "copy, count the lines, drop empty ones" unpack
step "$data" segment "$(if [[ "$subwords" == none ]]; then echo "copy the words"; else echo "learn and apply $merges subwords ($subwords)"; fi)" segment_text "$data" "$merges" en vi train valid test
size=() # of the dictionaries, those of the paper where words are whole
if [[ "$subwords" == none ]]; then size=(--nwordssrc 17200 --nwordstgt 6800); fi
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" en vi own "${size[@]}" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
