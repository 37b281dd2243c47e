#!/usr/bin/env bash
# Tests the best epoch of the models that train.sh made.
#
#   bash examples/sst/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/test.json and shows all of them in one table. Arguments go to `muse-plugin score-labels`:
# --length-buckets 10,20,30, or --versus OTHER_RUN/predictions/test.jsonl for McNemar's test.
set -euo pipefail
# shellcheck source=examples/sst/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

results=()
for_each_run test_run "$@"
if [[ "$kind" == fine ]]; then
  show_published 'on the test split: MS-Trans 51.9, Transformer 50.4, BiLSTM 49.8'
fi
printf '\n'
python "$recipe_tools/results_table.py" "${results[@]}" | sed -n '/^|/p'
