#!/usr/bin/env bash
# Runs the tests, after installing what is missing. Arguments go to pytest: bash scripts/test.sh tests/unit -x
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bash "$script/setup.sh" --if-needed
# shellcheck source=scripts/environment.sh
. "$script/environment.sh"
enter_environment
cd "$muse_plugin_root"
exec python -m pytest "$@"
