#!/usr/bin/env bash
# Tests the best epoch of the models that train.sh made, and compares them.
#
#   DATASET=snli TABLE=4 bash examples/head_wise_match/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results/<test set>.json and WORK_DIR/<data set>/RESULTS.md (compare.py; BASELINE, LAYERS and WORD_VECTORS are part of the
# name): a row per system with mean and deviation over seeds next to the paper's number. Of qqp and mrpc also F1 of the positive
# label, of wikiqa MAP and MRR. Arguments go to `muse-plugin score-labels`: --length-buckets 10,20,30, or --versus
# OTHER_RUN/predictions/test.jsonl for McNemar's test.
set -euo pipefail
# shellcheck source=examples/head_wise_match/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
find_devices

score_flags=()
case "$dataset" in
  qqp | qqp-small) score_flags=(--positive duplicate) ;;
  mrpc) score_flags=(--positive paraphrase) ;;
  wikiqa) score_flags=(--positive right --group "$text_dir/text/test.groups") ;;
esac

results=()
for_each_system test_run "${score_flags[@]}" "$@"
table=$work_dir/$dataset/RESULTS$floor_suffix${layers:+-layers$layers}$vectors_suffix.md
python "$here/compare.py" "${results[@]}" --published "$here/published.tsv" --output "$table"
printf '\n'
sed -n '/^|/p' "$table"
printf '\n%s: compared: %s\n' "$recipe" "$table"
