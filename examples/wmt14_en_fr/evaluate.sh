#!/usr/bin/env bash
# Translates newstest2014 with one checkpoint of a training (train.sh; no averaging, beam 5, length penalty 0.8), scores it.
#
#   MODEL=muse bash examples/wmt14_en_fr/evaluate.sh      the same settings as for train.sh
#
#   CHECKPOINT=last      the last checkpoint, as the paper's text says; the default is the best, as in the authors' command
#
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results.json. The last line says whether tokenised BLEU lies in the expected interval; if not, the exit code is 1.
set -euo pipefail
# shellcheck source=examples/wmt14_en_fr/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
checkpoint=${CHECKPOINT:-best}
kept=()
if [[ "$checkpoint" != best ]]; then kept=("checkpoint=$checkpoint"); fi
keep_evaluation "$run" "${kept[@]}" "flags=$*"
evaluation=("checkpoint=$checkpoint" "flags=$*") # on record also where it is the usual one
step "$run" model "write the model folder" save_model "$run" "$run/checkpoints/checkpoint_$checkpoint.pt" "$data" "$bin" en fr
step "$run" generate "translate newstest2014" generate "$run" test "$bin" --path "$run/checkpoints/checkpoint_$checkpoint.pt" \
  --task translation --source-lang en --target-lang fr --beam 5 --lenpen 0.8 --batch-size 128 "$@"

case "$model" in # published, half a point to either side
  muse) expected=(43.5 43.0 44.0) ;;
  muse_simple) expected=(43.2 42.7 43.7) ;;
  transformer) expected=(42.9 42.4 43.4) ;;
esac
judge "$recipe, $model" "${expected[@]}" checkpoint=last valid=newstest updates=80000 tokens_per_update=655360
score "$run" "$run/generated/generate-test.txt" "$run/results.json" --target-lang fr
