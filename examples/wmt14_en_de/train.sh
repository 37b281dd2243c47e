#!/usr/bin/env bash
# Trains one model on WMT14 English-German (after prepare.sh) with the published setting: 458,752 tokens per update.
#
#   MODEL=muse        bash examples/wmt14_en_de/train.sh     12+12 layers, width 768, 243 million parameters; cosine, 30,000 updates
#   MODEL=muse_simple bash examples/wmt14_en_de/train.sh     the same without convolution, 224 million; inverse square root
#   MODEL=transformer bash examples/wmt14_en_de/train.sh     the baseline: Transformer big, 210 million; inverse square root
#
#   SIMCUT=1, RDROP=1, BPE_DROPOUT=0.1     beyond the paper, see examples/recipe/README.md
#   UPDATES=...                            another number of updates; the cosine then ends there
# Hardware: the authors used four GPUs; time and memory not measured here. One GPU does the same with more accumulation
# (computed), smaller ones with MAX_TOKENS=1792. Disk: 22 checkpoints of 3 to 3.4 GB (computed). Several nodes and SLURM: examples/recipe/README.md.
# Score to expect: 29.9 (MUSE), 29.8 (MUSE-simple), tokenised BLEU after compound splitting. Smallest trial: TRIAL=1.
set -euo pipefail
# shellcheck source=examples/wmt14_en_de/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_data
find_devices
tokens=458752
updates=${UPDATES:-30000}
stop=(--max-update "$updates")
# Warm-up from 1e-7 to 0.001 in 10,000 updates, then half a cosine in 20,000: it has to stop there, or the rate jumps back.
schedule=(--lr 0.001 --min-lr 1e-7 --lr-scheduler cosine --warmup-updates 10000 --warmup-init-lr 1e-7 --t-mult 1 --lr-shrink 1
  --lr-period-updates "$((updates > 10000 ? updates - 10000 : 20000))")
inverse_sqrt=(--lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7)
# All embeddings are shared. The presets of MUSE say so; fairseq reads --share-all-embeddings as its opposite where it is on by default.
attention=(--attention-dropout 0.1 --input-dropout 0.1)
case "$model" in
  muse) arch=muse_wmt_en_de ;;
  muse_simple) arch=muse_simple_wmt_en_de tokens=573440 schedule=("${inverse_sqrt[@]}") updates=${UPDATES:-} stop=(--max-epoch 75) ;;
  transformer) arch=transformer_wmt_en_de_big schedule=("${inverse_sqrt[@]}") attention=(--attention-dropout 0.1 "${share_flags[@]}") ;;
esac
if [[ "$joint" == 0 ]]; then case "$model" in muse | muse_simple) arch=${model}_large ;; esac; fi # the same sizes, without shared embeddings
if [[ -n "${UPDATES:-}" ]]; then stop=(--max-update "$UPDATES"); fi
if [[ "$trial" == 1 ]]; then tokens=600 updates=${UPDATES:-4} stop=(--max-update "$updates"); fi
plan_batches "$tokens" $((tokens > 3584 ? 3584 : tokens))
keep_run "model=$model" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" \
  "updates=${updates:-75 epochs}" "tokens_per_update=$tokens" "seed=$seed" "flags=$*"
follow_validation
step "$run" train "train $name (${updates:-75 epochs}${updates:+ updates})" train_model "$run" "$bin" --source-lang en --target-lang de --arch "$arch" \
  --dropout 0.3 "${attention[@]}" --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0 \
  "${schedule[@]}" "${stop[@]}" --save-interval-updates 500 --keep-interval-updates "$keep" --no-epoch-checkpoints \
  "${criterion[@]}" "${trial_flags[@]}" "$@"
