# shellcheck shell=bash disable=SC2034,SC2154 # set here for the scripts that source it; recipe.sh sets the rest
# What the recipes of sentence models share: classification, tagging, regression. Their common.sh sources it instead of recipe.sh:
#
#   . "$here/../recipe/sentence_recipe.sh"
#   start_sentence_recipe sst
#
# Settings besides those of recipe.sh (WORK_DIR, RAW_DIR, NUM_GPUS, TRIAL, SKIP_SETUP):
#   MODEL=multi_scale_transformer     or sentence_transformer, sentence_muse, sentence_bigru, sentence_cnn, sentence_average,
#                                     distance_attention_network, directional_attention_network
#   MODELS="A B", SEEDS="1 2 3"       several of them, one after the other
#   LR, BATCH, EPOCHS, PATIENCE       other than the recipe's; PATIENCE=0 trains all epochs
#   WARMUP=100                        updates over which the rate rises; without, the Transformer often stays at chance
#   DECAY=0.15                        share of the rate that every epoch after the first takes off; 0: none
#   WORD_VECTORS=FILE                 pretrained vectors as text (GloVe, fastText); FREEZE_VECTORS=1 does not train them
#   BASELINE=linear                   instead of a model, the floor that it must pass: naive Bayes or logistic regression on words
#                                     (BASELINE=crf for tags), see baseline.py; what is said of LR and the like means nothing to it
# One device trains one model, whatever the machine has. Arguments of train.sh are passed on to fairseq-train.
set -euo pipefail
# shellcheck source=examples/recipe/recipe.sh
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

sentence_models="multi_scale_transformer sentence_transformer sentence_muse sentence_bigru sentence_cnn sentence_average"
sentence_models+=" distance_attention_network directional_attention_network"

start_sentence_recipe() { # start_sentence_recipe NAME [MODELS [NAME=KIND...]]: as start_recipe, and sets models, seeds, vectors
  local known=${2:-$sentence_models} floor=linear
  if [[ "${*:3}" == *CRF=* ]]; then floor=crf; fi
  start_recipe "$1" "$known" "MODELS+=$known" "BASELINE=none|$floor" SEEDS+=whole LR=positive BATCH=count EPOCHS=count PATIENCE=whole WARMUP=whole \
    DECAY=share 'FREEZE_VECTORS=0|1' "${@:3}"
  subwords=bpe joint=1 # SUBWORDS and JOINT are for translation
  [[ -z "${MODEL:-}" || -z "${MODELS:-}" ]] || fail "MODEL and MODELS both say what is trained, '$MODEL' and '$MODELS'; unset one."
  [[ -z "${SEED:-}" || -z "${SEEDS:-}" ]] || fail "SEED and SEEDS both say which seeds are meant, '$SEED' and '$SEEDS'; unset one."
  read -r -a models <<<"${MODELS:-${MODEL:-${known%% *}}}"
  read -r -a seeds <<<"${SEEDS:-${SEED:-1}}"
  choose_baseline
  vectors=${WORD_VECTORS:-}
  freeze_vectors=${FREEZE_VECTORS:-0}
  prepare_vector_flags=()
  vectors_name=
  vectors_suffix=
  if [[ -n "$vectors" ]]; then
    [[ -f "$vectors" ]] || fail "WORD_VECTORS must be a file, but there is none at $vectors."
    prepare_vector_flags=(--word-vectors "$vectors")
    vectors_suffix=-vectors
    if [[ "$freeze_vectors" != 0 ]]; then
      # What is not trained serves words that only the test set has, too.
      prepare_vector_flags+=(--vocabulary-from all)
      vectors_suffix=-frozen-vectors
    fi
  elif [[ "$freeze_vectors" != 0 ]]; then
    fail "FREEZE_VECTORS=1 needs WORD_VECTORS=FILE: vectors that are neither given nor trained mean nothing."
  fi
}

