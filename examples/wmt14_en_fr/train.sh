#!/usr/bin/env bash
# Trains one model on WMT14 English-French (after prepare.sh) with the published setting: 655,360 tokens per update.
#
#   MODEL=muse        bash examples/wmt14_en_fr/train.sh     12+12 layers, width 768, 252 million parameters
#   MODEL=muse_simple bash examples/wmt14_en_fr/train.sh     the same without convolution, 233 million
#   MODEL=transformer bash examples/wmt14_en_fr/train.sh     the baseline: Transformer big
#
#   UPDATES=...                       another number of updates; the cosine then ends there
# Hardware: the authors' run took nine days (log: 773,000 seconds, eight GPUs); not measured here. One GPU does the same with more
# accumulation (computed), smaller ones with MAX_TOKENS=1280. Several nodes and SLURM: examples/recipe/README.md.
# Score to expect: 43.5 (MUSE), 43.2 (MUSE-simple) tokenised BLEU as published. Smallest trial: TRIAL=1.
set -euo pipefail
# shellcheck source=examples/wmt14_en_fr/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_data
find_devices
# All embeddings are shared. The presets of MUSE say so; fairseq reads --share-all-embeddings as its opposite where it is on by default.
attention=(--attention-dropout 0.1 --input-dropout 0.1)
case "$model" in
  muse) arch=muse_wmt_en_fr ;;
  muse_simple) arch=muse_simple_wmt_en_fr ;;
  transformer) arch=transformer_vaswani_wmt_en_fr_big attention=(--attention-dropout 0.1 "${share_flags[@]}") ;;
esac
if [[ "$joint" == 0 ]]; then case "$model" in muse | muse_simple) arch=${model}_large ;; esac; fi # the same sizes, without shared embeddings
tokens=$([[ "$trial" == 1 ]] && echo 600 || echo 655360)
updates=${UPDATES:-$([[ "$trial" == 1 ]] && echo 4 || echo 80000)}
plan_batches "$tokens" $((tokens > 5120 ? 5120 : tokens))
keep_run "model=$model" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" "updates=$updates" "tokens_per_update=$tokens" \
  "seed=$seed" "flags=$*"
follow_validation
# Warm-up from 1e-7 to 0.0007 in 10,000 updates, then half a cosine in 70,000: it has to stop there, or the rate jumps back.
step "$run" train "train $name ($updates updates)" train_model "$run" "$bin" --source-lang en --target-lang fr --arch "$arch" \
  --dropout 0.1 "${attention[@]}" --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0 \
  --lr 0.0007 --min-lr 1e-7 --lr-scheduler cosine --warmup-updates 10000 --warmup-init-lr 1e-7 \
  --lr-period-updates "$((updates > 10000 ? updates - 10000 : 70000))" --t-mult 1 --lr-shrink 1 --max-update "$updates" \
  --save-interval-updates 1000 --keep-interval-updates 2 --no-epoch-checkpoints \
  "${criterion[@]}" "${trial_flags[@]}" "$@"
