#!/usr/bin/env bash
# Trains models of sentence pairs (after prepare.sh): multi_scale_transformer with 3 layers, width 600, 5 heads of 64, alpha 0.5, as
# published, of sick and the small pieces with width 200, heads of 40, less dropout and a falling rate; the baselines alike;
# distance_attention_network and directional_attention_network with their own papers' sizes and rate.
#
#   bash examples/snli/train.sh
#   DATASET=snli MODELS="multi_scale_transformer sentence_transformer" SEEDS="1 2 3" bash examples/snli/train.sh
#   DATASET=snli MODEL=distance_attention_network DISTANCE_ALPHA=0 bash examples/snli/train.sh
#
#   DISTANCE_ALPHA=0    distance_attention_network without its distance mask (or with another alpha): a run folder of its own
#   PRE_NORM=1          sentence_transformer and sentence_muse with layer norm before the branches: a run folder of its own
#   PROFILE=published   the published settings for the small data sets, too; PROFILE=small: the others for all. A run folder of its own
#   LR, BATCH, EPOCHS, PATIENCE, DECAY    other settings than those in README.md
# Score to expect (published, SNLI): 85.9; distance_attention_network 86.3, without the mask 86.0. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/snli/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
read_data_settings "$data"

choose_settings() { # sets model_flags, dropout_flags, model_settings and those of choose_training for $model and $profile
  model_flags=() dropout_flags=() model_settings=()
  if [[ -n "$distance_alpha" ]]; then
    model_flags=(--distance-alpha "$distance_alpha")
    model_settings=("distance_alpha=$distance_alpha")
  fi
  if [[ "$pre_norm" != 0 ]]; then
    model_flags=(--encoder-normalize-before)
    model_settings=("pre_norm=1")
  fi
  case "$model:$profile" in
    distance_attention_network:* | directional_attention_network:*) # sizes and dropout are the model's own, as published
      choose_training 0.001 64 20 0 accuracy
      return
      ;;
    *:small) # of few pairs a wide encoder with much dropout learns little
      model_flags+=(--word-embed-dim 200 --encoder-embed-dim 200)
      if [[ "$model" == multi_scale_transformer ]]; then model_flags+=(--encoder-head-dim 40); fi
      choose_dropout 0.1 0.2 0
      choose_training 0.001 32 12 0 accuracy 0.15
      ;;
    *)
      model_flags+=(--encoder-embed-dim 600)
      choose_dropout 0.5 0.5 0.3
      case "$dataset" in
        snli | mnli) choose_training 0.00025 128 20 3 accuracy ;;
        *) choose_training 0.00025 32 30 5 accuracy ;;
      esac
      ;;
  esac
  model_flags+=(--pair-features difference_twice)
}

train() { # train FLAGS...: the model $model with $seed
  choose_run
  choose_architecture snli
  choose_vector_flags "$data"
  choose_settings
  keep_settings "$run" "model=$model" "profile=$profile" "seed=$seed" "freeze_vectors=$freeze_vectors" "${training_settings[@]}" \
    "${model_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sentence_classification --criterion muse_sentence_classification --arch "$arch" \
    "${model_flags[@]}" "${dropout_flags[@]}" "${training_flags[@]}" \
    "${size_flags[@]}" "${vector_flags[@]}" "$@"
}

for_each_run train "$@"
