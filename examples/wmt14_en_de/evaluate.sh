#!/usr/bin/env bash
# Averages the last checkpoints of a training (train.sh), translates newstest2014 (beam 4, length penalty 0.6), scores it.
#
#   MODEL=muse bash examples/wmt14_en_de/evaluate.sh      the same settings as for train.sh
#
#   AVERAGED=10   how many checkpoints; the authors chose it by the BLEU of newstest2013 (SUBSET=valid)
#   SUBSET=test   or valid
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results.json. The last line says whether tokenised BLEU after compound splitting, as published, lies in the expected
# interval; if not, the exit code is 1.
set -euo pipefail
# shellcheck source=examples/wmt14_en_de/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
subset=${SUBSET:-test}
average_run update "$data" "$bin" en de "flags=$*"
step "$run" "generate-$subset" "translate the subset $subset" generate "$run" "$subset" "$bin" --path "$run/checkpoint_avg.pt" \
  --task translation --source-lang en --target-lang de --beam 4 --lenpen 0.6 --batch-size 128 "$@"

case "$model" in # published, half a point to either side
  muse) expected=(29.9 29.4 30.4 updates=30000 tokens_per_update=458752) ;;
  muse_simple) expected=(29.8 29.3 30.3 "updates=75 epochs" tokens_per_update=573440) ;;
  transformer) expected=(29.1 28.6 29.6 updates=30000 tokens_per_update=458752) ;;
esac
verdict=() published=()
if [[ "$subset" == test ]]; then judge "$recipe, $model, after compound splitting" "${expected[@]}" 'kind=.*' 'averaged=.*'; fi
if ((${#verdict[@]} > 0)); then verdict+=(--expect-metric compound_split_bleu); fi
score "$run" "$run/generated/generate-$subset.txt" "$run/results$([[ "$subset" == test ]] || echo "-$subset").json" --target-lang de \
  --compound-split --record "test_set=$subset"
