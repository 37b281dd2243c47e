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
text_flags=(--lower) # as corpus.py tokenize is given them
choose_criterion "$data"
# 0, or pretrain (both directions at once), or finetune (German to English, from what pretrain has learnt)
bidirectional=${BIDIRECTIONAL:-0}
if [[ "$bidirectional" != 0 && -n "$row" ]]; then fail "ROW=$row is trained in one direction, but BIDIRECTIONAL is $bidirectional; set one of them."; fi
if [[ "$bidirectional" != 0 && "$joint" == 0 ]]; then fail "BIDIRECTIONAL=$bidirectional needs joint subwords, but JOINT is 0."; fi
pretrained=$work_dir/$model-bidirectional-pretrain-seed$seed
case "$bidirectional" in
  0) name=${row:-$model}$name_suffix bin=$data/bin prepared=binarise ;;
  pretrain) name=$model-bidirectional-pretrain bin=$data/bin-both prepared=binarise-both ;;
  finetune) name=$model-bidirectional$name_suffix bin=$data/bin-joined prepared=binarise-both ;;
esac
run=$work_dir/$name-seed$seed
