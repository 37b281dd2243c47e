# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe iwslt15_en_vi "muse muse_simple transformer transformer_usual"

data=$work_dir/data
bin=$data/bin
usual_data=(merges=10000) # others are on the record of a run
text_flags=(--tokenizer none --detokenize) # the files are tokenised already
choose_criterion "$data"
