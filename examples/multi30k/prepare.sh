#!/usr/bin/env bash
# Multi30k (29,000 image captions), English to German or French: download, BPE, binarise. A minute on one core.
#
#   bash examples/multi30k/prepare.sh
#
#   TARGET_LANG=de   or fr
#   RAW_DIR=...      has the files of downloads.tsv already, plain or as .gz: nothing is downloaded
#   MERGES=10000     joint BPE merges
#   BIDIRECTIONAL=pretrain  also the data for training in both directions
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Result: WORK_DIR/<pair>/bin.
set -euo pipefail
# shellcheck source=examples/multi30k/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-10000}
if [[ "$trial" == 1 ]]; then merges=${MERGES:-300}; fi
keep_settings "$data" "target_lang=$target" "merges=$merges" "trial=$trial${*:+ flags=$*}"

unpack() {
  local language split
  mkdir -p "$data/text"
  for language in en "$target"; do
    for split in train val "${tests[@]}"; do
      read_raw "$split.lc.norm.tok.$language" | limit_lines "$([[ "$split" == train ]] && echo 300 || echo 40)" >"$data/text/${split/#val/valid}.$language"
    done
    expect_lines "$data/text/train.$language" 29000
    expect_lines "$data/text/valid.$language" 1014
    expect_lines "$data/text/test_2016_flickr.$language" 1000
    expect_lines "$data/text/test_2017_flickr.$language" 1000
    expect_lines "$data/text/test_2017_mscoco.$language" 461
  done
}

names=()
for split in train val "${tests[@]}"; do names+=("$split.lc.norm.tok.en" "$split.lc.norm.tok.$target"); done
step "$data" download "fetch the files" fetch "${names[@]}"
step "$data" unpack "copy and count the lines" unpack
step "$data" segment "learn and apply $merges subwords ($subwords)" \
  segment_text "$data" "$merges" en "$target" train valid "${tests[@]}"
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" en "$target" joined --testpref "$(IFS=,; printf %s "${tests[*]/#/$data/bpe/}")" "$@"
if [[ "$bidirectional" != 0 ]]; then step "$data" binarise-both "binarise both directions" binarise_both "$data/bin" en "$target"; fi
printf '%s: ready: %s\n' "$recipe" "$data/bin"
