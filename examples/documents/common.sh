# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh, evaluate.sh and heads.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
start_sentence_recipe documents "lama_context lama lama_encoder sentence_structured_attention sentence_bigru sentence_cnn sentence_transformer sentence_average" \
  'DATASET=r8|imdb|news' FOLDS=count FOLD_SEED=whole WORD2VEC=whole HEADS=count ALL_HEADS+=count MAX_WORDS=count 'DISAGREEMENT=none|penal|emb' 'OPTIMIZER=sgd|adam' 'UNKNOWN_WORDS=drop|keep' WORD_DROPOUT=share HIDDEN=whole

dataset=${DATASET:-r8}
raw_dir=${RAW_DIR:-$work_dir/raw/$dataset}

# Folds of the training documents for cross-validation; 1 holds out a part of them instead.
folds=${FOLDS:-1}
fold_numbers=(0)
if ((folds > 1)); then read -r -a fold_numbers <<<"$(seq -s ' ' 1 "$folds")"; fi

# Word vectors: trained on the training documents, unless WORD_VECTORS names a file or WORD2VEC=0.
usual_width=100
if [[ "$trial" == 1 ]]; then usual_width=16; fi
word2vec=${WORD2VEC:-$usual_width}
if [[ -n "$vectors" ]]; then
  [[ "${WORD2VEC:-0}" == 0 ]] || fail "WORD2VEC trains vectors and WORD_VECTORS names a file of them, but both are set; unset one."
  word2vec=0
elif ((word2vec == 0)); then
  vectors_suffix=-no-vectors
elif ((word2vec != usual_width)); then
  vectors_suffix=-word2vec$word2vec
fi

heads=${HEADS:-}
disagreement=${DISAGREEMENT:-none}
if [[ -n "$heads" || "$disagreement" != none ]]; then
  for name in "${models[@]}"; do
    case "$name" in
      lama* | sentence_structured_attention) ;;
      *) fail "HEADS and DISAGREEMENT need a model with heads: lama_context, lama, lama_encoder or sentence_structured_attention, but MODELS has '$name'." ;;
    esac
  done
fi

# Where the tables of all folds and seeds go, and what tells them and the runs of a penalty or other vectors apart.
tables_dir=$work_dir/$dataset
if ((folds > 1)); then tables_dir+=/folds$folds; fi
optimizer=${OPTIMIZER:-sgd}
unknown_words=${UNKNOWN_WORDS:-drop}
choose_regularisation "${WORD_DROPOUT:-0}" 0 "${HIDDEN:-512}" 512
variant=$regular_suffix$vectors_suffix
if [[ "$unknown_words" != drop ]]; then variant=-unknown$variant; fi
if [[ "$optimizer" != sgd ]]; then variant=-$optimizer$variant; fi
if [[ "$disagreement" != none ]]; then variant=-$disagreement$variant; fi

choose_data() { # sets data for $fold, 0 without cross-validation
  local part=$dataset
  if ((fold > 0)); then part+=/folds$folds/fold$fold; fi
  data=$work_dir/$part/data$vectors_suffix
}

choose_run() { # sets run for $fold, $model and $seed
  choose_data
  run=${data%/data*}/$model${heads:+-heads$heads}$variant-seed$seed
}

for_each_fold() { # for_each_fold COMMAND...: once for every fold, in $fold
  for fold in "${fold_numbers[@]}"; do "$@"; done
}
