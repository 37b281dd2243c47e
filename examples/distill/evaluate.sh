#!/usr/bin/env bash
# Averages the last 10 checkpoints of a student (train.sh); then scores and times the teacher and all students evaluated so far.
#
#   LAYERS=12-1 bash examples/distill/evaluate.sh      the same settings as for train.sh
#
#   AVERAGED=10     checkpoints
#   BATCH=32        sentences that are translated at once while the time is taken
# Writes RUN/model, which `muse-plugin translate --path` and `muse-plugin export` take; and WORK_DIR/frontier.json, frontier.md and
# frontier.svg: BLEU against sentences per second on one thread, beam 5 and 1, float32 and int8, ours and CTranslate2 (if installed).
# Nothing else should run meanwhile; systems take turns after every batch. Arguments go to frontier.py, e.g. --sentences 200.
set -euo pipefail
# shellcheck source=examples/distill/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check_trained "$run"
average_run update "$teacher_data" "$data/bin" "$source" "$target"

systems=("teacher=$teacher_run/model")
for folder in "$work_dir"/students/*/model; do
  student=${folder%/model}
  if [[ -e "$student/.model.done" ]]; then systems+=("${student##*/}=$folder"); fi
done
if [[ "$trial" == 1 ]]; then set -- --sentences 10 "$@"; fi # what has hardly been trained does not know when to stop
OMP_NUM_THREADS=1 python "$here/frontier.py" "${systems[@]}" --source "$teacher_data/bpe/$test.$source" \
  --reference "$teacher_data/text/$test.$target" --batch "${BATCH:-32}" --output "$work_dir" "$@"
