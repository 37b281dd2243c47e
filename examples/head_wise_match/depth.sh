#!/usr/bin/env bash
# How deep the encoder should be (the paper's Figure 2): classic, single-level and multi-level match on 1, 2, 3 and 4 of its layers.
#
#   DATASET=sick ENCODER=transformer bash examples/head_wise_match/depth.sh          after prepare.sh, with the same settings
#   DATASET=snli BERT_DIR=.../bert-large-uncased ALL_LAYERS="4 8 12 16 20 24" bash examples/head_wise_match/depth.sh
#
#   ALL_LAYERS="1 2 3 4"   of BERT the lowest ones; other encoders are built with so many
# Writes DEPTH-<encoder>.md and depth-<encoder>.svg into WORK_DIR/<data set>: accuracy on the test pairs, which chooses nothing here;
# and evaluate.sh's table for each depth, RESULTS-layers<n>.md.
# Finished models are skipped. Arguments go to fairseq-train.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
unset LAYERS
export TABLE=2
read -r -a all_layers <<<"${ALL_LAYERS:-1 2 3 4}"
# shellcheck source=examples/head_wise_match/common.sh
. "$here/common.sh"

for number in "${all_layers[@]}"; do
  LAYERS=$number bash "$here/train.sh" "$@"
  LAYERS=$number bash "$here/evaluate.sh" >/dev/null
done
results=()
test_set=$([[ "$dataset" == mnli ]] && echo matched || echo test)
for layers in "${all_layers[@]}"; do for_each_system collect_results "$test_set"; done
name=${ENCODER:-bert}
name=${name// /-}$vectors_suffix
python "$here/plot_depth.py" "${results[@]}" --table "$work_dir/$dataset/DEPTH-$name.md" --output "$work_dir/$dataset/depth-$name.svg"
printf '%s: written: %s\n' "$recipe" "$work_dir/$dataset/DEPTH-$name.md and depth-$name.svg"