name_vectors() { # sets vectors_name, which tells WORD_VECTORS from another file, also from one of the same name; reads it once
  if [[ -n "$vectors" && -z "${vectors_name:-}" ]]; then vectors_name=$(name_files "$vectors" "$vectors"); fi
}

choose_profile() { # choose_profile USUAL GIVEN: sets profile, and profile_suffix for the folders of runs with the other one
  profile=${2:-$1} profile_suffix=
  if [[ "$profile" != "$1" ]]; then profile_suffix=-$profile; fi
}

choose_baseline() { # with BASELINE, sets models to it, and floor_suffix, which is part of the name of a table
  floor_suffix=
  if [[ "${BASELINE:-none}" == none ]]; then return; fi
  if [[ -n "${MODELS:-}${MODEL:-}" || -n "${WORD_VECTORS:-}" ]]; then
    fail "BASELINE=$BASELINE stands for a model without word vectors, so MODEL, MODELS and WORD_VECTORS must not be set; unset them."
  fi
  models=("$BASELINE")
  floor_suffix=-$BASELINE
}

for_each_run() { # for_each_run COMMAND...: once for every model and seed, in $model and $seed
  for model in "${models[@]}"; do
    for seed in "${seeds[@]}"; do "$@"; done
  done
}

unpack_tagged() { # unpack_tagged END MOST FEW COUNT...: $files to $data/text/*.END, COUNT lines each; in a trial MOST to train on, FEW others
  local end=$1 most=$2 few=$3 i splits=(train valid test)
  shift 3
  mkdir -p "$data/text"
  for i in 0 1 2; do
    read_raw "${files[i]}" | limit_lines $((i == 0 ? most : few)) >"$data/text/${splits[i]}.$end"
    shift $((i > 0))
    expect_lines "$data/text/${splits[i]}.$end" "$1"
  done
}

# make_pairs DIR FILE FORM SPLIT COUNT FLAGS...: FILE of $archive, if there is one, or of RAW_DIR, to DIR/text/SPLIT.tsv by the recipe's
# pairs.py: label, first and second text in COUNT lines (- for any).
make_pairs() {
  local dir=$1 file=$2 form=$3 split=$4 count=$5 code=0
  shift 5
  if [[ "$trial" == 1 ]]; then set -- --limit 200; fi
  if [[ -n "$archive" ]]; then cat "$dir/original/$file"; else read_raw "$file"; fi |
    python "$here/pairs.py" "$form" "$@" >"$dir/text/$split.tsv" 2>"$dir/text/report" || code=$?
  tee >(sed "s/^/$split: /" >&3) <"$dir/text/report"
  if ((code != 0)); then return "$code"; fi
  if [[ "$count" != - ]]; then expect_lines "$dir/text/$split.tsv" "$count"; fi
}

prepare_text() { # prepare_text DATA FLAGS...: `muse-plugin prepare-text` into DATA/bin, its report also to the screen
  local dir=$1
  shift
  python -m muse_plugin.cli prepare-text --output "$dir/bin" --overwrite "${prepare_vector_flags[@]}" "$@" |
    tee >(grep -E '^(train|valid|test[0-9]*|skipped|repaired|vocabulary)' >&3 || cat >/dev/null)
}

read_data_settings() { # read_data_settings DATA: sets data_settings, what prepare.sh was told, for the settings of a run
  local line made
  [[ -e "$1/.text.done" ]] || fail "there is no data in $1; run prepare.sh with the same settings first."
  data_settings=()
  while IFS= read -r line; do data_settings+=("data_$line"); done <"$1/settings.txt"
  made=$(sed -n 's/^word_vectors=//p' "$1/settings.txt")
  if [[ -z "$made" ]]; then return; fi # no vectors, or learned ones, which need not be read to tell them apart
  name_vectors
  [[ -z "$vectors_name" || "$made" == "$vectors_name" ]] ||
    fail "the data in $1 are of the vectors $made, but WORD_VECTORS is $vectors_name now; set the same, or prepare other data by WORK_DIR=..."
}

