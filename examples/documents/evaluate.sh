#!/usr/bin/env bash
# Tests the best epoch of the models that train.sh made.
#
#   DATASET=r8 FOLDS=3 bash examples/documents/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/valid.json and test.json, and WORK_DIR/<data set>/RESULTS.md (with FOLDS=3 .../folds3/RESULTS.md; HEADS,
# DISAGREEMENT, BASELINE and other vectors are part of the name): accuracy on the test documents over folds and seeds, that of the
# run with the best validation, and the published number (compare.py).
# Arguments go to `muse-plugin score-labels`: --length-buckets 50,100,200
set -euo pipefail
# shellcheck source=examples/documents/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

evaluate() {
  choose_run
  evaluate_run "$run" valid valid "$@"
  evaluate_run "$run" test test "$@"
  results+=("$run/results/valid.json" "$run/results/test.json")
}

results=()
for_each_fold for_each_run evaluate "$@"
table=$tables_dir/RESULTS$floor_suffix${heads:+-heads$heads}$variant.md
python "$here/compare.py" "${results[@]}" --published "$here/published.tsv" --output "$table"
cat "$table"
printf '%s: compared: %s\n' "$recipe" "$table"
