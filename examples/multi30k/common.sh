# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe multi30k

target=${TARGET_LANG:-de}
case "$target" in
  de | fr) ;;
  *) fail "TARGET_LANG must be de or fr, but is '$target'." ;;
esac
data=$work_dir/en-$target
# fairseq calls them test, test1 and test2
tests=(test_2016_flickr test_2017_flickr test_2017_mscoco)

choose_criterion "$data"
name=$model$name_suffix
run=$work_dir/en-$target-$name-seed$seed
