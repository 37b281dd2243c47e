# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe sst "$sentence_models" 'BINARY=0|1' 'TREES=0|1' WORD_DROPOUT=share HIDDEN=whole ALPHA=number ALPHAS+=number

kind=$([[ "${BINARY:-0}" == 0 ]] && echo fine || echo binary)
trees=${TREES:-0}
kind_name=$kind$([[ "$trees" == 0 ]] || printf -- '-trees')
data=$work_dir/$kind_name/data$vectors_suffix

check_scales() { # check_scales NAME VALUE
  [[ "$2" =~ ^((N/)?[0-9]+|N|all)(,((N/)?[0-9]+|N|all))*$ ]] ||
    fail "$1 must be numbers, fractions of the sentence such as N/8, N or all, with commas between, but is '$2'."
}

# Which windows the heads have (arXiv:1912.00544, Table 6): ALPHA, or SCALES=N/8 for one scale in all heads.
scale_flags=()
scale_suffix=
if [[ -n "${ALPHA:-}${SCALES:-}" ]]; then
  [[ "${models[*]}" == multi_scale_transformer ]] || fail "ALPHA and SCALES need MODEL=multi_scale_transformer, but it is '${models[*]}'."
  if [[ -n "${ALPHA:-}" ]]; then
    scale_flags+=(--encoder-attention-scale-alpha "$ALPHA")
    scale_suffix+=-alpha$ALPHA
  fi
  if [[ -n "${SCALES:-}" ]]; then
    check_scales SCALES "$SCALES"
    scale_flags+=(--encoder-attention-scales "$SCALES")
    scale_suffix+=-scales${SCALES//[\/,]/_}
  fi
fi

# Against words that training has not: a tenth of its words is read as unknown.
choose_regularisation "${WORD_DROPOUT:-0.1}" 0.1 "${HIDDEN:-}" ""

choose_run() { # sets run for $model and $seed
  run=$work_dir/$kind_name/$model$scale_suffix$regular_suffix$vectors_suffix-seed$seed
}
