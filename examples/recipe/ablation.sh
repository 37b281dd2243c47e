#!/usr/bin/env bash
# Trains and evaluates rows of MUSE's Tables 2, 3 and 5 to 7 under several seeds and puts them next to the published scores.
#
#   ROWS="muse muse_simple separate_depthconv_3" SEEDS="1 2 3" bash examples/recipe/ablation.sh
#   RECIPE=multi30k PROFILE=cpu SEEDS=1 bash examples/recipe/ablation.sh     the same at Multi30k's sizes
#
#   ROWS=...     out of those that ROW=help of the recipe prints (default: those of Table 6)
#   RECIPE=...   iwslt14_de_en (default) or multi30k; its own settings (WORK_DIR, TRIAL, PROFILE, NUM_GPUS ...) hold as well
# Data are prepared once, finished runs are not done again, arguments go to train.sh. Hours: rows x seeds x those of the recipe.
# Prints the table and writes it to WORK_DIR/ablation.md. The exit code is 1 if a score is outside of its row's interval.
# Smallest trial: TRIAL=1 ROWS="muse no_ffn" SEEDS=1, minutes.
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$tools/recipe.sh"
recipe=ablation
check_settings 'RECIPE=iwslt14_de_en|multi30k' SEEDS+=whole "ROWS+=$(list_rows)"
[[ -z "${ROW:-}${MODEL:-}${SEED:-}" ]] || fail "ROWS and SEEDS say what is trained, but ROW, MODEL or SEED is set as well; unset it."
folder=$tools/../${RECIPE:-iwslt14_de_en}
# shellcheck disable=SC2016 # the dollar signs are awk's
read -r -a rows <<<"${ROWS:-$(read_rows 'if ($2 ~ /6/) printf "%s ", $1')}"
read -r -a seeds <<<"${SEEDS:-1 2 3}"
unset SEEDS # the recipes read SEED

find_run() ( # find_run ROW SEED: the folder of a run, by the recipe's own settings; refuses a row that is none of the recipe
  # shellcheck disable=SC2030 # for this function alone
  export ROW=$1 SEED=$2
  # shellcheck source=examples/iwslt14_de_en/common.sh
  . "$folder/common.sh" >&2
  printf '%s\n' "${run:?is set by common.sh}"
)

for row in "${rows[@]}"; do find_run "$row" 1 >/dev/null; done # before anything starts
bash "$folder/prepare.sh"
outside=0 runs=()
for row in "${rows[@]}"; do
  for seed in "${seeds[@]}"; do
    # shellcheck disable=SC2031
    export ROW=$row SEED=$seed
    bash "$folder/train.sh" "$@"
    code=0
    bash "$folder/evaluate.sh" || code=$?
    if ((code > 1)); then exit "$code"; fi
    if ((code == 1)); then outside=1; fi
    runs+=("$row=$(find_run "$row" "$seed")")
  done
done
unset ROW SEED
run=${runs[0]#*=}
# shellcheck source=scripts/environment.sh
. "$tools/../../scripts/environment.sh"
enter_repository
python "$tools/ablation_table.py" "${runs[@]}" --recipe "${RECIPE:-iwslt14_de_en}" --output "${run%/*}/ablation.md"
exit "$outside"
