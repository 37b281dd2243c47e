#!/usr/bin/env bash
# Makes the pictures of README.md: the quickstart's model, and a Transformer of the same size trained in the same way.
#
#   bash examples/gallery/make.sh             trains both if they are not there (six minutes each on two cores)
#
#   QUICKSTART_DIR=...   where the quickstart ran (default: runs/quickstart), the Transformer goes to ...-transformer
#   WORK_DIR=...         where the analyses are written (default: runs/gallery); the report.html of each folder has its figures
#   PICTURES_DIR=...     where the chosen pictures go (default: examples/gallery)
#   SENTENCE=133         number of the test sentence whose attention is shown
#   FAST_TRIAL=1         tiny training of the quickstart, to see that all of it works; its pictures go to WORK_DIR/pictures
#   SKIP_SETUP=1         use the python on the PATH as it is
set -euo pipefail

recipe=gallery
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
# For --help and fail.
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
(($# == 0)) || fail "it takes settings from the environment, but got the arguments '$*'; see --help."
# shellcheck source=scripts/environment.sh
. "$root/scripts/environment.sh"
set_up_repository
export SKIP_SETUP=1

FAST_TRIAL=${FAST_TRIAL:-${TRIAL:-}} # the recipes call it TRIAL
suffix='' sentence=133
if [[ "${FAST_TRIAL:-0}" == 1 ]]; then suffix=-trial sentence=1; fi
muse_dir=${QUICKSTART_DIR:-$root/runs/quickstart$suffix}
transformer_dir=$muse_dir-transformer
work_dir=${WORK_DIR:-$root/runs/gallery$suffix}
pictures_dir=${PICTURES_DIR:-$([[ -z "$suffix" ]] && echo "$here" || echo "$work_dir/pictures")}
mkdir -p "$work_dir" "$pictures_dir"

# It gives 1 where the score is not the expected one: said, and no reason to stop.
RUN_DIR=$muse_dir bash "$root/examples/quickstart/run.sh" || (($? == 1))
RUN_DIR=$transformer_dir ARCH=plain_transformer_tiny bash "$root/examples/quickstart/run.sh" || (($? == 1))

muse=(--path "$muse_dir/model/checkpoint_avg.pt" --name MUSE)
transformer=(--against "$transformer_dir/model/checkpoint_avg.pt" --against-name Transformer)
python -m muse_plugin.cli analyze model "${muse[@]}" "${transformer[@]}" --data "$muse_dir/bin" --split test --cpu \
  --sentence "${SENTENCE:-$sentence}" --output "$work_dir/model"
python -m muse_plugin.cli analyze training --logs "$muse_dir/train.log" "$transformer_dir/train.log" \
  --names MUSE Transformer --output "$work_dir/training"
python -m muse_plugin.cli evaluate --generation-log "$muse_dir/generated/generate-test.txt" --name MUSE \
  --versus "$transformer_dir/generated/generate-test.txt" --versus-name Transformer --length-buckets 5,8,11 \
  --length-intervals --plot "$work_dir/bleu_by_length.png" --output "$work_dir/bleu_by_length.json"

chosen=(gates kernels attention_map_cross attention_map_encoder attention_distance distance_distribution concentration)
pictures=("${chosen[@]/#/$work_dir/model/}")
pictures=("${pictures[@]/%/.png}" "$work_dir/training/training.png" "$work_dir/bleu_by_length.png")
if python -c 'import playwright' 2>/dev/null; then
  python "$here/screenshot.py" --path "$muse_dir/model" --sentence "Er hat vor, ein neues Fahrrad zu kaufen." \
    --output "$work_dir/view.png"
  pictures+=("$work_dir/view.png")
else
  printf 'gallery: view.png is left out, for playwright is missing; run: pip install playwright\n'
fi
python "$here/shrink.py" --output "$pictures_dir" "${pictures[@]}"
