#!/usr/bin/env bash
# WMT14 English-French, 36 million pairs: download 6.7 GB, tokenise, 40,000 joint BPE merges, clean, binarise.
#
#   bash examples/wmt14_en_fr/prepare.sh
#
#   VALID=newstest   newstest2012 and 2013 (6,003 pairs) for validation, as in the paper's text, and no training pair held out
#   RAW_DIR=...   has the archives of downloads.tsv already: nothing is downloaded
# As in fairseq's usual recipe, which the authors of MUSE followed: every 1,333rd pair is for validation (26,854 pairs in their
# log), newstest2014 (3,003 sentences) for testing. Time and disk: not measured; the corpora have 40.8 million pairs, and sacremoses
# does a few thousand lines a second on a core. TRIAL=1 takes News Commentary alone.
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/wmt14_en_fr/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

merges=${MERGES:-$([[ "$trial" == 1 ]] && echo 300 || echo 40000)}
kept=("merges=$merges" "trial=$trial")
if [[ "$valid" != held-out ]]; then kept+=("valid=$valid"); fi
keep_settings "$data" "${kept[@]}" "flags=$*"
archives=(training-parallel-{europarl-v7,commoncrawl,un,nc-v9}.tgz training-giga-fren.tar)
corpora=(europarl-v7.fr-en commoncrawl.fr-en undoc.2000.fr-en news-commentary-v9.fr-en giga-fren.release2.fixed)
tests=(test)
if [[ "$valid" == newstest ]]; then tests+=(valid); fi
if [[ "$trial" == 1 ]]; then archives=("${archives[3]}") corpora=("${corpora[3]}"); fi

extract() {
  local i language
  mkdir -p "$data/raw"
  corpus extract "$raw_dir/dev.tgz" "$data/original" newstest2014-fren-{ref.en,src.fr}.sgm
  if [[ "$valid" == newstest ]]; then corpus extract "$raw_dir/dev.tgz" "$data/original" newstest201{2,3}.{en,fr}; fi
  for i in "${!archives[@]}"; do
    corpus extract "$raw_dir/${archives[i]}" "$data/original" "${corpora[i]}.en" "${corpora[i]}.fr"
  done
  for language in en fr; do
    for i in "${!corpora[@]}"; do cat "$data/original/${corpora[i]}.$language"; done | limit_lines 400 >"$data/raw/all.$language"
    corpus segments "$data/original/newstest2014-fren-"*".$language.sgm" --output "$data/original/test.$language"
    limit_lines 50 <"$data/original/test.$language" >"$data/raw/test.$language"
    if [[ "$valid" == newstest ]]; then # as newstest2014: apostrophes are ordinary ones
      cat "$data/original/newstest2012.$language" "$data/original/newstest2013.$language" | sed "s/’/'/g" | limit_lines 50 >"$data/raw/valid.$language"
      expect_lines "$data/raw/valid.$language" 6003
    fi
  done
}

split() {
  local language
  mkdir -p "$data/text"
  if [[ "$valid" == newstest ]]; then
    cp "$data/tokenized/valid.en" "$data/tokenized/valid.fr" "$data/text/"
    for language in en fr; do ln -f "$data/tokenized/all.$language" "$data/text/train.$language"; done
  else
    corpus split --inputs "$data/tokenized/all.en" "$data/tokenized/all.fr" --every "$([[ "$trial" == 1 ]] && echo 10 || echo 1333)" \
      --chosen "$data/text/valid.en" "$data/text/valid.fr" --rest "$data/text/train.en" "$data/text/train.fr"
  fi
  cp "$data/tokenized/test.en" "$data/tokenized/test.fr" "$data/text/"
  expect_lines "$data/text/test.en" 3003
  expect_lines "$data/text/test.fr" 3003
}

clean() { # after BPE, as the authors did: lengths are those of subwords
  local part
  for part in train valid; do
    corpus clean --inputs "$data/bpe/$part.en" "$data/bpe/$part.fr" --outputs "$data/clean/$part.en" "$data/clean/$part.fr" \
      --max 250 --ratio 1.5
  done
}

step "$data" download "fetch the corpora" fetch "${archives[@]}" dev.tgz
step "$data" extract "extract" extract
step "$data" tokenize "normalise and tokenise" tokenize_raw "$data" en fr all -- "${text_flags[@]}"
step "$data" tokenize-test "tokenise newstest2014" tokenize_raw "$data" en fr "${tests[@]}" -- --aggressive-hyphens
step "$data" split "split" split
step "$data" segment "learn and apply $merges subwords ($subwords)" segment_text "$data" "$merges" en fr train valid test
step "$data" clean "drop long pairs" clean
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" en fr joined --trainpref "$data/clean/train" --validpref "$data/clean/valid" "$@"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
