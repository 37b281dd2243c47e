#!/usr/bin/env bash
# Everything of this project that needs a GPU, in order of worth, within a limit of minutes. See docs/gpu.md.
#
#   bash examples/benchmark/gpu.sh               on a machine with a GPU: 25 minutes (MINUTES=); run again to continue
#   bash examples/benchmark/gpu.sh --rehearse    the same steps in small on the CPU, to know that they work: minutes
#   bash examples/benchmark/gpu.sh --parts b d   some parts only: a tests, b convolution, c training step, d decoding,
#                                                e Multi30k, f windows, LAMA and head-wise match
#   bash examples/benchmark/gpu.sh --report      write BENCHMARKS.md from what is there, without measuring
#
# Results: $RESULTS_DIR/cuda-*.json and $RESULTS_DIR/gpu/ (default: the folder of this script; of a rehearsal
# runs/gpu-rehearsal). Nothing is fetched: Multi30k needs its raw files in $RAW_DIR (default: runs/multi30k/raw).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
# shellcheck source=scripts/environment.sh
. "$root/scripts/environment.sh"
enter_repository
exec python "$here/gpu.py" --minutes "${MINUTES:-25}" "$@"
