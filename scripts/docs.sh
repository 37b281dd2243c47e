#!/usr/bin/env bash
# Builds the site of README, docs/ and all other pages into a folder, and says where it opens.
#
#   bash scripts/docs.sh               into runs/site
#   bash scripts/docs.sh FOLDER
# Needs `READTHEDOCS=1 pip install -e '.[docs]'` (Sphinx). A link between pages that leads nowhere ends it with an error.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
site=${1:-$root/runs/site}
# shellcheck source=scripts/environment.sh
. "$root/scripts/environment.sh"
enter_environment
python -c 'import furo, myst_parser, sphinx' 2>/dev/null || {
  echo "docs: the site needs Sphinx, furo and myst-parser; install them with: READTHEDOCS=1 pip install -e '.[docs]'" >&2
  exit 2
}
python -m sphinx -q -W --keep-going -c "$root/docs" -b html "$root" "$site"
printf 'open %s\n' "$site/docs/index.html"
