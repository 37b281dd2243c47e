# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe snli "$sentence_models" 'DATASET=sick|snli|snli-small|mnli|scitail|scitail-small' DISTANCE_ALPHA=number 'PRE_NORM=0|1' \
  'PROFILE=published|small'

dataset=${DATASET:-sick}
case "$dataset" in
  sick | *-small) choose_profile small "${PROFILE:-}" ;;
  *) choose_profile published "${PROFILE:-}" ;;
esac
data=$work_dir/$dataset/data$vectors_suffix
# Two data sets have files of the same names.
if [[ "$dataset" == scitail-small ]]; then raw_dir=${RAW_DIR:-$work_dir/raw/scitail-small}; fi

distance_alpha=${DISTANCE_ALPHA:-}
if [[ -n "$distance_alpha" && "${models[*]}" != distance_attention_network ]]; then
  fail "DISTANCE_ALPHA needs MODEL=distance_attention_network, the only model with a distance mask, but MODELS is '${models[*]}'."
fi

pre_norm=${PRE_NORM:-0} pre_norm_suffix=
if [[ "$pre_norm" != 0 ]]; then pre_norm_suffix=-pre-norm; fi
if [[ "$pre_norm" != 0 && ! "${models[*]}" =~ ^sentence_(transformer|muse)( sentence_(transformer|muse))*$ ]]; then
  fail "PRE_NORM=1 needs models that normalise before or after their branches, sentence_transformer or sentence_muse, but MODELS is '${models[*]}'."
fi

choose_run() { # sets run for $model and $seed
  run=$work_dir/$dataset/$model${distance_alpha:+-alpha$distance_alpha}$pre_norm_suffix$profile_suffix$vectors_suffix-seed$seed
}
