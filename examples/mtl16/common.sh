# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe mtl16

all_domains="apparel baby books camera_photo dvd electronics health_personal_care imdb kitchen_housewares magazines MR music software sports_outdoors toys_games video"
domains=()
for domain in ${DOMAIN:-all}; do
  if [[ "$domain" == all ]]; then
    read -r -a domains <<<"$all_domains"
  elif [[ " $all_domains " == *" $domain "* ]]; then
    domains+=("$domain")
  else
    fail "DOMAIN must be all or some of $all_domains, but is '$domain'."
  fi
done

choose_data() { # sets data for $domain
  data=$work_dir/$domain/data$vectors_suffix
}

choose_run() { # sets run for $domain, $model and $seed
  choose_data
  run=$work_dir/$domain/$model$vectors_suffix-seed$seed
}
