#!/usr/bin/env bash
# Trains models on the Stanford Sentiment Treebank (after prepare.sh): 3 layers, width 300, 10 heads of 30, alpha 0.5, as published.
#
#   bash examples/sst/train.sh
#   MODELS="multi_scale_transformer sentence_transformer" SEEDS="1 2 3" bash examples/sst/train.sh
#
#   BINARY=1, TREES=1            as for prepare.sh
#   ALPHA=-0.5, SCALES=N/8       other windows for MODEL=multi_scale_transformer; scales.sh runs all of the paper's
#   WORD_DROPOUT=0.1             share of the training words that are read as the unknown word, so that its vector is learned; others: runs of their own
#   HIDDEN=0                     units of the classifier's hidden layer, 0 for none: runs of their own
#   LR=0.0005 BATCH=50 EPOCHS=20 PATIENCE=5    other settings; the paper gives none (see README.md)
# Score to expect (published, five classes, pretrained vectors, on the test split): 51.9. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/sst/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
read_data_settings "$data"

train() { # train FLAGS...: the model $model with $seed
  choose_run
  choose_architecture sst
  choose_vector_flags "$data"
  choose_dropout 0.4 0.4 0.3
  choose_training 0.0005 50 20 5 accuracy
  keep_settings "$run" "model=$model" "alpha=${ALPHA:-}" "scales=${SCALES:-}" "${regular_settings[@]}" "seed=$seed" "freeze_vectors=$freeze_vectors" \
    "${training_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sentence_classification --criterion muse_sentence_classification --arch "$arch" \
    "${regular_flags[@]}" "${dropout_flags[@]}" "${training_flags[@]}" "${size_flags[@]}" "${scale_flags[@]}" \
    "${vector_flags[@]}" "$@"
}

for_each_run train "$@"
