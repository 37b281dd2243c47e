# shellcheck shell=bash disable=SC2034,SC2154 # what is set here is used by the scripts that source it; they set the rest
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
all_domains="apparel baby books camera_photo dvd electronics health_personal_care imdb kitchen_housewares magazines MR music software sports_outdoors toys_games video"
start_sentence_recipe mtl16 "$sentence_models" "DOMAIN+=all $all_domains" 'TEST=official|held-out' 'CLEAN=0|1' MAX_WORDS=count WORD_DROPOUT=share HIDDEN=whole
chosen=${DOMAIN:-all}
[[ "$chosen" == all || " $chosen " != *' all '* ]] || fail "DOMAIN must be all or some of them, but is '$chosen'; give one of both."
read -r -a domains <<<"${chosen/#all/$all_domains}"
choose_regularisation "${WORD_DROPOUT:-0}" 0 "${HIDDEN:-}" ""

choose_data() { # sets data for $domain
  data=$work_dir/$domain/data$vectors_suffix
}

choose_run() { # sets run for $domain, $model and $seed
  choose_data
  run=$work_dir/$domain/$model$regular_suffix$vectors_suffix-seed$seed
}
