#!/usr/bin/env bash
# Trains four models on mirrored summation: the sum of K products of vectors that mirror each other in a sentence.
#
#   bash examples/mirrored_summation/train.sh                       all of the figure, 4 models x 5 K
#   PROFILE=cpu bash examples/mirrored_summation/train.sh           for two cores: shorter sentences, fewer of them, width 100
#   MODELS="flex transformer" TERMS=50 bash examples/mirrored_summation/train.sh
#
#   hier_s         2 layers, all 10 heads see windows of 3
#   deep_hier_s    6 layers of the same
#   flex           2 layers, two heads each with windows of 3, N/16, N/8, N/4, N/2
#   transformer    2 layers, every head sees everything, positions, feed-forward
#   TERMS="10 20 30 40 50"                       K, the number of products; for PROFILE=cpu "3 6 9 12 15"
#   LR=0.0005 BATCH=64 EPOCHS=30 PATIENCE=5      other settings; the paper gives none (see README.md)
# Finished models are skipped, an interrupted one continues. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORK_DIR and the rest. Arguments go to fairseq-train.
set -euo pipefail
# shellcheck source=examples/mirrored_summation/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

choose_model() { # sets arch and model_flags for $model
  local windows=(--encoder-attention-heads 10 --encoder-head-dim "$head" --encoder-attention-scale-alpha 0)
  arch=multi_scale_transformer
  case "$model" in
    hier_s) model_flags=(--encoder-layers 2 "${windows[@]}" --encoder-attention-scales 3) ;;
    deep_hier_s) model_flags=(--encoder-layers 6 "${windows[@]}" --encoder-attention-scales 3) ;;
    flex) model_flags=(--encoder-layers 2 "${windows[@]}" --encoder-attention-scales '3,N/16,N/8,N/4,N/2') ;;
    transformer)
      arch=sentence_transformer
      # A layer norm on the input would take away how large the numbers are.
      model_flags=(--encoder-layers 2 --encoder-attention-heads 10 --encoder-ffn-embed-dim "$ffn" --no-layernorm-embedding)
      ;;
  esac
}

train() { # train FLAGS...: the model $model for $terms with $seed
  choose_run
  choose_model
  choose_training 0.0005 64 30 5 mse
  keep_settings "$run" "model=$model" "terms=$terms" "seed=$seed" "profile=$profile" "sentences=$train/$valid/$test" "length=$length" \
    "vector=$vector" "width=$width" "${training_settings[@]}" "flags=$*"
  # No noise in the data, no dropout.
  step "$run" train "train $model, K = $terms, seed $seed" train_sentences "$run" "${task_flags[@]}" --terms "$terms" \
    --criterion muse_sentence_regression --arch "$arch" "${model_flags[@]}" --encoder-embed-dim "$width" \
    --classifier-hidden-dim "$hidden" --dropout 0 --attention-dropout 0 --embedding-dropout 0 --classifier-dropout 0 \
    "${training_flags[@]}" "$@"
}

for terms in "${all_terms[@]}"; do for_each_run train "$@"; done