choose_architecture() { # choose_architecture [PRESET]: sets arch, and size_flags for a trial, from $model
  arch=$model
  if [[ "$model" == multi_scale_transformer && -n "${1:-}" ]]; then arch=multi_scale_transformer_$1; fi
  size_flags=()
  if [[ "$trial" != 1 ]]; then return; fi
  size_flags=(--word-embed-dim 16 --encoder-embed-dim 20 --classifier-hidden-dim 16)
  case "$model" in
    multi_scale_transformer) size_flags+=(--encoder-layers 2 --encoder-attention-heads 5 --encoder-head-dim 4) ;;
    sentence_transformer | sentence_muse) size_flags+=(--encoder-layers 2 --encoder-attention-heads 5 --encoder-ffn-embed-dim 16) ;;
    sentence_bigru) size_flags+=(--encoder-hidden-size 8) ;;
    sentence_cnn) size_flags+=(--encoder-filters 4) ;;
    distance_attention_network) size_flags+=(--encoder-attention-heads 5 --encoder-ffn-embed-dim 16) ;;
  esac
}

choose_vector_flags() { # choose_vector_flags DATA: sets vector_flags, the vectors that prepare.sh cut to the vocabulary
  vector_flags=()
  if [[ -z "$vectors" ]]; then return; fi
  vector_flags=(--word-vectors "$1/bin/word_vectors.txt" --word-embed-dim "$(awk '{ print NF - 1; exit }' "$1/bin/word_vectors.txt")")
  if [[ "$freeze_vectors" != 0 ]]; then vector_flags+=(--freeze-word-vectors); fi
}

choose_dropout() { # choose_dropout EMBEDDING CLASSIFIER ATTENTION: sets dropout_flags, the same for every model that has the place
  dropout_flags=(--embedding-dropout "$1" --dropout 0.1 --classifier-dropout "$2")
  case "$model" in
    multi_scale_transformer | sentence_transformer | sentence_muse) dropout_flags+=(--attention-dropout "$3") ;;
  esac
}

# choose_regularisation WORD_DROPOUT USUAL HIDDEN USUAL: sets regular_flags, regular_settings, and regular_suffix where they are unusual;
# HIDDEN may be empty: that of the model.
choose_regularisation() {
  local word_dropout=$1 hidden=$3
  regular_flags=(--word-dropout "$word_dropout")
  regular_settings=("word_dropout=$word_dropout")
  regular_suffix=
  if [[ "$word_dropout" != "$2" ]]; then regular_suffix+=-dropped$word_dropout; fi
  if [[ -z "$hidden" ]]; then return; fi
  regular_flags+=(--classifier-hidden-dim "$hidden")
  regular_settings+=("hidden=$hidden")
  if [[ "$hidden" != "$4" ]]; then regular_suffix+=-hidden$hidden; fi
}

choose_training() { # choose_training RATE BATCH EPOCHS PATIENCE METRIC [DECAY]: sets training_flags and training_settings for $optimizer, adam by default; METRIC may be loss or mse
  local rate=${LR:-$1} batch=${BATCH:-$2} epochs=${EPOCHS:-$3} patience=${PATIENCE:-$4} warmup=${WARMUP:-100} decay=${DECAY:-${6:-0}}
  if [[ "$trial" == 1 ]]; then epochs=1; fi
  training_settings=("lr=$rate" "warmup=$warmup" "batch=$batch" "epochs=$epochs" "patience=$patience" "best=$5")
  training_flags=(--optimizer "${optimizer:-adam}" --lr "$rate" --lr-scheduler fixed --warmup-updates "$warmup" --batch-size "$batch" --max-epoch "$epochs"
    --no-epoch-checkpoints --best-checkpoint-metric "$5")
  if [[ "$patience" != 0 ]]; then training_flags+=(--patience "$patience"); fi
  if [[ "$decay" != 0 ]]; then
    training_flags+=(--force-anneal 2 --lr-shrink "$(awk -v decay="$decay" 'BEGIN { print 1 - decay }')") # from the second epoch on
    training_settings+=("decay=$decay")
  fi
  if [[ "$5" != loss && "$5" != mse ]]; then training_flags+=(--maximize-best-checkpoint-metric); fi
  if [[ "$trial" == 1 ]]; then training_flags+=(--max-update 2); fi
}

