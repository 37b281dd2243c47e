#!/usr/bin/env bash
# WMT14 English-German, 4.5 million pairs: tokenise, clean, 32,000 joint BPE merges, dictionary of 32,768, binarise.
#
#   RAW_DIR=/where/it/is bash examples/wmt14_en_de/prepare.sh     with wmt16_en_de.tar.gz in RAW_DIR: the authors' data
#   bash examples/wmt14_en_de/prepare.sh                          downloads 1.7 GB and makes nearly the same, see README.md
#
#   RAW_DIR=...   may also have the archives of downloads.tsv: nothing is downloaded
# newstest2013 (3,000 sentences) is for validation, newstest2014 (3,003) for testing. Time and disk: not measured; the corpora
# have 4.5 million pairs, and sacremoses does a few thousand lines a second on a core. TRIAL=1 takes News Commentary alone.
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/wmt14_en_de/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-$([[ "$trial" == 1 ]] && echo 300 || echo 32000)}
kind=built
if [[ -f "$raw_dir/wmt16_en_de.tar.gz" ]]; then kind=published; fi
if [[ "$kind" == published && "$subwords-$joint-${MERGES:-32000}" != bpe-1-32000 ]]; then
  fail "the authors' archive has 32,000 joint merges already; SUBWORDS must be bpe, JOINT 1 and MERGES 32000, but they are '$subwords', $joint and $merges."
fi
keep_settings "$data" "merges=$merges" "kind=$kind" "trial=$trial" "flags=$*"

archives=(training-parallel-europarl-v7 training-parallel-commoncrawl training-parallel-nc-v11)
corpora=(europarl-v7 commoncrawl news-commentary-v11) # in the order of the authors' data
if [[ "$trial" == 1 ]]; then archives=("${archives[2]}") corpora=("${corpora[2]}"); fi

use_published() {
  local language from
  fetch wmt16_en_de.tar.gz
  mkdir -p "$data/bpe" "$data/text"
  corpus extract "$raw_dir/wmt16_en_de.tar.gz" "$data/original" bpe.32000 \
    {train.tok.clean,newstest2013.tok,newstest2014.tok}.bpe.32000.{en,de}
  cp "$data/original/bpe.32000" "$data/bpe.codes"
  for language in en de; do
    for from in train=train.tok.clean valid=newstest2013.tok test=newstest2014.tok; do
      limit_lines 400 <"$data/original/${from#*=}.bpe.32000.$language" >"$data/bpe/${from%=*}.$language"
      sed -E 's/@@( |$)//g' "$data/bpe/${from%=*}.$language" >"$data/text/${from%=*}.$language"
    done
  done
}

extract() {
  local language i
  for i in "${!archives[@]}"; do
    corpus extract "$raw_dir/${archives[i]}.tgz" "$data/original" "${corpora[i]}.de-en.en" "${corpora[i]}.de-en.de"
  done
  corpus extract "$raw_dir/dev.tgz" "$data/original" newstest2013.{en,de} newstest2014-deen-{ref.en,src.de}.sgm
  mkdir -p "$data/raw"
  for language in en de; do
    for i in "${!corpora[@]}"; do cat "$data/original/${corpora[i]}.de-en.$language"; done | limit_lines 400 >"$data/raw/train.$language"
    limit_lines 50 <"$data/original/newstest2013.$language" >"$data/raw/valid.$language"
    corpus segments --keep-apostrophes "$data/original/newstest2014-deen-"*".$language.sgm" --output "$data/original/test.$language"
    limit_lines 50 <"$data/original/test.$language" >"$data/raw/test.$language"
  done
}

clean() {
  local part
  corpus clean --inputs "$data/tokenized/train.en" "$data/tokenized/train.de" --max 80 --ratio 9 \
    --outputs "$data/text/train.en" "$data/text/train.de"
  for part in valid test; do cp "$data/tokenized/$part.en" "$data/tokenized/$part.de" "$data/text/"; done
}

check() {
  local language
  for language in en de; do
    if [[ "$kind" == published ]]; then expect_lines "$data/text/train.$language" 4500966; fi
    expect_lines "$data/text/valid.$language" 3000
    expect_lines "$data/text/test.$language" 3003
  done
  corpus check "$data/text/train.en" "$data/text/train.de"
}

if [[ "$kind" == published ]]; then
  step "$data" published "unpack the authors' data" use_published
else
  step "$data" download "fetch the corpora" fetch "${archives[@]/%/.tgz}" dev.tgz
  step "$data" extract "extract" extract
  step "$data" tokenize "tokenise" tokenize_raw "$data" en de train valid test --
  step "$data" clean "drop long pairs" clean
  step "$data" segment "learn and apply $merges subwords ($subwords)" segment_text "$data" "$merges" en de train valid test
fi
step "$data" check "count the lines" check
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" en de joined --nwordssrc 32768 --nwordstgt 32768 "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
