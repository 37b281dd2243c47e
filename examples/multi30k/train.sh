#!/usr/bin/env bash
# Trains one model on Multi30k (after prepare.sh): the setting of Transformer-tiny, 4+4 layers, width 128, 8,000 updates.
#
#   MODEL=transformer bash examples/multi30k/train.sh       the baseline, 2.57 million parameters
#   MODEL=muse_simple bash examples/multi30k/train.sh       the same sizes, branches in parallel
#   MODEL=muse        bash examples/multi30k/train.sh       feed-forward width 160 instead of 256: equal parameters
#   MODEL=dynamicconv bash examples/multi30k/train.sh       fairseq's DynamicConv (lightconv): feed-forward width 352, the same
#   ROW=separate_depthconv_3 bash examples/multi30k/train.sh     a row of MUSE's tables at these sizes; ROW=help prints them
#   MODEL=plain_transformer ATTENTION=multi-scale bash examples/multi30k/train.sh     or distance, or both; also with MUSE
#   MODEL=plain_transformer ATTENTION=multi-scale-layers bash examples/multi30k/train.sh     or distance-layers: the papers' own layers
#   SIMCUT=1 BPE_DROPOUT=0.1 bash examples/multi30k/train.sh     MUSE with both regularisers
#   BIDIRECTIONAL=pretrain, then finetune     both directions first (prepare.sh with pretrain, too)
#
#   PROFILE=cpu   for two cores: 1,024 tokens per update, 5,000 updates, rate falling linearly, dropout 0.2
#   UPDATES=...   another number of updates
# Hardware: one GPU with 4 GB (not measured), or PROFILE=cpu with 2 GB of memory; hours on two cores in RESULTS.md.
# Score to expect (Transformer-tiny, published): 41.0 / 33.4 / 29.9 tokenised BLEU. One GPU is enough.
# Smallest trial: TRIAL=1. See examples/recipe/recipe.sh for MODEL, SEED, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/multi30k/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_start
find_devices
ffn=256
case "$model" in
  transformer) arch=transformer ;;
  plain_transformer) arch=plain_transformer_tiny ;;
  muse_simple) arch=muse_simple_tiny ;;
  muse) arch=muse_tiny ffn=160 ;;
  dynamicconv) arch=lightconv_iwslt_de_en ffn=352 ;;
esac
profile=${PROFILE:-published}
if [[ "$trial" == 1 ]]; then profile=trial; fi
case "$profile" in
  published) tokens=4096 updates=8000 dropout=0.3 schedule=(--lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7) ;;
  cpu) tokens=1024 updates=5000 dropout=0.2 schedule=(--lr 0.004 --lr-scheduler polynomial_decay --warmup-updates 500 --total-num-update "${UPDATES:-5000}") ;;
  trial) tokens=400 updates=4 dropout=0.3 schedule=(--lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 2 --save-interval-updates 2) ;;
esac
updates=${UPDATES:-$updates}
plan_batches "$tokens" "$tokens"
keep_run "model=$model" "${row_settings[@]}" "target_lang=$target" "profile=$profile" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" \
  "${attention_settings[@]}" "${direction_settings[@]}" \
  "updates=$updates" "tokens_per_update=$tokens" "seed=$seed" "flags=$*"

if [[ -n "$row" && "${expected[0]}" != - ]]; then printf '%s: note: the score of %s was published for IWSLT14, so there will be no verdict\n' "$recipe" "$row"; fi

flags=("$bin" --source-lang en --target-lang "$target" --arch "$arch" "${share_flags[@]}" --dropout "$dropout"
  --optimizer adam --adam-betas '(0.9, 0.98)' "${schedule[@]}" --max-update "$updates" --keep-last-epochs "$keep")
for side in encoder decoder; do
  flags+=("--$side-layers" 4 "--$side-embed-dim" 128 "--$side-ffn-embed-dim" "$ffn" "--$side-attention-heads" 4)
done
flags+=("${row_flags[@]}" "${attention_flags[@]}" "${criterion[@]}" "${direction_flags[@]}")
step "$run" train "train $name ($updates updates)" train_model "$run" "${flags[@]}" "$@"