train_sentences() { # train_sentences RUN [DATA] FLAGS...: fairseq-train on one device; continues from the last checkpoint in RUN
  local dir=$1 command=(fairseq-train) device=(--cpu)
  shift
  if [[ "${BASELINE:-none}" != none ]]; then
    train_baseline "$dir" "$@"
    return
  fi
  if ((num_gpus > 0)); then device=(--distributed-world-size 1); fi
  command+=("$@" --user-dir "$user_dir" --save-dir "$dir/checkpoints" --seed "$seed" --log-format simple --num-workers 0 "${device[@]}")
  printf '%q ' "${command[@]}" >"$dir/train-command.txt"
  # The whole log goes to the step's log, a line per epoch and our warnings also to the screen.
  "${command[@]}" 2>&1 | tee >(grep --line-buffered -E ' \| (valid|train) \| | \| WARNING \| muse_plugin' >&3 || cat >/dev/null)
}

train_baseline() { # train_baseline RUN DATA FLAGS...: a floor, which answers all splits at once; of the flags it reads the longest text
  local dir=$1 command=(python "$recipe_tools/baseline.py" "$BASELINE" "$2" "$1")
  shift 2
  while (($#)); do
    if [[ "$1" == --max-words ]]; then command+=("$1" "$2"); fi
    shift
  done
  printf '%q ' "${command[@]}" >"$dir/train-command.txt"
  "${command[@]}" 2>&1 | tee >(grep --line-buffered -E '^(valid|chosen)' >&3 || cat >/dev/null)
}

predict_split() { # predict_split RUN SPLIT: answers of the best checkpoint to a split, RUN/predictions/SPLIT.jsonl
  local device=()
  if [[ "${BASELINE:-none}" != none ]]; then return; fi # it has answered already
  if ((num_gpus == 0)); then device=(--cpu); fi
  mkdir -p "$1/predictions"
  python -m muse_plugin.cli predict --path "$1/checkpoints/checkpoint_best.pt" --split "$2" --format jsonl \
    --output "$1/predictions/$2.jsonl" "${device[@]}"
}

record_run() { # record_run RUN: record_settings, with seconds of an epoch and parameters
  local seconds parameters
  record_settings "$1"
  seconds=$(list_epoch_seconds "$1/train.log" | awk '{ sum += $2 } END { if (NR) printf "%.1f", sum / NR }')
  if [[ -n "$seconds" ]]; then record+=(--record "seconds_per_epoch=$seconds"); fi # not for a floor
  parameters=$(sed -nE 's/.*num\. shared model params: ([0-9,]+) .*/\1/p' "$1/train.log" | tail -n 1)
  if [[ -n "$parameters" ]]; then record+=(--record "parameters=${parameters//,/}"); fi
}

evaluate_run() { # evaluate_run RUN SPLIT TEST_SET FLAGS...: predicts and scores a split, RUN/results/TEST_SET.json
  local dir=$1 split=$2 test_set=$3
  shift 3
  check_trained "$dir"
  step "$dir" "predict-$split" "predict $test_set (${dir#"$work_dir"/})" predict_split "$dir" "$split"
  mkdir -p "$dir/results"
  if [[ "$dir/results/$test_set.json" -nt "$dir/predictions/$split.jsonl" && "$(cat "$dir/results/.$test_set.flags" 2>/dev/null)" == "$*" ]]; then
    printf '%s: score %s (%s): done before\n' "$recipe" "$test_set" "${dir#"$work_dir"/}"
    return
  fi
  record_run "$dir"
  python -m muse_plugin.cli score-labels "$dir/predictions/$split.jsonl" --output "$dir/results/$test_set.json" \
    "${record[@]}" --record "test_set=$test_set" --record "checkpoint=best" "$@"
  printf '%s\n' "$*" >"$dir/results/.$test_set.flags"
}

test_run() { # test_run FLAGS...: tests the run of $model and $seed, adds the files to results; MultiNLI has two test sets
  choose_run
  if [[ "${dataset:-}" == mnli ]]; then
    evaluate_run "$run" test matched "$@"
    evaluate_run "$run" test1 mismatched "$@"
    results+=("$run/results/matched.json" "$run/results/mismatched.json")
  else
    evaluate_run "$run" test test "$@"
    results+=("$run/results/test.json")
  fi
}

collect_results() { # collect_results TEST_SET: adds RUN/results/TEST_SET.json of the run of $model and $seed to results
  choose_run
  results+=("$run/results/$1.json")
}

show_published() { # show_published TEXT: what was published, unless a run of $results is a trial or had arguments of its own
  local runs=("${results[@]%/results/*}")
  if grep -qE '^(data_trial=1|data_trial=.* flags=|flags=.)' "${runs[@]/%//settings.txt}"; then
    printf '\n%s: not the published setting, so no scores to compare with\n' "$recipe"
  else
    printf '\n%s: published, with pretrained word vectors: %s\n' "$recipe" "$1"
  fi
}

start_tagging_recipe() { # start_tagging_recipe NAME [NAME=KIND...]: as start_sentence_recipe, for models that tag words; sets threshold, prepare_tagger_flags
  start_sentence_recipe "$1" "multi_scale_transformer sentence_transformer sentence_muse sentence_bigru" THRESHOLD=whole \
    'LOWER_CASE=0|1' 'CHARACTERS=none|cnn|bilstm' 'FEATURES=0|1' WORD_DROPOUT=share 'CRF=0|1' "${@:2}"
  threshold=${THRESHOLD:-2}
  prepare_tagger_flags=(--characters --threshold "$threshold")
  if [[ "${LOWER_CASE:-0}" == 0 ]]; then return; fi
  prepare_tagger_flags+=(--lower-case) # the words, not their characters
  vectors_suffix=-lower$vectors_suffix
}

name_tagger_data() { # sets prepare_tagger_settings, what the data of a tagger depend on
  name_vectors
  prepare_tagger_settings=("threshold=$threshold" "word_vectors=$vectors_name")
  if [[ "${LOWER_CASE:-0}" != 0 ]]; then prepare_tagger_settings+=("lower_case=1"); fi
}

choose_tagger() { # sets tagger_flags, tagger_settings and tagger_suffix from CHARACTERS=cnn (or bilstm), FEATURES=1, WORD_DROPOUT and CRF=1
  local characters=${CHARACTERS:-none} features=${FEATURES:-0} word_dropout=${WORD_DROPOUT:-0} crf=${CRF:-0}
  tagger_flags=(--character-encoder "$characters")
  tagger_settings=("characters=$characters" "crf=$crf")
  tagger_suffix=
  if [[ "$characters" != none ]]; then tagger_suffix+=-$characters; fi
  if [[ "$features" != 0 ]]; then
    tagger_flags+=(--word-features "case,shape,affixes")
    tagger_settings+=("features=1")
    tagger_suffix+=-features
  fi
  if [[ "$word_dropout" != 0 ]]; then
    tagger_flags+=(--word-dropout "$word_dropout")
    tagger_settings+=("word_dropout=$word_dropout")
    tagger_suffix+=-dropped$word_dropout
  fi
  if [[ "$crf" != 0 ]]; then
    tagger_flags+=(--crf)
    tagger_suffix+=-crf
  fi
}
