#!/usr/bin/env bash
# Trains models of sentence pairs (after prepare.sh): 3 layers, width 600, 5 heads of 64, alpha 0.5, as published for SNLI.
#
#   bash examples/snli/train.sh
#   DATASET=snli MODELS="multi_scale_transformer sentence_transformer" SEEDS="1 2 3" bash examples/snli/train.sh
#
#   LR=0.00025 BATCH=128 EPOCHS=20 PATIENCE=3    other settings; DATASET=sick and snli-small: batches of 32, 30 epochs. The paper
#                                                gives none (see README.md)
# Score to expect (published, SNLI): 85.9. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/snli/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
read_data_settings "$data"

train() { # train FLAGS...: the model $model with $seed
  choose_run
  choose_architecture snli
  choose_vector_flags "$data"
  choose_dropout 0.5 0.5 0.3
  if [[ "$dataset" == snli ]]; then
    choose_training 0.00025 128 20 3 accuracy
  else
    choose_training 0.00025 32 30 5 accuracy
  fi
  keep_settings "$run" "model=$model" "seed=$seed" "freeze_vectors=$freeze_vectors" "${training_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sentence_classification --criterion muse_sentence_classification --arch "$arch" \
    --encoder-embed-dim 600 --pair-features difference_twice "${dropout_flags[@]}" "${training_flags[@]}" \
    "${size_flags[@]+"${size_flags[@]}"}" "${vector_flags[@]+"${vector_flags[@]}"}" "$@"
}

for_each_run train "$@"
