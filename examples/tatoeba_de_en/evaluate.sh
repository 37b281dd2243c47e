#!/usr/bin/env bash
# Averages the last 10 epochs of a training (train.sh; PROFILE=cpu: the last 10 checkpoints, of every 100th update), translates
# the test set (beam 5), scores it, case kept.
#
#   MODEL=muse bash examples/tatoeba_de_en/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results.json. There is no published score for this data, hence no verdict.
set -euo pipefail
# shellcheck source=examples/tatoeba_de_en/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
kind=$(if grep -q '^profile=cpu$' "$run/settings.txt"; then echo update; else echo epoch; fi)
average_run "$kind" "$data" "$bin" de en "flags=$*"
step "$run" generate "translate the test set" generate "$run" test "$bin" --path "$run/checkpoint_avg.pt" \
  --task translation --source-lang de --target-lang en --beam 5 --batch-size 128 "$@"
score "$run" "$run/generated/generate-test.txt" "$run/results.json" --target-lang en
