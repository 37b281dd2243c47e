#!/usr/bin/env bash
# Tests the best epoch of the models that train.sh made.
#
#   DATASET=sick bash examples/snli/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/train.json and test.json (DATASET=mnli: matched.json and mismatched.json) and shows all of them in one table, with
# the seconds of an epoch. Arguments go to `muse-plugin score-labels` for test sets: --length-buckets 10,20,30, or
# --versus OTHER_RUN/predictions/test.jsonl for McNemar's test.
set -euo pipefail
# shellcheck source=examples/snli/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

evaluate() {
  choose_run
  evaluate_run "$run" train train
  results+=("$run/results/train.json")
  test_run "$@"
}

results=()
for_each_run evaluate "$@"
case "$dataset" in
  snli)
    show_published 'MS-Trans 85.9, Transformer 82.2, BiLSTM 83.3, DiSAN 85.6, distance-based self-attention 86.3 (without the mask 86.0)'
    ;;
  mnli)
    show_published 'on the hidden test sets (matched, mismatched): DiSAN 71.0, 71.4; distance-based self-attention 74.1, 72.9'
    ;;
esac
printf '\n'
python "$recipe_tools/results_table.py" "${results[@]}" | sed '/^- /,$d'
