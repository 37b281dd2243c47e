# shellcheck shell=bash
# To be sourced: which Python environment the scripts of this repository use.
#
#   . scripts/environment.sh
#   enter_environment        # afterwards `python`, `fairseq-train`, `muse-plugin` are those of the environment
#
# An active virtual environment wins, then an active conda environment other than base, then .venv in the repository.

muse_plugin_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

find_environment() {
  if [[ -n "${VIRTUAL_ENV:-}" ]]; then
    printf '%s\n' "$VIRTUAL_ENV"
  elif [[ -n "${CONDA_PREFIX:-}" && "${CONDA_DEFAULT_ENV:-base}" != base ]]; then
    printf '%s\n' "$CONDA_PREFIX"
  else
    printf '%s\n' "$muse_plugin_root/.venv"
  fi
}

enter_environment() {
  local prefix
  prefix=$(find_environment)
  if [[ ! -x "$prefix/bin/python" ]]; then
    printf 'There is no Python in %s; run: bash %q\n' "$prefix" "$muse_plugin_root/scripts/setup.sh" >&2
    return 1
  fi
  export PATH="$prefix/bin:$PATH"
  hash -r
}

enter_repository() { # enters the environment, unless SKIP_SETUP=1: then the python on the PATH is used as it is; sets PYTHONPATH
  if [[ "${SKIP_SETUP:-0}" != 1 ]]; then enter_environment; fi
  export PYTHONPATH="$muse_plugin_root${PYTHONPATH:+:$PYTHONPATH}"
}

set_up_repository() { # installs what is missing, unless SKIP_SETUP=1, and enters the repository
  if [[ "${SKIP_SETUP:-0}" != 1 ]]; then bash "$muse_plugin_root/scripts/setup.sh" --if-needed; fi
  enter_repository
}

count_cores() { # count_cores [MOST]: those that this process may use
  python -c 'import os, sys
cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
print(min([cores, *map(int, sys.argv[1:])]))' "$@"
}
