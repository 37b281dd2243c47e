#!/usr/bin/env bash
# Tests the best epoch of the taggers that train.sh made.
#
#   CHARACTERS=cnn bash examples/pos_tagging/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/test.json and shows all of them in one table. Arguments go to `muse-plugin score-labels`:
# --length-buckets 10,20,30, or --versus OTHER_RUN/predictions/test.jsonl for McNemar's test.
set -euo pipefail
# shellcheck source=examples/pos_tagging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

results=()
for_each_run test_run "$@"
printf '\n'
python "$recipe_tools/results_table.py" "${results[@]}" | sed -n '/^|/p'
