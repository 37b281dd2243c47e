#!/usr/bin/env bash
# Word vectors from the training texts of any recipes (after their prepare.sh), for WORD_VECTORS of all of them; needs gensim.
#
#   bash examples/recipe/vectors.sh runs/ner/data-lower/bin runs/mtl16/*/data/bin
#   export WORD_VECTORS=runs/vectors/fasttext100.txt          then prepare.sh, train.sh, evaluate.sh of each of them
#
# Arguments are folders that `muse-plugin prepare-text` made. Subword vectors: words that only a test set has get theirs by
# their spelling. They are centred, and the mean cosine of two random words is printed, with a warning if they are all alike.
#   KIND=fasttext DIM=100 WINDOW=5 VECTOR_EPOCHS=10 MIN_COUNT=2    KIND=word2vec: words without subwords
# What was learned from the same texts with the same settings is not learned again. See recipe.sh for WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/recipe/recipe.sh
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
start_recipe vectors "" 'KIND=fasttext|word2vec' DIM=count WINDOW=count VECTOR_EPOCHS=count MIN_COUNT=count
(($#)) || fail "vectors.sh needs folders of prepared data, such as runs/mtl16/*/data/bin, but got none; name them."

kind=${KIND:-fasttext} dim=${DIM:-100}
# shellcheck disable=SC2154 # recipe.sh sets them
python "$recipe_tools/learn_vectors.py" "$@" --output "$work_dir/$kind$dim.txt" --kind "$kind" --dim "$dim" --window "${WINDOW:-5}" \
  --epochs "${VECTOR_EPOCHS:-10}" --min-count "${MIN_COUNT:-2}" --seed "$seed"
# shellcheck disable=SC2154
printf '%s: ready: export WORD_VECTORS=%s\n' "$recipe" "$work_dir/$kind$dim.txt"
