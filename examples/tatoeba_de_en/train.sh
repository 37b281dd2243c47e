#!/usr/bin/env bash
# Trains one model on Tatoeba German-English (after prepare.sh): 4,096 tokens per update, 20,000 updates. A setting of our own.
#
#   MODEL=muse        bash examples/tatoeba_de_en/train.sh     4+4 layers, width 256, feed-forward 512 (MUSE: 348)
#   MODEL=muse_simple bash examples/tatoeba_de_en/train.sh     the same sizes without convolution
#   MODEL=transformer bash examples/tatoeba_de_en/train.sh     the baseline, of the same sizes
#
#   SIMCUT=1, RDROP=1, BPE_DROPOUT=0.1     see examples/recipe/README.md
#   PROFILE=cpu   for two cores: 1,024 tokens per update, 3,000 updates, rate falling linearly, dropout 0.1 (47 minutes on a busy core)
#   UPDATES=...   another number of updates
# Hardware: one GPU (not measured), or PROFILE=cpu. No score is published for this data. TRIAL=1: a trial.
set -euo pipefail
# shellcheck source=examples/tatoeba_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_data
find_devices
ffn=512
case "$model" in
  muse) arch=muse ffn=348 ;;
  muse_simple) arch=muse_simple ;;
  transformer) arch=transformer ;;
esac
sizes=()
for side in encoder decoder; do
  sizes+=("--$side-layers" 4 "--$side-embed-dim" 256 "--$side-ffn-embed-dim" "$ffn" "--$side-attention-heads" 4)
done
profile=${PROFILE:-published}
dropout=0.2 checkpoints=(--keep-last-epochs "$keep")
schedule=(--lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7)
if [[ "$trial" == 1 ]]; then profile=trial; fi
case "$profile" in
  published) tokens=4096 updates=20000 ;;
  cpu)
    tokens=1024 updates=3000 dropout=0.1
    schedule=(--lr-scheduler polynomial_decay --warmup-updates 300 --total-num-update "${UPDATES:-3000}")
    # Two epochs: checkpoints are those of updates.
    checkpoints=(--save-interval-updates 100 --keep-interval-updates "$keep" --no-epoch-checkpoints)
    ;;
  trial) tokens=400 updates=4 ;;
esac
updates=${UPDATES:-$updates}
plan_batches "$tokens" "$tokens"
keep_run "model=$model" "profile=$profile" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" \
  "updates=$updates" "tokens_per_update=$tokens" "seed=$seed" "flags=$*"
step "$run" train "train $name ($updates updates)" train_model "$run" "$bin" --source-lang de --target-lang en --arch "$arch" \
  "${sizes[@]}" "${share_flags[@]}" --dropout "$dropout" --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0001 \
  --lr 0.002 "${schedule[@]}" --max-update "$updates" "${checkpoints[@]}" "${criterion[@]}" "${trial_flags[@]}" "$@"
