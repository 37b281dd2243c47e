#!/usr/bin/env bash
# Tests the best epoch of each model that train.sh made, and compares the models over the domains.
#
#   DOMAIN=apparel bash examples/mtl16/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/<domain>.json and WORK_DIR/RESULTS.md (compare.py; WORD_VECTORS, WORD_DROPOUT, HIDDEN and BASELINE are part of the name):
# a row per domain next to the paper's numbers (not for trials), and with several models paired tests over the domains.
# Arguments go to `muse-plugin score-labels`: --length-buckets 50,100,200
set -euo pipefail
# shellcheck source=examples/mtl16/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

evaluate() {
  choose_run
  evaluate_run "$run" test "$domain" "$@"
  results+=("$run/results/$domain.json")
}

results=()
for domain in "${domains[@]}"; do for_each_run evaluate "$@"; done
table=$work_dir/RESULTS$floor_suffix$regular_suffix$vectors_suffix.md
python "$here/compare.py" "${results[@]}" --published "$here/published.tsv" --output "$table"
printf '%s: compared: %s\n' "$recipe" "$table"
