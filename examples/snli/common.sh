# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe snli "$sentence_models" 'DATASET=sick|snli|snli-small|mnli|scitail|scitail-small' DISTANCE_ALPHA=number

dataset=${DATASET:-sick}
data=$work_dir/$dataset/data$vectors_suffix
# Two data sets have files of the same names.
if [[ "$dataset" == scitail-small ]]; then raw_dir=${RAW_DIR:-$work_dir/raw/scitail-small}; fi

distance_alpha=${DISTANCE_ALPHA:-}
if [[ -n "$distance_alpha" && "${models[*]}" != distance_attention_network ]]; then
  fail "DISTANCE_ALPHA needs MODEL=distance_attention_network, the only model with a distance mask, but MODELS is '${models[*]}'."
fi

choose_run() { # sets run for $model and $seed
  run=$work_dir/$dataset/$model${distance_alpha:+-alpha$distance_alpha}$vectors_suffix-seed$seed
}
