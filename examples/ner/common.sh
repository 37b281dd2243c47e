# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_tagging_recipe ner 'PROFILE=published|small'
choose_profile small "${PROFILE:-}"

data=$work_dir/data$vectors_suffix

choose_run() { # sets run for $model and $seed
  choose_tagger
  run=$work_dir/$model$tagger_suffix$profile_suffix$vectors_suffix-seed$seed
}
