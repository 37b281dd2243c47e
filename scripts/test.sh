#!/usr/bin/env bash
# Runs the tests on all cores, after installing what is missing.
#
#   bash scripts/test.sh                  shows that an installation and a change work: unit tests, documents, one way from
#                                         raw text to translations and one to labels
#   bash scripts/test.sh --all            everything that needs no GPU and no patience, as .ci/run does
#   bash scripts/test.sh tests/unit -x    arguments go to pytest; --numprocesses 0 for a debugger
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bash "$script/setup.sh" --if-needed --dev
# shellcheck source=scripts/environment.sh
. "$script/environment.sh"
enter_environment
cd "$muse_plugin_root"
unset PYTHONDONTWRITEBYTECODE # hundreds of processes import the package: it is compiled once
if (($# == 0)); then
  # Recipes start many processes; they run with --all.
  set -- tests/unit tests/docs tests/integration/test_end_to_end.py --ignore tests/unit/recipes
elif [[ "$1" == --all ]]; then
  shift
  set -- --durations 20 "$@"
fi
case " $* " in
  *" -n"* | *" --numprocesses"* | *" --pdb "*) ;;
  *)
    # Each test in whichever process is free.
    # shellcheck disable=SC2119 # all of them
    set -- --numprocesses "$(count_cores)" --dist worksteal "$@"
    ;;
esac
exec python -m pytest "$@"
