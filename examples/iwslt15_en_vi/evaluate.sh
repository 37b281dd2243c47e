#!/usr/bin/env bash
# Averages the last 10 epochs of a training (train.sh), translates tst2013 (beam 5, length penalty 1), scores it, case kept.
#
#   MODEL=muse bash examples/iwslt15_en_vi/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results.json. The last line says whether tokenised BLEU lies in the expected interval; if not, the exit code is 1.
set -euo pipefail
# shellcheck source=examples/iwslt15_en_vi/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
average_run epoch "$data" "$bin" en vi "flags=$*"
step "$run" generate "translate tst2013" generate "$run" test "$bin" --path "$run/checkpoint_avg.pt" \
  --task translation --source-lang en --target-lang vi --beam 5 --lenpen 1 --batch-size 128 "$@"

case "$model" in # published, half a point to either side
  muse) expected=(31.3 30.8 31.8) ;;
  muse_simple) expected=(30.7 30.2 31.2) ;;
  transformer) expected=(30.6 30.1 31.1) ;;
  *) expected=(- - -) ;;
esac
judge "$recipe, $model" "${expected[@]}" subwords=none updates=10000 tokens_per_update=16000 averaged=10
score "$run" "$run/generated/generate-test.txt" "$run/results.json" --target-lang vi
