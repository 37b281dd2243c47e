#!/usr/bin/env bash
# What the number of heads is worth: trains a model with 1, 5, 10, 15 and 20 heads, draws validation accuracy by epoch.
#
#   bash examples/documents/heads.sh                             after prepare.sh, with the same settings
#   DATASET=imdb MODELS="lama_context lama" SEEDS="1 2 3" bash examples/documents/heads.sh
#
#   ALL_HEADS="1 5 10 15 20"
# One head cannot learn where to look (README.md); the published setting is kept, and a warning says so.
# Writes HEADS.md and heads.svg into WORK_DIR/<data set> (a penalty and other vectors are part of the name). Finished models are
# skipped. Arguments go to fairseq-train.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
unset HEADS
read -r -a all_heads <<<"${ALL_HEADS:-1 5 10 15 20}"
# shellcheck source=examples/documents/common.sh
. "$here/common.sh"

for number in "${all_heads[@]}"; do
  HEADS=$number bash "$here/train.sh" "$@"
  HEADS=$number bash "$here/evaluate.sh" >/dev/null
done
results=()
for heads in "${all_heads[@]}"; do for_each_fold for_each_run collect_results valid; done
table=$tables_dir/HEADS$variant.md
python "$here/plot_heads.py" "${results[@]}" --table "$table" --output "$tables_dir/heads$variant.svg"
printf '%s: written: %s and %s\n' "$recipe" "$table" "heads$variant.svg"
