# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe snli

dataset=${DATASET:-sick}
case "$dataset" in
  sick | snli | snli-small) ;;
  *) fail "DATASET must be sick, snli or snli-small, but is '$dataset'." ;;
esac
data=$work_dir/$dataset/data$vectors_suffix

choose_run() { # sets run for $model and $seed
  run=$work_dir/$dataset/$model$vectors_suffix-seed$seed
}
