#!/usr/bin/env bash
# Trains one model on IWSLT14 German-English (after prepare.sh) with the published setting: 16,000 tokens per update.
#
#   MODEL=muse        bash examples/iwslt14_de_en/train.sh     12+12 layers, width 384, 48.2 million parameters
#   MODEL=muse_simple bash examples/iwslt14_de_en/train.sh     the same without convolution, 44.0 million
#   MODEL=transformer bash examples/iwslt14_de_en/train.sh     the baseline: 6+6 layers, width 512, MUSE's rate, dropout and clipping
#   MODEL=transformer_usual ...                                the same with fairseq's usual ones: 0.0005, 0.3, none
#   MODEL=dynamicconv ...                                      fairseq's DynamicConv (lightconv), 7+6 layers
#   ROW=separate_depthconv_3 bash examples/iwslt14_de_en/train.sh     a row of the paper's tables; ROW=help prints them
#
#   SIMCUT=1, RDROP=1, BPE_DROPOUT=0.1     beyond the paper, see examples/recipe/README.md
#   BIDIRECTIONAL=pretrain, then finetune  both directions first (prepare.sh with pretrain, too), see README.md
# Hardware: one GPU. The authors' run took 3.6 hours on a GPU of 2019; 20,000 updates. Ours: not measured.
# Score to expect: MUSE 36.3 tokenised BLEU as published, 35.78 and 36.02 in other people's runs. Smaller memory: MAX_TOKENS=2000.
# Several GPUs: all are used, an update still sees 16,000 tokens. Smallest trial: TRIAL=1.
set -euo pipefail
# shellcheck source=examples/iwslt14_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

find_start
find_devices
rate=0.001 dropout=0.4 clip=25 # tuned for the Transformer by the authors, and used for MUSE as they are
case "$model" in
  muse) arch=muse_iwslt_de_en ;;
  muse_simple) arch=muse_simple_iwslt_de_en ;;
  transformer) arch=transformer_iwslt_de_en ;;
  transformer_usual) arch=transformer_iwslt_de_en rate=0.0005 dropout=0.3 clip=0 ;;
  dynamicconv) arch=lightconv_iwslt_de_en ;;
esac
tokens=$([[ "$trial" == 1 ]] && echo 400 || echo 16000)
updates=${UPDATES:-$([[ "$trial" == 1 ]] && echo 4 || echo 20000)}
plan_batches "$tokens" $((tokens > 4000 ? 4000 : tokens))
keep_run "model=$model" "${row_settings[@]}" "simcut=$simcut" "rdrop=$rdrop" "bpe_dropout=$bpe_dropout" "bidirectional=$bidirectional" \
  "updates=$updates" "tokens_per_update=$tokens" "seed=$seed" "flags=$*"

flags=("$bin" --source-lang de --target-lang en --arch "$arch" --dropout "$dropout"
  --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0001 --clip-norm "$clip"
  --lr "$rate" --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 --max-update "$updates"
  --keep-last-epochs "$keep" "${criterion[@]}" "${direction_flags[@]}"
  "${row_flags[@]}" "${trial_flags[@]}")
note_row
if [[ "$bidirectional" == 0 ]]; then follow_validation; fi
step "$run" train "train $name ($updates updates)" train_model "$run" "${flags[@]}" "$@"
