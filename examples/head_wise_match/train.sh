#!/usr/bin/env bash
# Trains head-wise match (after prepare.sh): BERT fine-tuned as published, or an encoder of this package, from scratch or out of a
# translation model.
#
#   DATASET=snli BERT_DIR=.../bert-large-uncased bash examples/head_wise_match/train.sh
#   DATASET=snli BERT_DIR=... TABLE=4 bash examples/head_wise_match/train.sh              every row of the paper's Table 4
#   DATASET=mrpc BERT_DIR=... TABLE=2 SEEDS="1 2 3" bash examples/head_wise_match/train.sh  classic, single-level, multi-level
#   DATASET=sick ENCODER="transformer muse" MATCH=cosine bash examples/head_wise_match/train.sh
#
#   ENCODER=bert           or some of bert transformer multi_scale muse translation
#   BERT_DIR=...           for bert
#   TRANSLATION_CHECKPOINT=.../checkpoint_avg.pt   for translation: a model that translates from English
#   MATCH=element          or cosine, bilinear (these two with AGGREGATION=concat), classic
#   AGGREGATION=max        or concat
#   LEVELS=all             or last, or numbers of layers from 0 such as 3,7,11
#   HIERARCHY=1            0: heads of all layers are aggregated at once
#   TABLE=2 or 4           all systems of that table instead
#   LAYERS=2               of the encoder: the lowest ones of BERT, or so many to be trained; depth.sh trains a curve
#   MATCH_DROPOUT=0.1      the paper tried 0, 0.1, ..., 0.4
#   LR, BATCH, EPOCHS, PATIENCE   other settings than those in README.md
# Arguments go to fairseq-train: on a GPU, --fp16 saves half of the memory; --update-freq 2 --batch-size 8, too.
# Score to expect (published, SNLI, BERT-large): 88.1. Smallest trial: TRIAL=1.
# See examples/recipe/sentence_recipe.sh for SEEDS, WORD_VECTORS, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/head_wise_match/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices
need bert BERT_DIR "the folder of a BERT, with config.json, vocab.txt and model.safetensors"
need translation TRANSLATION_CHECKPOINT "a checkpoint of muse or another translation model of this package"
if [[ " ${models[*]} " == *" bert "* && -n "${WARMUP:-}${DECAY:-}" ]]; then
  fail "WARMUP and DECAY are not for ENCODER=bert, whose rate rises over a tenth of the updates and falls to 0; unset them."
fi

best=accuracy # chooses the epoch
if [[ "$dataset" == wikiqa ]]; then best=loss; fi # with 5 % right answers, accuracy says little

small=0
case "$dataset" in
  sick | mrpc | wikiqa | *-small) small=1 ;;
esac

choose_size_training() { # sets training_flags and training_settings by the size of the data set
  if ((small)); then choose_training 0.0005 32 30 5 "$best"; else choose_training 0.00025 128 20 3 "$best"; fi
}

choose_bert_training() { # sets arch, model_flags, training_flags and training_settings for BERT
  local rate=${LR:-2e-5} batch=${BATCH:-16} epochs=${EPOCHS:-3} record pairs updates maximize=()
  bert_dir=${BERT_DIR:?}
  if [[ "$trial" == 1 ]]; then epochs=1; fi
  record=$data/bin/text_pipeline.json
  if [[ ! -e "$record" ]]; then record=$data/bin/text.json; fi # of data that an earlier version prepared
  pairs=$(python -c 'import json, sys; content = json.load(open(sys.argv[1], encoding="utf-8")); print(content.get("data", content)["splits"]["train"]["sentences"])' "$record")
  updates=$(((pairs + batch - 1) / batch))
  updates=$((updates * epochs))
  if [[ "$best" != loss ]]; then maximize=(--maximize-best-checkpoint-metric); fi
  arch=head_wise_match
  model_flags=(--bert-dir "$bert_dir" ${layers:+--bert-layers "$layers"})
  bert_name=${bert_name:-$(name_files "$bert_dir" "$bert_dir"/{config.json,model.safetensors,pytorch_model.bin})} # read once
  training_settings=("bert=$bert_name" "lr=$rate" "batch=$batch" "epochs=$epochs" "patience=${PATIENCE:-0}" "best=$best")
  training_flags=(--optimizer adam --adam-betas "(0.9, 0.999)" --weight-decay 0.01 --clip-norm 1.0 --lr "$rate"
    --lr-scheduler polynomial_decay --warmup-updates $((updates / 10 + 1)) --total-num-update $((updates + 1)) --batch-size "$batch"
    --max-epoch "$epochs" --no-epoch-checkpoints --best-checkpoint-metric "$best" "${maximize[@]}")
  if [[ "${PATIENCE:-0}" != 0 ]]; then training_flags+=(--patience "$PATIENCE"); fi
  if [[ "$trial" == 1 ]]; then training_flags+=(--max-update 2); fi
}

