#!/usr/bin/env bash
# Runs the tests, after installing what is missing. Arguments go to pytest: bash scripts/test.sh tests/unit -x
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bash "$script/setup.sh" --if-needed
# shellcheck source=scripts/environment.sh
. "$script/environment.sh"
enter_environment
cd "$muse_plugin_root"
unset PYTHONDONTWRITEBYTECODE # hundreds of processes import the package: it is compiled once
if (($# == 0)); then
  # Everything: on all cores, each test in whichever process is free; the slowest are listed.
  set -- --numprocesses "$(python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)')" \
    --dist worksteal --durations 20
fi
exec python -m pytest "$@"
