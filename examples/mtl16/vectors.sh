#!/usr/bin/env bash
# Word vectors for MTL-16 from its own training texts, all domains together (after prepare.sh of all 16); some minutes on one core.
#
#   bash examples/mtl16/vectors.sh                                             needs gensim
#   export WORD_VECTORS=runs/mtl16/vectors/bin/word_vectors.txt                then prepare.sh, train.sh, evaluate.sh again
#
# The 1,000 to 1,400 texts of a domain are too few to learn words from; the paper had GloVe. Test texts are not read.
#   DIM=300 WINDOW=5 VECTOR_EPOCHS=10    of word2vec (skip-gram: CBOW learns less from so little text)
# See examples/recipe/sentence_recipe.sh for WORK_DIR and the rest. Result: WORK_DIR/vectors/bin/word_vectors.txt.
set -euo pipefail
# shellcheck source=examples/mtl16/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

vectors_dir=$work_dir/vectors
dim=${DIM:-300} window=${WINDOW:-5} epochs=${VECTOR_EPOCHS:-10}

gather() {
  local domain
  for domain in "${domains[@]}"; do
    choose_data
    cat "$data/text/train.txt"
  done >"$vectors_dir/text.txt"
}

for domain in "${domains[@]}"; do
  choose_data
  [[ -e "$data/.text.done" ]] || fail "there is no data in $data; run prepare.sh without WORD_VECTORS first."
done
[[ -z "$vectors" ]] || fail "WORD_VECTORS is what this script makes, but it is set to $vectors; unset it."
keep_settings "$vectors_dir" "domains=${domains[*]}" "algorithm=skip-gram" "dim=$dim" "window=$window" "epochs=$epochs" "trial=$trial"
step "$vectors_dir" gather "gather the training texts" gather
step "$vectors_dir" learn "learn vectors (word2vec)" prepare_text "$vectors_dir" --train "$vectors_dir/text.txt" \
  --valid-from-train 100 --empty skip --word2vec "$dim" --word2vec-algorithm skip-gram --word2vec-window "$window" \
  --word2vec-epochs "$epochs" --word2vec-min-count 2 --word2vec-negative 10 --word2vec-sample 0.0001
printf '%s: ready: export WORD_VECTORS=%s\n' "$recipe" "$vectors_dir/bin/word_vectors.txt"
