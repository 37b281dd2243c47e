#!/usr/bin/env bash
# Trains one model per domain of MTL-16 (after prepare.sh): 3 layers, width 300, 10 heads of 30, alpha 0.5, as published.
#
#   DOMAIN=apparel bash examples/mtl16/train.sh                                   one model
#   MODELS="multi_scale_transformer sentence_transformer sentence_bigru" SEEDS="1 2 3" bash examples/mtl16/train.sh     all of a table
#
# Every model has the same rate, batches, dropouts and epochs; which epoch is kept, the validation set decides. The paper gives none
# of these (see README.md). Finished models are skipped, an interrupted one continues.
#   LR=0.0005 BATCH=16 EPOCHS=8 PATIENCE=0    other settings
#   MAX_WORDS=256                              words read of a text; 128 takes half the time
#   WORD_DROPOUT=0.3                           reads this share of the words as unknown in training: runs and tables of their own
#   HIDDEN=0                                   units of the classifier's hidden layer, 0 for none: runs and tables of their own
# Score to expect (published, with pretrained vectors): 86.3 on average. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/mtl16/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

max_words=${MAX_WORDS:-256}

train() { # train FLAGS...: the model $model on $domain with $seed
  choose_run
  read_data_settings "$data"
  choose_architecture mtl16
  choose_vector_flags "$data"
  choose_dropout 0.3 0.3 0.1
  choose_training 0.0005 16 8 0 accuracy
  keep_settings "$run" "model=$model" "seed=$seed" "freeze_vectors=$freeze_vectors" "max_words=$max_words" "${regular_settings[@]}" "${training_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train $model on $domain, seed $seed" train_sentences "$run" "$data/bin" \
    --task muse_sentence_classification --max-words "$max_words" --criterion muse_sentence_classification --arch "$arch" \
    "${regular_flags[@]}" "${dropout_flags[@]}" "${training_flags[@]}" "${size_flags[@]}" "${vector_flags[@]}" "$@"
}

for domain in "${domains[@]}"; do for_each_run train "$@"; done
