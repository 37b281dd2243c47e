# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe wmt14_en_de "muse muse_simple transformer" 'SUBSET=test|valid'
choose_keep 20

data=$work_dir/data
bin=$data/bin
usual_data=(merges=32000) # others are on the record of a run
text_flags=() # of corpus.py tokenize: none
choose_criterion "$data"
