#!/usr/bin/env bash
# Trains part-of-speech taggers (after prepare.sh): 3 layers, width 300, 10 heads of 30, scales 1 to 9, alpha 1, as published.
#
#   bash examples/pos_tagging/train.sh                                   words alone
#   CHARACTERS=cnn bash examples/pos_tagging/train.sh                    and a vector from their characters; or bilstm
#   CHARACTERS=cnn FEATURES=1 WORD_DROPOUT=0.1 bash examples/pos_tagging/train.sh    and case, shape and affixes of words; a tenth of them unknown
#   CHARACTERS=cnn CRF=1 bash examples/pos_tagging/train.sh              and a conditional random field (needs pytorch-crf)
#   MODELS="multi_scale_transformer sentence_transformer" SEEDS="1 2 3" CHARACTERS=cnn bash examples/pos_tagging/train.sh
#
#   LR, BATCH, EPOCHS, PATIENCE, DECAY         other settings; the paper gives none (see README.md)
# Score to expect (published, Penn Treebank, other text): 97.2 to 97.7. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/pos_tagging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
read_data_settings "$data"

train() { # train FLAGS...: the model $model with $seed
  choose_run
  choose_architecture tagging
  choose_vector_flags "$data"
  choose_dropout 0.3 0.3 0.3
  choose_training 0.001 32 10 0 accuracy 0.15
  keep_settings "$run" "model=$model" "${tagger_settings[@]}" "seed=$seed" "freeze_vectors=$freeze_vectors" "${training_settings[@]}" \
    "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sequence_tagging --criterion muse_sequence_tagging --arch "$arch" "${tagger_flags[@]}" \
    "${dropout_flags[@]}" "${training_flags[@]}" "${size_flags[@]}" "${vector_flags[@]}" "$@"
}

for_each_run train "$@"
