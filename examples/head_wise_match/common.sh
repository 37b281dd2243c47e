# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What prepare.sh, train.sh, evaluate.sh and depth.sh of this recipe agree on.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=examples/recipe/sentence_recipe.sh
. "$here/../recipe/sentence_recipe.sh"
recipe=head_wise_match
encoders="bert transformer multi_scale muse translation"

if [[ -n "${MODEL:-}${MODELS:-}" ]]; then
  fail "the models of this recipe are named by ENCODER (one or more of $encoders), but MODEL or MODELS is set to '${MODELS:-${MODEL:-}}'."
fi
start_sentence_recipe head_wise_match "$encoders" "ENCODER+=$encoders" \
  "DATASET=snli mnli qqp qqp-small squad_binary mrpc sick qnli qnli-small wikiqa" 'TABLE=2|4' 'MATCH=element|cosine|bilinear|classic' \
  'AGGREGATION=max|concat' 'HIERARCHY=0|1' MATCH_DROPOUT=share 'LOWER_CASE=0|1' \
  LAYERS=count ALL_LAYERS+=count
read -r -a models <<<"${ENCODER:-bert}"
choose_baseline
[[ "${LOWER_CASE:-1}" == 1 || " ${models[*]} " == *" translation "* ]] ||
  fail "LOWER_CASE=0 is for ENCODER=translation, but ENCODER is '${models[*]}'; unset it."

dataset=${DATASET:-snli}
raw_dir=${RAW_DIR:-$work_dir/raw/$dataset} # data sets have files of the same name
text_dir=$work_dir/$dataset/data

# Word pieces of a text; BERT adds [CLS] and [SEP], so texts have 64 and 384 pieces at most, as published.
max_pieces=62
if [[ "$dataset" == squad_binary ]]; then max_pieces=382; fi

# What is compared, one system a line: match, aggregation, levels, hierarchy ("-" has no meaning for it).
case "${TABLE:-}" in
  "") ;;
  2) systems=("classic - - -" "element max last 1" "element max all 1") ;;
  4) systems=("cosine concat all 1" "bilinear concat all 1" "element concat all 1" "element concat all 0" "element max all 1") ;;
esac
given=${MATCH:-}${AGGREGATION:-}${LEVELS:-}${HIERARCHY:-}
if [[ -n "${TABLE:-}" && -n "$given" ]]; then
  fail "TABLE=$TABLE names all its systems, so MATCH, AGGREGATION, LEVELS and HIERARCHY must not be set; unset TABLE or them."
fi
if [[ -z "${TABLE:-}" ]]; then
  case "${MATCH:-element}" in
    classic)
      [[ "$given" == classic ]] || fail "MATCH=classic compares one vector of each text, so AGGREGATION, LEVELS and HIERARCHY must not be set."
      systems=("classic - - -")
      ;;
    element | cosine | bilinear)
      default=max
      if [[ "${MATCH:-element}" != element ]]; then default=concat; fi # the maximum of single numbers would leave one
      systems=("${MATCH:-element} ${AGGREGATION:-$default} ${LEVELS:-all} ${HIERARCHY:-1}")
      [[ "${systems[0]}" =~ ^[a-z]+\ (max|concat)\ (all|last|[0-9,]+)\ [01]$ && "${systems[0]}" != [cb]*\ max\ * ]] ||
        fail "AGGREGATION must be concat or, with MATCH=element, max; LEVELS all, last or numbers such as 3,7,11; but they are '${AGGREGATION:-$default}' and '${LEVELS:-all}'."
      ;;
  esac
fi
layers=${LAYERS:-}
if [[ -n "$layers" && " ${models[*]} " == *" translation "* ]]; then
  fail "LAYERS needs an encoder that can be built with fewer layers, but that of a translation model comes as it is; use another ENCODER."
fi
if [[ "${BASELINE:-none}" != none ]]; then # a floor compares words
  [[ -z "${ENCODER:-}${TABLE:-}$given$layers" ]] ||
    fail "BASELINE=$BASELINE stands for an encoder and its match, so ENCODER, TABLE, MATCH, AGGREGATION, LEVELS, HIERARCHY and LAYERS must not be set; unset them."
  systems=("- - - -")
fi

need() { # need ENCODER VARIABLE WHAT: refuses that encoder without the variable
  [[ " ${models[*]} " != *" $1 "* || -n "${!2:-}" ]] || fail "ENCODER=$1 needs $2, $3, but it is not set."
}

choose_data() { # sets data, the binarised text that $model reads: word pieces, a translation model's sub-words, or words in lower case
  local text=words$vectors_suffix own_vectors=1
  case "$model" in
    bert) text=pieces ;;
    translation) text=translation ;;
    *) own_vectors=0 ;;
  esac
  if [[ -n "$vectors" ]] && ((own_vectors)); then
    fail "WORD_VECTORS are for encoders that are trained with the task, but ENCODER has $model, which brings its own."
  fi
  data=$work_dir/$dataset/data-$text
}

choose_run() { # sets data and run for $model, $match, $aggregation, $levels, $hierarchy and $seed
  local system=$match
  choose_data
  if [[ "$match" != [c-]* || "$match" == cosine ]]; then
    system+=-$aggregation-$levels
    if [[ "$hierarchy" == 0 ]]; then system+=-flat; fi
  fi
  run=$work_dir/$dataset/$model${layers:+-layers$layers}$vectors_suffix-$system-seed$seed
}

for_each_system() { # for_each_system COMMAND...: once for every system, encoder and seed, in $match, $aggregation, $levels, $hierarchy, $model, $seed
  local system
  for system in "${systems[@]}"; do
    read -r match aggregation levels hierarchy <<<"$system"
    for_each_run "$@"
  done
}

fetch_dataset() { # the files of $dataset into RAW_DIR: the lines of downloads.tsv below its name
  local options=()
  if [[ "$trial" == 1 ]]; then options=(--any-content); fi
  awk -v wanted="# $dataset" '/^#/ { chosen = $0 == wanted; next } chosen' "$here/downloads.tsv" >"$text_dir/downloads.tsv"
  python "$recipe_tools/download.py" "$text_dir/downloads.tsv" "$raw_dir" "${options[@]}"
}
