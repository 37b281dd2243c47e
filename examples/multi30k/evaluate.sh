#!/usr/bin/env bash
# Averages the last 10 epochs (PROFILE=cpu: 3) of a training (train.sh), translates the three test sets (beam 5), scores them.
#
#   MODEL=muse bash examples/multi30k/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/model, which `muse-plugin translate --path` takes.
# Writes RUN/results/<test>.json. Minutes on two cores. With PROFILE=published, the last line of each score says whether the
# tokenised BLEU lies in the expected interval, and the exit code is 1 if one does not.
set -euo pipefail
# shellcheck source=examples/multi30k/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

begin_evaluation
# The short training of PROFILE=cpu has only ten epochs, of which the first ones are no use.
averaged=${AVERAGED:-$(if grep -q '^profile=cpu$' "$run/settings.txt"; then echo 3; else echo 10; fi)}
average_run epoch "$data" "$data/bin" en "$target" "flags=$*"

find_score() { # find_score TEST: Transformer-tiny as published, tokenised BLEU, and one less, three more
  case "$target-$1" in
    de-test_2016_flickr) echo 41.02 40.02 44.02 ;;
    de-test_2017_flickr) echo 33.36 32.36 36.36 ;;
    de-test_2017_mscoco) echo 29.88 28.88 32.88 ;;
    fr-test_2016_flickr) echo 61.80 60.80 64.80 ;;
    fr-test_2017_flickr) echo 53.46 52.46 56.46 ;;
    fr-test_2017_mscoco) echo 44.52 43.52 47.52 ;;
  esac
}
outside=0
for i in "${!tests[@]}"; do
  test=${tests[i]}
  subset=test$( ((i == 0)) || printf '%d' "$i")
  step "$run" "generate-$test" "translate $test" generate "$run" "$subset" "$data/bin" --path "$run/checkpoint_avg.pt" \
    --task translation --beam 5 --batch-size 100 "$@"
  if [[ -z "$row" ]]; then read -r -a expected <<<"$(find_score "$test")"; else expected=(- - -); fi # rows: IWSLT14 alone
  judge "$test, $name next to Transformer-tiny" "${expected[@]}" profile=published updates=8000 tokens_per_update=4096 averaged=10
  mkdir -p "$run/results"
  score "$run" "$run/generated/generate-$subset.txt" "$run/results/$test.json" --target-lang "$target" --lowercase \
    --record "test_set=$test" || outside=$?
  ((outside < 2)) || exit "$outside" # no verdict, but an error
done
exit "$outside"
