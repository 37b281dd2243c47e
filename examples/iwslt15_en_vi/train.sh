#!/usr/bin/env bash
# Trains one model on IWSLT15 English-Vietnamese (after prepare.sh): 16,000 tokens per update, 10,000 updates.
#
#   MODEL=muse        bash examples/iwslt15_en_vi/train.sh     12+12 layers, width 384
#   MODEL=muse_simple bash examples/iwslt15_en_vi/train.sh     the same without convolution
#   MODEL=transformer bash examples/iwslt15_en_vi/train.sh     the baseline: 6+6 layers, width 512, MUSE's rate and clipping
#   MODEL=transformer_usual ...                                the same with fairseq's usual ones: 0.0005, none
#
#   SIMCUT=1, RDROP=1, BPE_DROPOUT=0.1     beyond the paper, see examples/recipe/README.md
# Hardware: one GPU; hours and memory not measured. Smaller memory: MAX_TOKENS=2000. Several GPUs: all are used.
# Score to expect: 31.3 tokenised BLEU (MUSE), 30.7 (MUSE-simple), 30.6 (Transformer) as published. Smallest trial: TRIAL=1.
set -euo pipefail
# shellcheck source=examples/iwslt15_en_vi/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_data
find_devices
rate=0.001 clip=25 # tuned for the Transformer by the authors, and used for MUSE as they are
case "$model" in
  muse) arch=muse_iwslt_en_vi ;;
  muse_simple) arch=muse_simple_iwslt_en_vi ;;
  transformer) arch=transformer_iwslt_de_en ;;
  transformer_usual) arch=transformer_iwslt_de_en rate=0.0005 clip=0 ;;
esac
tokens=$([[ "$trial" == 1 ]] && echo 400 || echo 16000)
updates=${UPDATES:-$([[ "$trial" == 1 ]] && echo 4 || echo 10000)}
plan_batches "$tokens" $((tokens > 4000 ? 4000 : tokens))
keep_run "model=$model" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" \
  "updates=$updates" "tokens_per_update=$tokens" "seed=$seed" "flags=$*"
step "$run" train "train $name ($updates updates)" train_model "$run" "$bin" --source-lang en --target-lang vi --arch "$arch" \
  --dropout 0.3 --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0001 --clip-norm "$clip" \
  --lr "$rate" --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 --max-update "$updates" \
  --keep-last-epochs "$keep" "${criterion[@]}" "${trial_flags[@]}" "$@"
