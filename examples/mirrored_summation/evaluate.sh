#!/usr/bin/env bash
# Measures the best epoch of the models that train.sh made on the test sentences, draws the error against K, judges the order.
#
#   PROFILE=cpu bash examples/mirrored_summation/evaluate.sh      the same settings as for train.sh
#
# Writes RUN/results.json, WORK_DIR/<profile>/mirrored-summation.svg and .png, and says whether the published order holds: the
# Transformer best, flex second, six layers of small windows hardly better than two.
set -euo pipefail
# shellcheck source=examples/mirrored_summation/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# == 0)) || fail "this script takes no arguments, but got '$*'."
find_devices

validate() { # the test sentences; how many, how long and K: the checkpoint knows
  local device=()
  if ((num_gpus == 0)); then device=(--cpu); fi
  fairseq-validate --user-dir "$user_dir" --path "$run/checkpoints/checkpoint_best.pt" --valid-subset test \
    --task muse_mirrored_summation --batch-size 64 --num-workers 0 --log-format simple "${device[@]}"
}

evaluate() {
  choose_run
  check_trained "$run"
  step "$run" test "test $model, K = $terms, seed $seed" validate
  record_run "$run"
  python "$here/collect.py" --train-log "$run/train.log" --test-log "$run/test.log" --output "$run/results.json" "${record[@]}"
  results+=("$run/results.json")
}

results=()
for terms in "${all_terms[@]}"; do for_each_run evaluate; done
python "$here/plot.py" "${results[@]}" --output "$work_dir/$profile/mirrored-summation.svg" "$work_dir/$profile/mirrored-summation.png"