choose_own_training() { # the same for an encoder that is trained with the task
  arch=head_wise_match_$model
  if ((small)); then # of few pairs a wide encoder with much dropout learns little
    model_flags=(--word-embed-dim 200 --encoder-embed-dim 200 --embedding-dropout 0 --dropout 0.1 --attention-dropout 0)
    if [[ "$model" != multi_scale ]]; then model_flags+=(--encoder-attention-heads 5); fi
  else # as in examples/snli
    model_flags=(--encoder-embed-dim 600 --embedding-dropout 0.5 --dropout 0.1 --attention-dropout 0.3)
  fi
  if [[ "$model" == multi_scale ]]; then model_flags+=(--encoder-attention-heads 5 --encoder-head-dim 64); fi
  if [[ "$trial" == 1 ]]; then
    model_flags=(--word-embed-dim 16 --encoder-embed-dim 20 --encoder-layers 2 --encoder-attention-heads 5)
    if [[ "$model" == multi_scale ]]; then model_flags+=(--encoder-head-dim 4); else model_flags+=(--encoder-ffn-embed-dim 16); fi
  fi
  if [[ -n "$layers" ]]; then model_flags+=(--encoder-layers "$layers"); fi
  choose_vector_flags "$data"
  model_flags+=("${vector_flags[@]}")
  choose_size_training
  training_settings+=("freeze_vectors=$freeze_vectors")
}

choose_translation_training() { # the same for the encoder of a translation model, whose flags and dropout are its own
  local checkpoint=${TRANSLATION_CHECKPOINT:?}
  arch=head_wise_match_translation
  model_flags=(--translation-checkpoint "$checkpoint")
  choose_size_training
  translation_name=${translation_name:-$(name_files "$checkpoint" "$checkpoint")} # read once
  training_settings+=("translation=$translation_name")
}

train() { # train FLAGS...: the system $match, $aggregation, $levels, $hierarchy on $model with $seed
  local match_flags=(--match "$match" --match-dropout "${MATCH_DROPOUT:-0.1}")
  choose_run
  read_data_settings "$data"
  if [[ "$match" != classic ]]; then match_flags+=(--match-aggregation "$aggregation" --match-levels "$levels"); fi
  if [[ "$hierarchy" == 0 ]]; then match_flags+=(--match-no-hierarchy); fi
  case "$model" in
    bert) choose_bert_training ;;
    translation) choose_translation_training ;;
    *) choose_own_training ;;
  esac
  keep_settings "$run" "encoder=$model" "match=$match" "aggregation=$aggregation" "levels=$levels" "hierarchy=$hierarchy" \
    "seed=$seed" ${layers:+"layers=$layers"} "match_dropout=${MATCH_DROPOUT:-0.1}" "${training_settings[@]}" "${data_settings[@]}" "flags=$*"
  step "$run" train "train ${run#"$work_dir"/}" train_sentences "$run" "$data/bin" \
    --task head_wise_match --criterion muse_sentence_classification --arch "$arch" --max-words "$max_pieces" \
    "${model_flags[@]}" "${match_flags[@]}" "${training_flags[@]}" "$@"
}

for_each_system train "$@"
