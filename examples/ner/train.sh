#!/usr/bin/env bash
# Trains taggers of named entities (after prepare.sh): 3 layers, 10 heads, scales 1 to 9, alpha 1, as published, but of width 100.
#
#   bash examples/ner/train.sh                                   words alone
#   CHARACTERS=cnn bash examples/ner/train.sh                    and a vector from their characters; or bilstm
#   CHARACTERS=cnn FEATURES=1 WORD_DROPOUT=0.1 bash examples/ner/train.sh    and case, shape and affixes of words; a tenth of them unknown
#   CHARACTERS=cnn CRF=1 bash examples/ner/train.sh              and a conditional random field (needs pytorch-crf)
#   MODELS="multi_scale_transformer sentence_transformer" SEEDS="1 2 3" CHARACTERS=cnn bash examples/ner/train.sh
#
#   PROFILE=published                          width 300, heads of 30, a constant rate: a run folder of its own
#   LR, BATCH, EPOCHS, PATIENCE, DECAY         other settings; the paper gives none (see README.md)
# Score to expect (published, F1 on CoNLL-2003, far easier text): 89.4 to 91.6. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/ner/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
read_data_settings "$data"

choose_size() { # sets model_flags, dropout_flags and those of choose_training for $model by $profile
  model_flags=()
  if [[ "$profile" == published ]]; then
    choose_dropout 0.3 0.3 0.3
    choose_training 0.0005 32 30 5 entity_f1
    return
  fi
  # A constant rate swings by ten points of F1 between epochs of so few sentences.
  model_flags=(--word-embed-dim 100 --encoder-embed-dim 100)
  if [[ "$model" == multi_scale_transformer ]]; then model_flags+=(--encoder-head-dim 10); fi
  choose_dropout 0.3 0.3 0.1
  choose_training 0.0015 16 12 0 entity_f1 0.15
}

train() { # train FLAGS...: the model $model with $seed
  choose_run
  choose_architecture tagging
  choose_vector_flags "$data"
  choose_size
  keep_settings "$run" "model=$model" "profile=$profile" "${tagger_settings[@]}" "seed=$seed" "freeze_vectors=$freeze_vectors" "${training_settings[@]}" \
    "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sequence_tagging --entities --criterion muse_sequence_tagging --arch "$arch" "${tagger_flags[@]}" \
    "${model_flags[@]}" "${dropout_flags[@]}" "${training_flags[@]}" "${size_flags[@]}" \
    "${vector_flags[@]}" "$@"
}

for_each_run train "$@"
