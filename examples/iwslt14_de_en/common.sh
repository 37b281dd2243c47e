# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
start_recipe iwslt14_de_en "muse muse_simple transformer transformer_usual dynamicconv" 'BIDIRECTIONAL=0|pretrain|finetune' \
  "ROW=help $(list_rows)" 'DICTIONARY=own|joined'
choose_row

data=$work_dir/data
dictionary=${DICTIONARY:-own} # of each language, or one of both
if [[ "$dictionary" == joined && "$joint" == 0 ]]; then fail "DICTIONARY=joined needs joint subwords, but JOINT is 0; set one of them."; fi
usual_data=(merges=10000) # others are on the record of a run
text_flags=(--lower-case) # corpus.py tokenize is given them, too
choose_criterion "$data"
choose_directions "${row:-$model}" '' "$data/bin-joined"
