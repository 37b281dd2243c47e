# shellcheck shell=bash disable=SC2154 # here, data, run and usual_data are set by common.sh
# What the recipes in examples/ share. Each prepare.sh, train.sh and evaluate.sh sources it:
#
#   . "$(dirname "${BASH_SOURCE[0]}")/../recipe/recipe.sh"
#   start_recipe multi30k
#
# Settings that every recipe takes from the environment:
#   WORK_DIR=...      where everything is written (default: runs/<recipe> in the repository, runs/<recipe>-trial with TRIAL=1)
#   RAW_DIR=...       where the original files are or are downloaded to (default: WORK_DIR/raw)
#   MODEL=muse        or muse_simple, or transformer: the baseline (a recipe may have more)
#   ROW=no_ffn        a row of the paper's tables instead (iwslt14_de_en, multi30k); ROW=help prints them, rows.tsv has them
#   SEED=1
#   SUBWORDS=bpe      joint subwords of both languages, as many as MERGES says: subword-nmt's; or sentencepiece (its unigram model),
#                     sentencepiece:unigram, sentencepiece:bpe. Not published; the same for prepare.sh, train.sh and evaluate.sh.
#                     none: words, for iwslt15_en_vi alone
#   KEEP=10           last checkpoints that stay, at least AVERAGED: of epochs; of wmt14_en_de 20, of every 500 updates
#   JOINT=0           subwords, dictionary and embeddings for each language instead; not published; the same for all three
#   MAX_TOKENS=...    tokens per batch and device; the accumulation follows, so that an update sees as many as published
#   NUM_GPUS=...      default: all that PyTorch sees, none on a machine without; NUM_NODES=... see examples/recipe/README.md
#   TRIAL=1           a few sentences and updates, to see within minutes that all steps work
#   SKIP_SETUP=1      use the python on the PATH as it is
# Arguments of a script are passed on to its main command: bash train.sh --dropout 0.2; --help prints the head of the script and these settings.

if [[ "${1:-}" == --help ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  case "${BASH_SOURCE[1]:-}" in
    */common.sh) sed -n '/^# Settings/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
    */sentence_recipe.sh) sed -n '/^# Settings/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[1]}" ;;
  esac
  exit
fi

fail() {
  printf '%s: error: %s\n' "${recipe:-recipe}" "$*" >&2
  exit 2
}

# Older ones take an empty array for an unset variable.
[[ "$BASH_VERSION" =~ ^([5-9]|4\.[4-9]|[1-9][0-9]) ]] ||
  fail "the recipes need bash 4.4 or later, but this is $BASH_VERSION; install one (macOS: brew install bash)."

