#!/usr/bin/env bash
# Distillation: trains a teacher by the recipe of its data, lets it translate the training text (beam 5), binarises what it wrote.
#
#   bash examples/distill/prepare.sh                              Multi30k English-German
#   DATASET=tatoeba_de_en bash examples/distill/prepare.sh        Tatoeba German-English
#
#   TEACHER=transformer   or muse, muse_simple: MODEL of that recipe; TEACHER_SEED=1, TEACHER_UPDATES=... its other settings;
#                         PROFILE, MERGES, SIMCUT, BPE_DROPOUT ... mean what they mean there
#   TEACHER_DIR=...       WORK_DIR of a finished run of that recipe (default: WORK_DIR/<dataset>, where it is trained)
#   SHARDS=20             parts that the text is translated in: what is interrupted begins again with the part it was at
# See examples/recipe/recipe.sh for WORK_DIR, TRIAL and the rest. Arguments go to fairseq-generate. Result: WORK_DIR/data/bin.
set -euo pipefail
# shellcheck source=examples/distill/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

shards=${SHARDS:-$([[ "$trial" == 1 ]] && echo 2 || echo 20)}
keep_settings "$work_dir/teacher" "${data_settings[@]}" "updates=${TEACHER_UPDATES:-}" "merges=${MERGES:-}" "profile=${PROFILE:-published}"
find_devices

train_teacher() { # each script continues where it was; its own steps are marked in teacher_dir
  local script code
  for script in prepare train evaluate; do
    code=0
    WORK_DIR=$teacher_dir RAW_DIR=$raw_dir MODEL=$teacher SEED=$teacher_seed UPDATES=${TEACHER_UPDATES:-} AVERAGED='' KEEP='' \
      ROW='' TARGET_LANG='' ATTENTION='' BIDIRECTIONAL='' SKIP_SETUP=1 bash "$here/../$dataset/$script.sh" || code=$?
    # evaluate.sh gives 1 where the score is not the published one: said, and no reason to stop.
    ((code == 0 || code == 1)) || return "$code"
  done
  [[ -e "$teacher_run/checkpoint_avg.pt" ]]
}

step "$work_dir/teacher" train "train the teacher, $teacher (examples/$dataset)" train_teacher
keep_settings "$data" "${data_settings[@]}" "teacher_checkpoint=$(name_files "$teacher_run" "$teacher_run/checkpoint_avg.pt")" "shards=$shards" \
  "flags=" ${1:+"generate_flags=$*"}
folders=()
for ((shard = 0; shard < shards; shard++)); do
  step "$data" "translate-$shard" "translate the training text, part $((shard + 1)) of $shards" \
    generate "$data/part-$shard" train "$teacher_data/bin" --path "$teacher_run/checkpoint_avg.pt" --task translation \
    --source-lang "$source" --target-lang "$target" --beam 5 --max-tokens 4000 --num-shards "$shards" --shard-id "$shard" "$@"
  folders+=("$data/part-$shard/generated/generate-train.txt")
done
step "$data" text "gather the translations" python "$here/gather.py" "${folders[@]}" \
  --source "$teacher_data/bpe/train.$source" --outputs "$data/text/train.$source" "$data/text/train.$target"
step "$data" binarise "binarise (fairseq-preprocess)" binarise "$data/bin" "$source" "$target" own \
  --trainpref "$data/text/train" --validpref "$teacher_data/bpe/valid" --testpref "$teacher_data/bpe/$test" \
  --srcdict "$teacher_data/bin/dict.$source.txt" --tgtdict "$teacher_data/bin/dict.$target.txt"
printf '%s: ready: %s\n' "$recipe" "$data/bin"
