#!/usr/bin/env bash
# IWSLT14 German-English, 160,239 pairs: download, tokenise, clean, lower-case, split, 10,000 joint BPE merges, binarise.
#
#   bash examples/iwslt14_de_en/prepare.sh
#
#   RAW_DIR=...        has de-en.tgz already: nothing is downloaded
#   MERGES=32000 DICTIONARY=joined     as the paper's text says; its log, and the default, have 10,000 and a dictionary for each language
#   BIDIRECTIONAL=pretrain  also the data for training in both directions (joined dictionary)
# As in fairseq's usual recipe, which the authors of MUSE followed; sacremoses stands in for the Moses scripts. Ends with a
# comparison with the published files. About ten minutes on two cores (not measured on the full data), 400 MB of disk.
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/iwslt14_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-$([[ "$trial" == 1 ]] && echo 300 || echo 10000)}
kept=("merges=$merges" "trial=$trial")
if [[ "$dictionary" != own ]]; then kept+=("dictionary=$dictionary"); fi
keep_settings "$data" "${kept[@]}" "flags=$*"
tests=(TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012)

unpack() {
  local names=(train.tags.de-en.de train.tags.de-en.en) language test
  for test in "${tests[@]}"; do
    for language in de en; do names+=("IWSLT14.$test.de-en.$language.xml"); done
  done
  corpus extract "$raw_dir/de-en.tgz" "$data/original" "${names[@]}"
  for language in de en; do
    corpus strip-tags "$data/original/train.tags.de-en.$language" "$data/raw/train.$language"
    names=("${tests[@]/#/$data/original/IWSLT14.}")
    corpus segments "${names[@]/%/.de-en.$language.xml}" --output "$data/raw/test.$language"
  done
}

split() {
  local language
  mkdir -p "$data/text"
  corpus clean --inputs "$data/tokenized/train.de" "$data/tokenized/train.en" \
    --outputs "$data/tokenized/clean.de" "$data/tokenized/clean.en" --max 175 --ratio 1.5
  corpus split --inputs "$data/tokenized/clean.de" "$data/tokenized/clean.en" --every 23 \
    --chosen "$data/text/valid.de" "$data/text/valid.en" --rest "$data/text/train.de" "$data/text/train.en"
  for language in de en; do
    cp "$data/tokenized/test.$language" "$data/text/test.$language"
    expect_about "$data/text/train.$language" 160239
    expect_about "$data/text/valid.$language" 7283
    expect_lines "$data/text/test.$language" 6750
  done
  corpus check "$data/text/train.de" "$data/text/train.en"
}

step "$data" download "fetch the archive" fetch de-en.tgz
step "$data" unpack "extract, drop what is no sentence" unpack
step "$data" tokenize "tokenise, lower-case" tokenize_raw "$data" de en train test -- "${text_flags[@]}"
step "$data" split "clean, split, count the lines" split
step "$data" segment "learn and apply $merges subwords ($subwords)" segment_text "$data" "$merges" de en train valid test
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" de en "$dictionary" "$@"
if [[ "$bidirectional" != 0 ]]; then
  step "$data" binarise-joined "binarise with one dictionary" binarise "$data/bin-joined" de en joined "$@"
  step "$data" binarise-both "binarise both directions" binarise_both "$data/bin-joined" de en
fi
if [[ -z "$(find_changes)" ]]; then corpus compare "$here/published.sha256" "$data"; fi
printf '%s: ready: %s\n' "$recipe" "$data/bin"
