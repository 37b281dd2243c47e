#!/usr/bin/env bash
# Trains a student on what the teacher wrote (after prepare.sh): a deep encoder, which runs once, and a shallow decoder.
#
#   LAYERS=12-1 bash examples/distill/train.sh                       12 encoder layers, one decoder layer; or 6-2 (default), 6-1
#   MODEL=transformer LAYERS=6-1 bash examples/distill/train.sh      fairseq's Transformer instead of muse_simple
#
#   WIDTH=...       of the layers (default: the teacher's, 128 for Multi30k, 256 for Tatoeba); feed-forward layers are twice as wide
#   PROFILE=cpu     for two cores: 1,024 tokens per update, 5,000 updates; otherwise 4,096 and 20,000
#   UPDATES=...     another number of updates
# Hardware: one GPU, or two cores with PROFILE=cpu; not measured. The settings are our own. TRIAL=1: a trial.
# See examples/recipe/recipe.sh for SEED, WORK_DIR and the rest.
set -euo pipefail
# shellcheck source=examples/distill/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_data
while IFS= read -r line; do data_settings+=("$line"); done < <(sed -nE '/^(teacher_checkpoint|generate_flags)=/p' "$data/settings.txt" 2>/dev/null)
criterion=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1)
find_devices
profile=${PROFILE:-published}
if [[ "$trial" == 1 ]]; then profile=trial; fi
case "$profile" in
  published) tokens=4096 updates=20000 schedule=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7) ;;
  cpu) tokens=1024 updates=5000 schedule=(--lr 0.004 --lr-scheduler polynomial_decay --warmup-updates 500 --total-num-update "${UPDATES:-5000}") ;;
  trial) tokens=400 updates=4 width=32 schedule=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 2) ;;
esac
updates=${UPDATES:-$updates}
every=$(((updates + 49) / 50)) # the last 10 checkpoints are of the last fifth of the training, however long an epoch is
plan_batches "$tokens" "$tokens"
keep_settings "$run" "model=$model" "layers=$layers" "width=$width" "${data_settings[@]}" "profile=$profile" "updates=$updates" \
  "tokens_per_update=$tokens" "seed=$seed" "flags=$*"

flags=("$data/bin" --source-lang "$source" --target-lang "$target" --arch "$model" "${share_flags[@]}"
  --encoder-layers "${layers%-*}" --decoder-layers "${layers#*-}")
for side in encoder decoder; do
  # Without normalisation before each layer, deep encoders hardly learn here: perplexity 55 for 28 after 1,500 updates.
  flags+=("--$side-embed-dim" "$width" "--$side-ffn-embed-dim" "$((2 * width))" "--$side-attention-heads" 4 "--$side-normalize-before")
done
# A teacher's sentences are easier than people's: less dropout.
flags+=(--dropout 0.1 "${criterion[@]}" --optimizer adam --adam-betas '(0.9, 0.98)' "${schedule[@]}" --max-update "$updates"
  --save-interval-updates "$every" --keep-interval-updates "$keep" --no-epoch-checkpoints)
step "$run" train "train $name ($updates updates)" train_model "$run" "${flags[@]}" "$@"
