#!/usr/bin/env bash
# Measures speed and memory on this machine and writes BENCHMARKS.md. Nothing else should run meanwhile.
#
#   bash examples/benchmark/run.sh          on the CPU, with 2 threads (THREADS=): about three hours on two cores, 12 GiB
#   bash examples/benchmark/run.sh cuda     on a GPU, in bfloat16 (DTYPE=)
#   bash examples/benchmark/run.sh report   BENCHMARKS.md again from what is there, without measuring
#   TRIAL=1 bash examples/benchmark/run.sh  one small case of each kind, to see that everything works: a minute
#
# Every number goes into $RESULTS_DIR/<device>-<name>.json (default: the folder of this script); results of both devices
# are kept side by side, and BENCHMARKS.md ($OUTPUT) shows all that is there. A trial writes both into runs/benchmark-trial.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
device=${1:-cpu}
if [[ ${TRIAL:-0} == 1 ]]; then
  results=${RESULTS_DIR:-$root/runs/benchmark-trial}
  output=${OUTPUT:-$results/BENCHMARKS.md}
else
  results=${RESULTS_DIR:-$here}
  output=${OUTPUT:-$root/BENCHMARKS.md}
fi
# shellcheck source=scripts/environment.sh
. "$root/scripts/environment.sh"
enter_repository
mkdir -p "$results"

options=(--threads "${THREADS:-2}")
[[ $device == cpu ]] || options+=(--device "$device" --dtype "${DTYPE:-bfloat16}")
trial=()

measure() { # measure NAME KIND FLAGS...
  local name=$1 kind=$2
  shift 2
  python -m muse_plugin.cli benchmark "$kind" "${options[@]}" "$@" "${trial[@]}" --json "$results/$device-$name.json"
}

if [[ $device == report ]]; then
  : # of what is there
elif [[ ${TRIAL:-0} == 1 ]]; then
  trial=(--rounds 1)
  measure conv conv --lengths 10 --kernels 3 3+15 --tokens 100
  measure generate generate --setting tiny --lengths 5 10 --vocabulary 100
  measure train train --setting tiny --lengths 5 10 --tokens 50 --vocabulary 100
  measure train-memory train --memory --setting tiny --lengths 5 --tokens 50 --vocabulary 100
  measure loss loss --tokens 100 --vocabularies 1000
  measure attention attention --lengths 10 --tokens 100
  measure attention-windows attention --windows --lengths 10 50 --sentences 4 --scales 1,3,N/4
  measure sentence sentence --lengths 10 --sentences 4 --vocabulary 100
  measure batches batches --sentences 1000
else
  measure conv conv --rounds 15
  for setting in six_layers base; do # one thread, as a server gives a request
    measure "generate-$setting" generate --setting "$setting" --threads 1 --sentences 1 8 32 64 --beam 5 1 --rounds 5 --max-seconds 75
  done
  measure train train --rounds 4 --max-seconds 130
  measure train-memory train --memory --lengths 25 100 --tokens 4096 --vocabulary 32000 --share-all-embeddings
  measure loss loss
  measure loss-memory loss --memory --tokens 4000
  measure attention attention
  measure attention-windows attention --windows --rounds 3 --max-seconds 45
  measure sentence sentence --rounds 3 --max-seconds 45
  measure batches batches
  # How cost grows with length.
  measure train-growth train --rounds 2 --max-seconds 20 --tokens 1000 --lengths 10 50 200 400 \
    --without "MUSE, unfused form" "MUSE, fairseq's loss" "MUSE-simple"
  # A batch of 64 sentences of 400 tokens takes minutes: it is measured in turns of its own.
  for batch in 1-8 64; do
    read -ra sentences <<<"${batch//-/ }"
    growth=(--rounds 2 --max-seconds 10 --sentences "${sentences[@]}" --lengths 10 25 50 100 200 400)
    measure "generate-growth-six-$batch" generate "${growth[@]}" --setting six_layers \
      --without "MUSE-simple, ordinary form" "MUSE-simple int8" "MUSE-simple, onnxruntime int8" "CTranslate2 Transformer int8"
    measure "generate-growth-base-$batch" generate "${growth[@]}" --setting base \
      --without "MUSE int8" "MUSE, onnxruntime int8" "CTranslate2 Transformer int8"
  done
fi
figures=()
if python -c 'import matplotlib' 2>/dev/null; then
  figures=(--figures "$results")
fi
steps=()
if [[ -e "$results/gpu/steps.json" ]]; then steps=(--gpu-steps "$results/gpu"); fi # what gpu.sh did
python -m muse_plugin.cli benchmark report "$results"/*.json --output "$output" "${figures[@]}" "${steps[@]}"
python "$here/targets.py" "$results"/*.json --report "$output"
