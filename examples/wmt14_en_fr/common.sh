# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh and evaluate.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/recipe.sh
. "$here/../recipe/recipe.sh"
recipe=wmt14_en_fr
[[ -z "${AVERAGED:-}${KEEP:-}" ]] ||
  fail "AVERAGED and KEEP must not be set: one checkpoint is tested here, and CHECKPOINT says which; unset them."
[[ "${BPE_DROPOUT:-0}" == 0 ]] ||
  fail "BPE_DROPOUT must be unset, since pairs are cleaned here after they are cut into subwords, but is '$BPE_DROPOUT'."
start_recipe wmt14_en_fr "muse muse_simple transformer" 'VALID=held-out|newstest' 'CHECKPOINT=best|last'

data=$work_dir/data
bin=$data/bin
valid=${VALID:-held-out}
usual_data=(merges=40000) # others are on the record of a run
text_flags=(--normalize --aggressive-hyphens) # of newstest2014 the punctuation is not normalised
choose_criterion "$data"
