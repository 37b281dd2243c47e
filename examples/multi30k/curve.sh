#!/usr/bin/env bash
# BLEU of the validation pairs against minutes of training: translates them with each epoch's checkpoint of a training (train.sh).
#
#   MODEL=muse bash examples/multi30k/curve.sh      the same settings as for train.sh
#
# Draws all trainings of the language that it was called for: WORK_DIR/en-de-curve.md and en-de-curve.svg. Minutes are those of the
# updates alone, as fairseq logs them (train_wall); compare trainings that had the same machine to themselves. The last KEEP epochs
# have checkpoints. Arguments go to fairseq-generate.
set -euo pipefail
# shellcheck source=examples/multi30k/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
keep_settings "$run/curve" "generate_flags=$*"
evaluation=("flags=$*")

count_minutes() { # count_minutes EPOCH: of training until its end; what was interrupted and logged again counts once
  list_epoch_seconds "$run/train.log" |
    awk -v last="$1" '$1 <= last { wall[$1] = $2 } END { for (epoch in wall) sum += wall[epoch]; printf "%.2f", sum / 60 }'
}

translate() { # translate EPOCH CHECKPOINT FLAGS...
  generate "$run/curve/$1" valid "$data/bin" --path "$2" --task translation --beam 5 --batch-size 100 "${@:3}"
  score "$run" "$run/curve/$1/generated/generate-valid.txt" "$run/curve/$1.json" --target-lang "$target" --lowercase \
    --record "test_set=valid" --record "system=$name" --record "epoch=$1" --record "minutes=$(count_minutes "$1")"
}

for checkpoint in "$run"/checkpoints/checkpoint[0-9]*.pt; do
  [[ -e "$checkpoint" ]] || fail "there is no checkpoint of an epoch in $run/checkpoints; train with KEEP set to the epochs."
  epoch=${checkpoint##*/checkpoint}
  epoch=${epoch%.pt}
  step "$run/curve" "$epoch" "translate the validation pairs after epoch $epoch" translate "$epoch" "$checkpoint" "$@"
done
python "$here/plot_curve.py" "$work_dir/en-$target"-*/curve/*.json --table "$work_dir/en-$target-curve.md" \
  --output "$work_dir/en-$target-curve.svg"
