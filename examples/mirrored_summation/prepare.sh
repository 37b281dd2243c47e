#!/usr/bin/env bash
# Mirrored summation has no files: sentences are drawn while they are read, the same ones every time. This only checks the settings.
#
#   bash examples/mirrored_summation/prepare.sh
#
# See train.sh for MODELS, TERMS and PROFILE.
set -euo pipefail
# shellcheck source=examples/mirrored_summation/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
printf '%s: %d + %d + %d sentences of %d vectors of width %d, K = %s: nothing to prepare, nothing to download\n' \
  "$recipe" "$train" "$valid" "$test" "$length" "$vector" "${all_terms[*]}"