check_settings() { # check_settings NAME=KIND...: refuses what the environment sets to anything else, all of it in one sentence
  # KIND is a name below, or the values: 'a|b|c', or 'a b c' where they are many. NAME+ may have several values, separated by spaces.
  local setting name kind pattern rule several is value values given faults=''
  for setting in "$@"; do
    name=${setting%%=*} kind=${setting#*=}
    case "$kind" in
      whole) pattern='0|[1-9][0-9]{0,8}' rule='a whole number' several='whole numbers' ;;
      count) pattern='[1-9][0-9]{0,8}' rule='a whole number of at least 1' several='whole numbers of at least 1' ;;
      number) pattern='-?([0-9]+\.?[0-9]*|\.[0-9]+)' rule='a number' several='numbers' ;;
      share) pattern='0?\.[0-9]+|0' rule='a number of at least 0 and below 1' ;;
      positive)
        pattern='([0-9]*[1-9][0-9]*\.?[0-9]*|[0-9]*\.[0-9]*[1-9][0-9]*)([eE][-+]?[0-9]{1,2})?' rule='a number above 0'
        ;;
      *\ *) pattern=${kind// /|} rule="one of $kind" several="one or more of $kind" ;;
      *)
        pattern=$kind rule=${kind//|/, }
        rule="${rule%, *} or ${rule##*, }"
        ;;
    esac
    is=is
    if [[ "$name" == *+ ]]; then name=${name%+} rule=$several is='one is'; fi
    values=("${!name:-}")
    if [[ "$is" != is ]]; then
      read -r -a values <<<"${values[0]}"
      if [[ -n "${!name:-}" && ${#values[@]} == 0 ]]; then faults+="; $name must be $rule, but is blank"; fi
    fi
    given=' '
    for value in "${values[@]}"; do
      [[ -z "$value" || "$value" =~ ^($pattern)$ ]] || faults+="; $name must be $rule, but $is '$value'"
      if [[ "$given" == *" $value "* ]]; then faults+="; $name has '$value' twice; give it once"; fi
      given+="$value "
    done
  done
  [[ -z "$faults" ]] || fail "${faults#; }."
}

choose_threads() { # choose_threads MOST: of a process on the CPU, unless the environment says how many
  # Threads that spin while they wait slow each other down when anything else runs on the machine; the default is 300000.
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
  if [[ -z "${OMP_NUM_THREADS:-}" ]]; then OMP_NUM_THREADS=$(count_cores "$1"); fi
  export OMP_NUM_THREADS
}

keep_memory() { # glibc keeps the memory of an update, in large pages, for the next one: a fifth more updates (docs/speed.md)
  export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592}
}

start_recipe() { # start_recipe NAME [MODELS [NAME=KIND...]]: environment, folders and defaults; the models and settings of this recipe
  local known=${2-muse muse_simple transformer} # empty: no model is trained, and MODEL means nothing
  recipe=$1
  check_settings ${known:+"MODEL=$known"} SEED=whole 'TRIAL=0|1' 'SKIP_SETUP=0|1' NUM_GPUS=whole NUM_NODES=count \
    NODE_RANK=whole MAX_TOKENS=count UPDATES=count MERGES=count AVERAGED=count BPE_DROPOUT=share 'SIMCUT=0|1' 'RDROP=0|1' \
    'JOINT=0|1' KEEP=count 'SUBWORDS=bpe|none|sentencepiece|sentencepiece:unigram|sentencepiece:bpe' "${@:3}"
  if [[ "${SUBWORDS:-}" == none && "$recipe" != iwslt15_en_vi ]]; then
    fail "SUBWORDS=none is for iwslt15_en_vi, whose paper has dictionaries of words; use bpe or sentencepiece."
  fi
  if [[ "${SUBWORDS:-}" == none && (-n "${MERGES:-}" || "${JOINT:-1}" == 0 || "${BPE_DROPOUT:-0}" != 0) ]]; then
    fail "SUBWORDS=none has no subwords, but MERGES, JOINT or BPE_DROPOUT is set; unset it."
  fi
  averaged=${AVERAGED:-10} # for evaluate.sh
  if [[ -n "${KEEP:-}" ]] && ((averaged > KEEP)); then
    fail "AVERAGED must be at most KEEP, but is $averaged, and KEEP is $KEEP; keep more."
  fi
  if [[ -n "${ROW:-}" && " ${*:3}" != *' ROW='* ]]; then
    fail "ROW must be unset in this recipe, but is '$ROW'; rows of the tables are trained by iwslt14_de_en and multi30k."
  fi
  local name
  for name in PROFILE BIDIRECTIONAL MODELS SEEDS; do # what other recipes read, and would be missed
    [[ -z "${!name:-}" || "${*:3}" =~ (^|\ )$name\+?= ]] || fail "$name must be unset in this recipe, which does not read it, but is '${!name}'."
  done
  if [[ "${ROW:-}" == help ]]; then
    show_rows
    exit 0
  fi
  recipe_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
  root=$(cd "$recipe_tools/../.." && pwd -P)
  # shellcheck source=scripts/environment.sh
  . "$root/scripts/environment.sh"
  set_up_repository
  export PYTHONUNBUFFERED=1
  choose_threads 8
  user_dir=$root/muse_plugin
  trial=${TRIAL:-0}
  # shellcheck disable=SC2034 # for common.sh
  model=${MODEL:-muse}
  seed=${SEED:-1}
  node=${NODE_RANK:-${SLURM_NODEID:-0}} # the number of this node among several
  text_flags=() # of muse-plugin text-pipeline, see the recipe's common.sh
  # What a trial trains: a model of these sizes.
  trial_flags=()
  if [[ "$trial" == 1 ]]; then
    trial_flags=(--save-interval-updates 2)
    for side in encoder decoder; do
      trial_flags+=("--$side-layers" 2 "--$side-embed-dim" 32 "--$side-ffn-embed-dim" 64 "--$side-attention-heads" 4)
    done
  fi
  subwords=${SUBWORDS:-bpe}
  if [[ "$subwords" == sentencepiece ]]; then subwords=sentencepiece:unigram; fi
  joint=${JOINT:-1}
  choose_keep 10
  # shellcheck disable=SC2034 # for train.sh
  share_flags=()
  # shellcheck disable=SC2034
  if [[ "$joint" == 1 ]]; then share_flags=(--share-all-embeddings); fi
  work_dir=${WORK_DIR:-$root/runs/$recipe$([[ "$trial" == 1 ]] && printf -- '-trial' || true)}
  mkdir -p "$work_dir"
  work_dir=$(cd "$work_dir" && pwd -P)
  raw_dir=${RAW_DIR:-$work_dir/raw}
}

choose_keep() { # choose_keep USUAL: sets keep, for train.sh: KEEP, or the usual number, or as many as are averaged
  # shellcheck disable=SC2034
  keep=${KEEP:-$((averaged > $1 ? averaged : $1))}
}

read_rows() { # read_rows AWK: runs AWK on every row of rows.tsv
  awk -F'\t' '!/^#/ && $1 != "row" { '"$1"' }' "$(dirname "${BASH_SOURCE[0]}")/rows.tsv"
}

list_rows() { # list_rows: their names, a space between them
  # shellcheck disable=SC2016 # the dollar signs are awk's
  read_rows 'printf "%s%s", separator, $1; separator = " "'
}

show_rows() { # show_rows: what ROW may be, for people
  printf '%-22s %-9s %-10s %-9s %-10s %s\n' ROW tables published expected parameters 'what it is (published: IWSLT14 German-English)'
  # shellcheck disable=SC2016 # the same
  read_rows 'gsub(" ", ",", $2); interval = $7 == "-" ? "-" : $8 "-" $9; if ($10 != "-") $10 = $10 " M"
    if ($5 == "no") $11 = $11 " (not for iwslt14_de_en)"; if ($6 == "no") $11 = $11 " (not for multi30k)"
    printf "%-22s %-9s %-10s %-9s %-10s %s\n", $1, $2, $7, interval, $10, $11'
}

# choose_row: finds ROW, or else MODEL, in rows.tsv; sets model, row (empty where it is the model itself), row_flags, row_settings for
# keep_settings, and expected: published and interval on IWSLT14.
choose_row() {
  local name=${ROW:-$model} fields tables own_model flags iwslt14 multi30k published low high parameters what own other
  row='' row_flags=() row_settings=() expected=(- - -)
  # shellcheck disable=SC2016 # the same
  fields=$(NAME=$name read_rows 'if ($1 == ENVIRON["NAME"]) print')
  if [[ -z "$fields" ]]; then return; fi
  # shellcheck disable=SC2034 # the columns that are for people
  IFS=$'\t' read -r name tables own_model flags iwslt14 multi30k published low high parameters what <<<"$fields"
  # shellcheck disable=SC2034
  expected=("$published" "$low" "$high")
  own=$multi30k other=iwslt14_de_en
  if [[ "$recipe" == iwslt14_de_en ]]; then own=$iwslt14 other=multi30k; fi
  if [[ "$own" == no ]]; then fail "ROW must be a row of $recipe, but $name ($what) is none; train it by examples/$other."; fi
  if [[ -n "${ROW:-}" ]]; then
    [[ "${MODEL:-$own_model}" == "$own_model" ]] || fail "ROW=$ROW is a row of MODEL=$own_model, but MODEL is $MODEL; set ROW alone."
    model=$own_model
    # shellcheck disable=SC2034 # the scripts of recipes read it
    if [[ "$name" != "$model" ]]; then row=$name row_settings=("row=$name"); fi
  fi
  if [[ "$trial" == 1 ]]; then own=$multi30k; fi # its four layers
  if [[ "$flags" == - ]]; then flags=''; fi
  if [[ "$own" == - || "$own" == no ]]; then own=''; fi
  read -r -a row_flags <<<"$flags $own"
  if [[ "$trial" == 1 && ${#row_flags[@]} != 0 ]]; then trial_flags+=(--encoder-layers 4 --decoder-layers 4); fi
}

find_devices() { # sets num_gpus, num_nodes, and device_flags for fairseq's commands; on a CPU, computes label smoothing fused
  local seen=0
  if [[ "${NUM_GPUS:-}" != 0 ]]; then seen=$(python -c 'import torch; print(torch.cuda.device_count())'); fi
  num_gpus=${NUM_GPUS:-$seen}
  num_nodes=${NUM_NODES:-1}
  ((num_gpus <= seen)) || fail "NUM_GPUS must be at most the GPUs that PyTorch sees here, $seen, but is $num_gpus."
  if ((num_gpus == 0)); then
    ((num_nodes == 1)) || fail "NUM_NODES=$num_nodes needs GPUs, but there is none here; set NUM_GPUS to those of each node."
    device_flags=(--cpu)
    keep_memory
    # The same loss, sooner (docs/speed.md). fairseq's lightconv lacks the output layer that it reads.
    if [[ "${criterion[1]:-}" == label_smoothed_cross_entropy && "$model" != dynamicconv ]]; then
      criterion[1]=fused_label_smoothed_cross_entropy
    fi
  else
    device_flags=(--fp16)
  fi
}

plan_batches() { # plan_batches TOTAL MOST: sets max_tokens (per device, at most MOST) and update_freq, so that an update sees TOTAL
  local total=$1 most=${MAX_TOKENS:-$2} devices
  devices=$((num_nodes * (num_gpus > 0 ? num_gpus : 1)))
  update_freq=$(((total + most * devices - 1) / (most * devices)))
  max_tokens=$((total / (update_freq * devices)))
  printf '%s: %d tokens per update = %d per batch x %d accumulated x %d devices\n' \
    "$recipe" "$((max_tokens * update_freq * devices))" "$max_tokens" "$update_freq" "$devices"
}

step() { # step DIR NAME WHAT COMMAND...: runs a step once; DIR/NAME.log gets its output, DIR/times.tsv the seconds of every attempt
  # shellcheck disable=SC2034 # the trap reads started
  local step_dir=$1 step_name=$2 what=$3 started=$SECONDS code=0 step_log=$1/$2.log running=$1/.$2.running killed='' lock # names that COMMAND does not use
  shift 3
  if [[ "$node" != 0 ]]; then step_log=$step_dir/$step_name.node$node.log; fi # of several nodes, which share the folder, the first keeps the books
  if [[ -e "$step_dir/.$step_name.done" ]]; then
    printf '%s: %s: done before\n' "$recipe" "$what"
    return
  fi
  printf '%s: %s (its output: %s) ...\n' "$recipe" "$what" "$step_log"
  mkdir -p "$step_dir"
  if [[ "$node" == 0 ]]; then
    # An attempt that was killed could not write its time; its last output tells it.
    if [[ -e "$running" && -e "$step_log" ]]; then killed=$(($(date -r "$step_log" +%s) - $(date -r "$running" +%s))); fi
    exec {lock}>>"$running"
    if command -v flock >/dev/null; then flock --nonblock --conflict-exit-code 75 "$lock" || code=$?; fi # macOS has none
    ((code != 75)) || fail "the step '$what' is running already, in another process; wait for it or stop it."
    if [[ -n "$killed" ]]; then printf '%s\t%d\n' "$step_name" "$killed" >>"$step_dir/times.tsv"; fi
    : >"$running"
  fi
  # Not as a condition: bash would ignore set -e within the command, and with it failures in the middle of a function.
  set +e
  (
    set -e
    if [[ "$node" == 0 ]]; then trap 'printf "%s\t%d\n" "$step_name" "$((SECONDS - started))" >>"$step_dir/times.tsv"; rm -f "$running"' EXIT; fi
    "$@"
  ) 3>&1 >>"$step_log" 2>&1 # what a step writes to descriptor 3 is shown
  code=$?
  set -e
  if [[ "$node" == 0 ]]; then exec {lock}>&-; fi
  if ((code != 0)); then
    tail -n 5 "$step_log" >&2
    fail "the step '$what' failed, its whole output is in $step_log. Run the same command again to continue from here."
  fi
  if [[ "$node" == 0 ]]; then : >"$step_dir/.$step_name.done"; fi
}

record_settings() { # record_settings RUN: sets record, the flags that put settings, command and seconds of all its steps on record
  local line
  record=()
  while IFS= read -r line; do record+=(--record "$line"); done < <(
    cat "$1/settings.txt"
    awk -F'\t' '{ sum[$1] += $2 } END { for (name in sum) print "seconds_" name "=" sum[name] }' "$1/times.tsv" # of every attempt
    printf 'train_command=%s\n' "$(<"$1/train-command.txt")"
  )
}

exists() { # exists PATH...: whether one of them is there; a pattern that finds nothing is not
  local path
  for path in "$@"; do
    if [[ -e "$path" ]]; then return 0; fi
  done
  return 1
}

keep_settings() { # keep_settings DIR NAME=VALUE...: other settings than those of a finished step or a checkpoint in DIR are refused
  local dir=$1 wanted kept unbound='(^| )flags=.*' # arguments, which only the last step reads
  shift
  if [[ "$subwords" != bpe ]]; then set -- "$@" "subwords=$subwords"; fi
  if [[ "$joint" == 0 ]]; then set -- "$@" "joint=0"; fi
  wanted=$(printf '%s\n' "$@")
  mkdir -p "$dir"
  kept=$wanted
  if [[ -f "$dir/settings.txt" ]] && exists "$dir"/.*.done "$dir"/checkpoints/checkpoint*.pt; then kept=$(<"$dir/settings.txt"); fi
  if exists "$dir"/.{binarise,text,train}.done "$dir"/checkpoints/checkpoint*.pt; then unbound='^$'; fi
  if [[ "$(sed -E "s/$unbound//" <<<"$kept")" != "$(sed -E "s/$unbound//" <<<"$wanted")" ]]; then
    diff "$dir/settings.txt" - <<<"$wanted" >&2 || true
    fail "$dir was made with other settings (<) than those of now (>); delete that folder or choose another one by WORK_DIR=..."
  fi
  printf '%s\n' "$wanted" >"$dir/settings.txt.part$node"
  mv "$dir/settings.txt.part$node" "$dir/settings.txt"
}

keep_evaluation() { # keep_evaluation DIR NAME=VALUE...: what was averaged and translated with other settings is done again
  local dir=$1 wanted
  shift
  wanted=$(printf '%s\n' "$@")
  if [[ ! -f "$dir/evaluation.txt" || "$(<"$dir/evaluation.txt")" != "$wanted" ]]; then
    rm -f "$dir/.average.done" "$dir/.model.done" "$dir"/.generate*.done
  fi
  printf '%s\n' "$wanted" >"$dir/evaluation.txt"
  evaluation=("$@") # for score
}

drop_usual() { # drop_usual NAME=VALUE...: of the settings on standard input, those that are neither these nor usual; values may be patterns
  local usual
  usual=$(printf '|%s' trial=0 flags= 'target_lang=.*' "${usual_data[@]}" "$@")
  sed -E "/^(${usual#|})$/d" | paste -s -d ';' -
}

find_changes() { # find_changes NAME=VALUE...: the settings of $data that are neither these nor $usual_data of common.sh, or of a trial
  if [[ -f "$data/settings.txt" ]]; then drop_usual "$@" <"$data/settings.txt"; else echo unknown; fi
}

keep_run() { # keep_run NAME=VALUE...: keep_settings of $run, with what is unusual about $data
  local changes
  changes=$(find_changes 'subwords=.*' 'joint=.*') # which keep_settings notes itself
  keep_settings "$run" "$@" ${changes:+"data=$changes"}
}

note_row() { # says before training if a row's score was published for other data
  local changes
  changes=$(find_changes)
  if [[ -n "$row" && -n "$changes" ]]; then
    printf '%s: note: the score of %s was published for other data (here %s), so there will be no verdict\n' "$recipe" "$row" "${changes//;/, }"
  fi
}

# Compares validation with the recipe's published_validation.tsv while it trains, if $data is usual, of whatever kind; warns of a run
# that is clearly off if it is the authors' model.
follow_validation() {
  if [[ -n "$(find_changes 'kind=.*')" ]]; then return; fi
  follow=(python "$recipe_tools/follow_validation.py" "${here:?is set by common.sh}/published_validation.tsv" --title "$recipe")
  if [[ "$model" == muse && -z "${row:-}${name_suffix:-}" ]]; then follow+=(--warn); fi
}

train_model() { # train_model DIR FLAGS...: fairseq-train on one or many devices; continues from the last checkpoint in DIR
  local dir=$1 command=(fairseq-train)
  shift
  if ((num_nodes > 1)); then
    # One process per GPU and node; the address of the first node comes from the cluster, see README.md.
    command=(torchrun --nnodes "$num_nodes" --nproc-per-node "$num_gpus" --rdzv-backend c10d
      --rdzv-id "${RDZV_ID:-$recipe-$seed}" --rdzv-endpoint "${RDZV_ENDPOINT:?set RDZV_ENDPOINT to HOST:PORT of the first node}"
      "$(command -v fairseq-train)")
  fi
  # Otherwise fairseq takes every GPU that it sees, and of several nodes with one GPU each only one.
  if ((num_gpus > 0)); then set -- "$@" --distributed-world-size "$((num_nodes * num_gpus))"; fi
  command+=("$@" --user-dir "$user_dir" --save-dir "$dir/checkpoints" --seed "$seed" --max-tokens "$max_tokens"
    --update-freq "$update_freq" --log-format simple "${device_flags[@]}")
  printf '%q ' "${command[@]}" >"$dir/train-command.txt"
  # The whole log goes to the step's log, its lines on progress also to the screen.
  if [[ -z "${follow[*]:-}" ]]; then follow=(grep --line-buffered -E ' \| (train_inner|valid|train) \| '); fi
  "${command[@]}" 2>&1 | tee >("${follow[@]}" >&3 || cat >/dev/null)
}

list_epoch_seconds() { # list_epoch_seconds LOG: number and seconds of training of each epoch that fairseq-train reports
  sed -nE 's/.* \| train \| epoch 0*([0-9]+) .* \| train_wall ([0-9.]+) .*/\1 \2/p' "$1"
}

check_trained() { # check_trained RUN: for evaluate.sh: the training is finished
  [[ -e "$1/.train.done" ]] || fail "there is no finished training in $1; run train.sh with the same settings first."
}

begin_evaluation() { # the same for $run, and the devices
  check_trained "$run"
  find_devices
}

# average_run epoch|update DATA BIN SOURCE TARGET NAME=VALUE...: $run/checkpoint_avg.pt of the last $averaged checkpoints, and the model
# folder; done again with another number of them, or for an evaluation with other settings NAME
average_run() {
  keep_evaluation "$run" "averaged=$averaged" "${@:6}"
  step "$run" average "average the last $averaged checkpoints" average_checkpoints "$run" "$1" "$averaged"
  step "$run" model "write the model folder" save_model "$run" "$run/checkpoint_avg.pt" "${@:2:4}"
}

average_checkpoints() { # average_checkpoints DIR epoch|update COUNT: the last COUNT of DIR/checkpoints -> DIR/checkpoint_avg.pt
  local last=(--num-epoch-checkpoints "$3")
  if [[ "$2" == update ]]; then last=(--num-update-checkpoints "$3"); fi
  if [[ "$trial" == 1 ]]; then last=(--num-update-checkpoints 2); fi
  python -m muse_plugin.cli average --inputs "$1/checkpoints" --output "$1/checkpoint_avg.pt" "${last[@]}"
}

save_model() { # save_model DIR CHECKPOINT DATA BIN SOURCE TARGET: DIR/model, which `muse-plugin translate --path` and `view --path` take
  local model_dir=$1/model checkpoint=$2 bin_dir=$4 files=()
  name_subwords "$3"
  # Codes of the first versions of subword-nmt, as another's archive may have, name no version.
  if [[ "$subwords" == bpe && "$(head -n 1 "${subword_files[0]}")" != '#version: 0.2'* ]]; then
    printf '%s: warning: %s is not of version 0.2, so %s is not written\n' "$recipe" "${subword_files[0]}" "$model_dir" >&3
    return
  fi
  if [[ "$joint" == 0 ]]; then
    files=("--source-$subword_flag" "${subword_files[0]}" "--target-$subword_flag" "${subword_files[1]}")
  elif [[ "$subwords" != none ]]; then
    files=("--$subword_flag" "${subword_files[0]}")
  fi
  rm -rf "${model_dir:?}"
  python -m muse_plugin.cli text-pipeline --source-lang "$5" --target-lang "$6" --tokenizer moses "${text_flags[@]}" \
    "${files[@]}" --data "$bin_dir" --output "$model_dir"
  ln "$checkpoint" "$model_dir/" 2>/dev/null || cp "$checkpoint" "$model_dir/"
  printf "%s: translate other sentences: muse-plugin translate --path %q\n" "$recipe" "$model_dir" >&3
}

generate() { # generate DIR SUBSET FLAGS...: translates a subset; DIR/generated/generate-SUBSET.txt
  local dir=$1 subset=$2 short=()
  shift 2
  if [[ "$trial" == 1 ]]; then short=(--max-len-b 10); fi # what has hardly been trained does not know when to stop
  fairseq-generate "$@" "${short[@]}" --user-dir "$user_dir" --gen-subset "$subset" \
    --results-path "$dir/generated" "${device_flags[@]}"
}

# score DIR LOG OUTPUT FLAGS...: `muse-plugin evaluate` with the settings, command and times of the run on record, the settings of the
# evaluation, and what judge set
score() {
  local dir=$1 log=$2 output=$3 record setting
  shift 3
  rm -f "$output" # what fails leaves no score of before
  record_settings "$dir"
  for setting in "${evaluation[@]}"; do
    case "$setting" in
      flags=) ;;
      flags=*) record+=(--record "generate_$setting") ;; # flags are those of the training
      *) record+=(--record "$setting") ;;
    esac
  done
  case "$subwords" in
    none) record+=(--post-process none) ;;
    sentencepiece*) record+=(--post-process sentencepiece) ;;
  esac
  python -m muse_plugin.cli evaluate --generation-log "$log" --output "$output" "${record[@]}" "${published[@]}" "${verdict[@]}" "$@"
}

# judge TITLE PUBLISHED LOW HIGH NAME=VALUE...: sets verdict and published, for `score`, if these are the settings of data, run and
# evaluation (values may be patterns); next to another setting no score is shown, but what differs. PUBLISHED may be -: none.
# shellcheck disable=SC2034 # for evaluate.sh
judge() {
  local title=$1 score=$2 interval=("$3" "$4") changes
  if [[ "$score" == - ]]; then
    verdict=() published=()
    printf '\n%s: nothing is published to compare with\n' "$title"
    return
  fi
  changes=$(
    {
      sed 's/^data=//' "${run:?is set by common.sh}"/{settings,evaluation}.txt | tr ';' '\n'
      cat "${data:?is set by common.sh}/settings.txt" 2>/dev/null || echo 'data=deleted'
    } | sort -u | drop_usual "model=.*" "row=.*" "seed=.*" simcut=0 rdrop=0 bpe_dropout=0 "${@:5}"
  )
  verdict=() published=()
  if [[ -n "$changes" ]]; then
    printf '\n%s: not the published setting, so no score to compare with: %s\n' "$title" "${changes//;/, }"
  else
    verdict=(--expect "${interval[@]}") published=(--record "published=$score")
    printf '\n%s: published: %s\n' "$title" "$score"
  fi
}

fetch() { # fetch NAME...: files of the recipe's downloads.tsv into RAW_DIR; in a trial, whatever is there will do
  local options=()
  if [[ "$trial" == 1 ]]; then options=(--any-content); fi
  python "$recipe_tools/download.py" "${here:?is set by common.sh}/downloads.tsv" "$raw_dir" "${options[@]}" --only "$@"
}

name_files() { # name_files PATH FILE...: a setting that tells files from others of the same name: the name of PATH @ their checksum
  printf '%s@%s' "$(basename "$1")" "$(cat "${@:2}" 2>/dev/null | cksum | cut -d ' ' -f 1)"
}

is_raw() { # is_raw NAME: whether RAW_DIR has the file, plain or as .gz
  [[ -f "$raw_dir/$1" || -f "$raw_dir/$1.gz" ]]
}

read_raw() { # read_raw NAME: prints a file of RAW_DIR that is there as NAME or NAME.gz
  if [[ -f "$raw_dir/$1" ]]; then
    cat "$raw_dir/$1"
  elif [[ -f "$raw_dir/$1.gz" ]]; then
    gzip -dc "$raw_dir/$1.gz"
  else
    fail "neither $1 nor $1.gz is in $raw_dir; run prepare.sh without RAW_DIR to download it."
  fi
}

limit_lines() { # limit_lines N: the first N lines in a trial, all otherwise
  if [[ "$trial" == 1 ]]; then
    # not head: closing the pipe early would count as a failure of what writes into it
    sed -n "1,$1p"
  else
    cat
  fi
}

expect_lines() { # expect_lines FILE N: refuses a file that does not have N lines, but in a trial
  local have
  have=$(wc -l <"$1")
  if [[ "$trial" != 1 ]] && ((have != $2)); then
    fail "$1 must have $2 lines, but has $((have)); the original files are not those of this recipe, or a step was interrupted: delete $(dirname "${1%/*}") and run again."
  fi
}

expect_about() { # expect_about FILE N: as expect_lines for what depends on the tokeniser: says so if a few lines more or less are left
  local have
  have=$(wc -l <"$1")
  if [[ "$trial" != 1 ]] && ((have != $2)); then
    if ((have < $2 * 199 / 200 || have > $2 * 201 / 200)); then expect_lines "$@"; fi
    printf '%s: warning: %s has %d lines, the published file %d: another version of sacremoses, or a difference to Moses\n' \
      "$recipe" "$1" "$have" "$2" >&3
  fi
}

corpus() { # corpus COMMAND ...: examples/recipe/corpus.py
  python "$recipe_tools/corpus.py" "$@"
}

# name_subwords DATA: sets subword_files: the files of the subwords of both languages, or with JOINT=0 of each; and subword_flag, by
# which muse-plugin text-pipeline is given them
name_subwords() {
  local name=bpe end=codes
  subword_flag=bpe-codes
  if [[ "$subwords" != bpe ]]; then name=sentencepiece end=model subword_flag=sentencepiece; fi
  subword_files=("$1/$name.$end")
  if [[ "$joint" == 0 ]]; then subword_files=("$1/$name.source.$end" "$1/$name.target.$end"); fi
}

segment_text() { # segment_text DATA MERGES SOURCE TARGET SPLIT...: subwords of DATA/text/train; all splits to DATA/bpe
  local dir=$1 merges=$2 source=$3 target=$4 languages=("$3" "$4") separate=() split codes workers=1 i
  if [[ "$trial" != 1 ]]; then workers=$(count_cores); fi
  shift 4
  mkdir -p "$dir/bpe"
  if [[ "$subwords" == none ]]; then
    for split in "$@"; do cp "$dir/text/$split.$source" "$dir/text/$split.$target" "$dir/bpe"; done
    return
  fi
  if [[ "$subwords" != bpe ]]; then
    if [[ "$joint" == 0 ]]; then separate=(--separate); fi
    python "$recipe_tools/segment_pieces.py" "$dir" --langs "$source" "$target" --splits "$@" --size "$merges" \
      --type "${subwords#*:}" "${separate[@]}"
    return
  fi
  name_subwords "$dir"
  for i in 0 1; do
    codes=${subword_files[i]:-${subword_files[0]}}
    if [[ "$joint" == 0 ]]; then
      subword-nmt learn-bpe -s "$merges" <"$dir/text/train.${languages[i]}" >"$codes"
    elif ((i == 0)); then
      cat "$dir/text/train.$source" "$dir/text/train.$target" | subword-nmt learn-bpe -s "$merges" >"$codes"
    fi
    for split in "$@"; do
      subword-nmt apply-bpe -c "$codes" --num-workers "$workers" \
        --input "$dir/text/$split.${languages[i]}" --output "$dir/bpe/$split.${languages[i]}"
    done
  done
}

find_dictionary() { # find_dictionary DATA joined|own: sets dictionary_flags of fairseq-preprocess; JOINT=0 makes joined ones own
  local dir=$1 kind=$2
  dictionary_flags=()
  if [[ "$joint" == 0 ]]; then kind=own; fi
  if [[ "$kind" == joined ]]; then dictionary_flags=(--joined-dictionary); fi
  if [[ "$subwords" == bpe || "$subwords" == none ]]; then return; fi
  if [[ "$joint" == 0 ]]; then
    dictionary_flags+=(--srcdict "$dir/pieces.source.txt" --tgtdict "$dir/pieces.target.txt")
  else
    dictionary_flags+=(--srcdict "$dir/pieces.txt")
    if [[ "$kind" == own ]]; then dictionary_flags+=(--tgtdict "$dir/pieces.txt"); fi
  fi
}

binarise() { # binarise BIN SOURCE TARGET joined|own FLAGS...: $data/bpe to BIN; the last of several equal flags of fairseq-preprocess counts
  rm -rf "${1:?}"
  find_dictionary "$data" "$4"
  fairseq-preprocess --source-lang "$2" --target-lang "$3" --workers "$(count_cores)" --destdir "$1" \
    --trainpref "$data/bpe/train" --validpref "$data/bpe/valid" --testpref "$data/bpe/test" \
    "${dictionary_flags[@]}" "${@:5}"
}

binarise_both() { # binarise_both BIN SOURCE TARGET: both directions to $data/bin-both with BIN's one dictionary; SOURCE then holds all inputs
  local bin=$1 source=$2 target=$3 part
  rm -rf "${data:?}"/{bpe,bin}-both
  mkdir -p "$data/bpe-both"
  for part in train valid; do
    cat "$data/bpe/$part.$source" "$data/bpe/$part.$target" >"$data/bpe-both/$part.$source"
    cat "$data/bpe/$part.$target" "$data/bpe/$part.$source" >"$data/bpe-both/$part.$target"
  done
  fairseq-preprocess --source-lang "$source" --target-lang "$target" --workers "$(count_cores)" --destdir "$data/bin-both" \
    --srcdict "$bin/dict.$source.txt" --tgtdict "$bin/dict.$target.txt" \
    --trainpref "$data/bpe-both/train" --validpref "$data/bpe-both/valid"
}

tokenize_raw() { # tokenize_raw DATA SOURCE TARGET NAME... -- FLAGS...: DATA/raw/NAME.<lang> to DATA/tokenized/NAME.<lang>
  local dir=$1 source=$2 target=$3 names=() language name workers=1
  if [[ "$trial" != 1 ]]; then workers=$(count_cores); fi
  shift 3
  while [[ "$1" != -- ]]; do
    names+=("$1")
    shift
  done
  shift
  for language in "$source" "$target"; do
    for name in "${names[@]}"; do
      corpus tokenize "$dir/raw/$name.$language" "$dir/tokenized/$name.$language" --lang "$language" \
        --workers "$workers" "$@"
    done
  done
}

choose_criterion() { # choose_criterion DATA: sets criterion, the flags of the loss and of BPE-dropout, name_suffix, name and run
  local dir=$1
  simcut=${SIMCUT:-0}
  rdrop=${RDROP:-0}
  bpe_dropout=${BPE_DROPOUT:-0}
  name_suffix=
  name_subwords "$dir"
  case "$subwords" in
    none) name_suffix+=-words ;;
    sentencepiece*) name_suffix+=-${subwords/:/-} ;;
  esac
  if [[ "$joint" == 0 ]]; then name_suffix+=-separate; fi
  if [[ "$simcut" != 0 && "$rdrop" != 0 ]]; then fail "SIMCUT and RDROP are two criterions: set one of them."; fi
  if [[ "$simcut" != 0 ]]; then
    criterion=(--criterion label_smoothed_cross_entropy_with_simcut --simcut-alpha 3 --simcut-p 0.05)
    name_suffix+=-simcut
  elif [[ "$rdrop" != 0 ]]; then
    criterion=(--criterion label_smoothed_cross_entropy_with_rdrop --rdrop-alpha 5)
    name_suffix+=-rdrop
  else
    criterion=(--criterion label_smoothed_cross_entropy)
  fi
  criterion+=(--label-smoothing 0.1)
  if [[ "$bpe_dropout" != 0 ]]; then
    criterion+=(--task translation_with_bpe_dropout --bpe-dropout "$bpe_dropout" --train-text "$dir/text/train"
      --bpe-codes "${subword_files[0]}")
    if [[ "$joint" == 0 ]]; then criterion+=(--target-bpe-codes "${subword_files[1]}"); fi
    name_suffix+=-bpe-dropout
  fi
  name=$model$name_suffix
  run=$work_dir/$name-seed$seed
}

# choose_directions STEM PREFIX BIN: sets name, run, bin and prepared for BIDIRECTIONAL=0 (one direction), pretrain (both at once) or
# finetune (one, from what pretrain has learnt); BIN has one dictionary for both languages.
choose_directions() {
  bidirectional=${BIDIRECTIONAL:-0}
  name=$1$name_suffix bin=$data/bin prepared=binarise
  if [[ "$bidirectional" != 0 ]]; then
    [[ -z "$row" ]] || fail "ROW=$row is trained in one direction, but BIDIRECTIONAL is $bidirectional; set one of them."
    [[ "$joint" == 1 ]] || fail "BIDIRECTIONAL=$bidirectional needs joint subwords, but JOINT is 0."
    name=$1-bidirectional$name_suffix bin=$3 prepared=binarise-both
    pretrained=$work_dir/$2$1-bidirectional-pretrain-seed$seed
  fi
  if [[ "$bidirectional" == pretrain ]]; then name=$1-bidirectional-pretrain bin=$data/bin-both; fi
  run=$work_dir/$2$name-seed$seed
}

find_data() { # find_data [STEP]: for train.sh: the data are there, in the subwords of now
  local made now="SUBWORDS=$subwords JOINT=$joint"
  [[ -e "$data/.${1:-binarise}.done" ]] || fail "there is no data in ${bin:-$data}; run prepare.sh with the same settings first."
  if [[ ! -f "$data/settings.txt" ]]; then return; fi
  made=$(awk -F= '{ value[$1] = $2 } END { print "SUBWORDS=" ("subwords" in value ? value["subwords"] : "bpe"), "JOINT=" ("joint" in value ? value["joint"] : 1) }' "$data/settings.txt")
  [[ "$made" == "$now" ]] || fail "the data in $data are of $made, but now it is $now; set the same, or prepare other data by WORK_DIR=..."
}

find_start() { # for train.sh: find_data, and what BIDIRECTIONAL=finetune starts from; sets direction_flags
  local checkpoint=${pretrained:-}/checkpoints/checkpoint_best.pt
  find_data "$prepared"
  direction_flags=()
  if [[ "$bidirectional" == 0 ]]; then return; fi
  direction_flags=(--share-all-embeddings)
  if [[ "$bidirectional" == pretrain ]]; then
    [[ "$bpe_dropout" == 0 ]] || fail "BPE_DROPOUT reads one direction; use it with BIDIRECTIONAL=finetune."
  else
    [[ -e "$checkpoint" ]] || fail "there is nothing to start from in $pretrained; train with BIDIRECTIONAL=pretrain first."
    direction_flags+=(--finetune-from-model "$checkpoint")
  fi
}
