#!/usr/bin/env bash
# Trains classifiers of documents (after prepare.sh) as published: vectors of 100, a GRU of 50 in either direction, 15 heads,
# a hidden layer of 512; SGD with rate 0.05, momentum 0.9, weight decay 0.0001, batches of 32, ends 5 epochs after the best.
#
#   bash examples/documents/train.sh
#   DATASET=imdb FOLDS=3 MODELS="lama_context lama sentence_bigru" bash examples/documents/train.sh
#
#   FOLDS=3, WORD2VEC, WORD_VECTORS      as for prepare.sh
#   HEADS=5                              another number of heads; heads.sh trains a curve
#   DISAGREEMENT=penal, emb              adds the penalty for heads that are alike, times 0.2
#   MAX_WORDS=512                        words read of a document
#   UNKNOWN_WORDS=keep                   rare words are one unknown word, not discarded: runs and tables of their own
#   WORD_DROPOUT=0.3                     reads this share of the words as unknown in training: runs and tables of their own
#   HIDDEN=0                             units of the classifier's hidden layer, 0 for none: runs and tables of their own
#   OPTIMIZER=adam    instead of the published SGD, rate 0.001 rising over 100 updates, no decay: runs and tables of their own
#   LR, BATCH, EPOCHS, PATIENCE, WARMUP  other than 0.05, 32, 50 at most, 5, 0
# Score to expect (published, R8): lama_context 97.3, lama 96.5. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for MODELS, SEEDS, WORK_DIR and the rest. Arguments go to fairseq-train.
set -euo pipefail
# shellcheck source=examples/documents/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

max_words=${MAX_WORDS:-512}

choose_network() { # sets arch, size_flags and head_flags for $model
  choose_architecture ""
  case "$model" in
    lama*) ;;
    *) arch=${model}_documents ;; # with the words and the classifier of LAMA
  esac
  head_flags=()
  if [[ -n "$heads" ]]; then head_flags=(--pooling-heads "$heads"); fi
}

train() { # train FLAGS...: the model $model on $fold with $seed
  choose_run
  read_data_settings "$data"
  choose_network
  if ((word2vec > 0)); then vectors=$data/bin/word_vectors.txt; fi
  choose_vector_flags "$data"
  if [[ "$optimizer" == sgd ]]; then
    WARMUP=${WARMUP:-0} choose_training 0.05 32 50 5 accuracy
    training_flags+=(--momentum 0.9 --weight-decay 0.0001)
  else
    choose_training 0.001 32 50 5 accuracy
  fi
  keep_settings "$run" "model=$model" "heads=$heads" "disagreement=$disagreement" "seed=$seed" "freeze_vectors=$freeze_vectors" \
    "max_words=$max_words" "optimizer=$optimizer" "unknown_words=$unknown_words" "${regular_settings[@]}" "${training_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task muse_sentence_classification --max-words "$max_words" --unknown-words "$unknown_words" "${regular_flags[@]}" --criterion muse_sentence_classification \
    --disagreement "$disagreement" --arch "$arch" "${training_flags[@]}" "${size_flags[@]}" \
    "${head_flags[@]}" "${vector_flags[@]}" "$@"
}

for_each_fold for_each_run train "$@"
