#!/usr/bin/env bash
# Averages the last 10 epochs of a training (train.sh), translates the test set (beam 5, length penalty 1), scores it.
#
#   MODEL=muse bash examples/iwslt14_de_en/evaluate.sh      the same settings as for train.sh, ROW among them
#
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results.json. The last line says whether tokenised BLEU lies in the expected interval; if not, the exit code is 1.
set -euo pipefail
# shellcheck source=examples/iwslt14_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
if [[ "$bidirectional" == pretrain ]]; then bin=$data/bin-joined; fi # the same dictionary, with a test set
average_run epoch "$data" "$bin" de en "flags=$*"
step "$run" generate "translate the test set" generate "$run" test "$bin" --path "$run/checkpoint_avg.pt" \
  --task translation --source-lang de --target-lang en --beam 5 --lenpen 1 --batch-size 128 "$@"

judge "$recipe, ${row:-$model}" "${expected[@]}" bidirectional=0 updates=20000 tokens_per_update=16000 averaged=10
score "$run" "$run/generated/generate-test.txt" "$run/results.json" --target-lang en --lowercase
