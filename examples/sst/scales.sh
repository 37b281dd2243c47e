#!/usr/bin/env bash
# What the scales are worth (arXiv:1912.00544, Table 6, there on SNLI): trains and tests five alphas and four single scales.
#
#   bash examples/sst/scales.sh                       after prepare.sh, with the same settings
#   SEEDS="1 2 3" TREES=1 bash examples/sst/scales.sh
#
#   ALPHAS="1 0.5 0 -0.5 -1"      alphas, each with the scales 1, 3, N/16, N/8, N/4
#   SINGLES="3 N/16 N/8 N/4"      all heads of all layers have this one scale
# Writes WORK_DIR/<kind>/SCALES.md (WORD_DROPOUT, HIDDEN and WORD_VECTORS are part of the name). Finished models are skipped. Arguments go to fairseq-train.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
export MODEL=multi_scale_transformer
unset MODELS ALPHA SCALES
read -r -a alphas <<<"${ALPHAS-1 0.5 0 -0.5 -1}"
read -r -a singles <<<"${SINGLES-3 N/16 N/8 N/4}"

# shellcheck source=examples/sst/common.sh
. "$here/common.sh"
for scale in "${singles[@]}"; do check_scales SINGLES "$scale"; done

run_variant() { # run_variant NAME=VALUE FLAGS...
  local setting=$1
  shift
  env "$setting" bash "$here/train.sh" "$@"
  env "$setting" bash "$here/evaluate.sh" >/dev/null
}

for alpha in "${alphas[@]}"; do run_variant "ALPHA=$alpha" "$@"; done
for scale in "${singles[@]}"; do run_variant "SCALES=$scale" "$@"; done
results=()
for alpha in "${alphas[@]}"; do
  scale_suffix=-alpha$alpha
  for_each_run collect_results test
done
for scale in "${singles[@]}"; do
  scale_suffix=-scales${scale//[\/,]/_}
  for_each_run collect_results test
done
table=$work_dir/$kind_name/SCALES$regular_suffix$vectors_suffix.md
python "$recipe_tools/results_table.py" "${results[@]}" --output "$table"
sed -n '/^|/p' "$table"
show_published 'SNLI, 3 layers, 5 heads: alpha 1, 0.5, 0, -0.5, -1: 85.5, 85.9, 84.9, 84.7, 84.3; one scale 3, N/16, N/8, N/4: 84.3, 83.9, 81.7, 80.7'
printf '%s: written: %s\n' "$recipe" "$table"
