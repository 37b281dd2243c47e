#!/usr/bin/env bash
# Installs muse_plugin and what it needs; safe to run again, also after it was interrupted.
#
#   bash scripts/setup.sh               into the active virtual (or conda) environment, otherwise into .venv in the repository;
#                                       ends with `muse-plugin doctor`
#   bash scripts/setup.sh --if-needed   the same, but silent and done in a second when everything is there
#   bash scripts/setup.sh --dev         also what the tests need: pytest, linters, transformers, a browser's driver
#
# PYTHON=python3.12        the Python that .venv is made with (3.10 to 3.14; default: the first that is found)
# TORCH_SPEC="torch==2.4.1 --index-url ..."  what pip installs when there is no torch yet. An installed torch is kept.
# FAIRSEQ_EXTENSIONS=1     compiles fairseq's extensions, which needs a C++ compiler and three minutes; otherwise compiled
#                          ones are used where pip has them in its cache, and numpy stands in for them where it has not.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/environment.sh
. "$script/environment.sh"
root=$muse_plugin_root

if_needed=false
extras=(recipes)
for option in "$@"; do
  case "$option" in
    --if-needed) if_needed=true ;;
    --dev) extras+=(dev) ;;
    *) echo "usage: bash scripts/setup.sh [--if-needed] [--dev]" >&2; exit 2 ;;
  esac
done

fail() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

step() { # step WHAT COMMAND...: runs a command that has to succeed, its output goes to the log
  local what=$1
  shift
  printf '%s ...\n' "$what"
  if ! run_logged "$@"; then
    tail -n 5 "$log" >&2
    fail "'$what' failed; the whole output is in $log"
  fi
}

run_logged() {
  printf '\n$ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1
}

versions="3.10 to 3.14"
check_version='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))'
tell_version='import sys; print("%d.%d" % sys.version_info[:2])'

is_usable_python() { # of these versions, able to make virtual environments
  "$1" -c "import venv, ensurepip; $check_version" >/dev/null 2>&1
}

find_python() {
  local candidate
  if [[ -n "${PYTHON:-}" ]]; then
    is_usable_python "$PYTHON" || fail "PYTHON must be Python $versions with venv and ensurepip, but $PYTHON is not."
    printf '%s\n' "$PYTHON"
    return
  fi
  for candidate in python3 python python3.14 python3.13 python3.12 python3.11 python3.10; do
    if is_usable_python "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python $versions with venv and ensurepip was found; install one (Debian: python3-venv) or name it: PYTHON=/path/to/python3.11"
}

refuse_other_python() { # an environment that is there stays as it is
  local wanted has
  [[ -n "${PYTHON:-}" && -x "$python" ]] || return 0
  wanted=$(find_python)
  wanted=$("$wanted" -c "$tell_version") has=$("$python" -c "$tell_version")
  [[ "$wanted" == "$has" ]] ||
    fail "PYTHON must be of the environment's version, Python $has of $prefix, but $PYTHON is Python $wanted; leave it unset, or deactivate or remove that environment to get one made."
}

make_environment() {
  local base
  if [[ -x "$prefix/bin/python" ]] && "$prefix/bin/python" -m pip --version >/dev/null 2>&1; then
    return
  fi
  # An environment made by uv, for one, has no pip.
  if [[ "$prefix" != "$root/.venv" ]] && "$prefix/bin/python" -m ensurepip >/dev/null 2>&1; then
    return
  fi
  [[ "$prefix" == "$root/.venv" ]] || fail "the active environment $prefix has no working python and pip; deactivate it or repair it."
  base=$(find_python)
  printf 'creating the virtual environment %s ...\n' "$prefix"
  # --clear: what an interrupted run left behind is no use
  "$base" -m venv --clear "$prefix" || fail "'$base -m venv' failed; see above."
}

install_torch() {
  local words
  if "$python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
    return
  fi
  if [[ -n "${TORCH_SPEC:-}" ]]; then
    read -ra words <<<"$TORCH_SPEC"
    step "installing $TORCH_SPEC" "${pip[@]}" "${words[@]}"
    return
  fi
  if [[ "$(uname -s)" == Darwin ]] || nvidia-smi -L >/dev/null 2>&1; then
    step "installing torch" "${pip[@]}" "torch>=2.4"
    return
  fi
  # Without a GPU, only the CPU build: the plain name would bring gigabytes of CUDA libraries. A version with "+cpu" never
  # matches another build. First from wherever pip looks by itself (a mirror, a folder), then from PyTorch's own site.
  printf 'installing torch, build for the CPU ...\n'
  words=(--retries 1 --timeout 30 "torch==2.13.0+cpu")
  run_logged "${pip[@]}" "${words[@]}" ||
    run_logged "${pip[@]}" "${words[@]}" --index-url https://download.pytorch.org/whl/cpu ||
    fail "no CPU build of torch 2.13.0 could be installed (see $log); install a torch of your choice into $prefix, or name one: TORCH_SPEC='torch==2.4.1 --index-url ...' bash scripts/setup.sh"
}

install_fairseq() {
  local options=("${pip[@]}" --no-deps --no-build-isolation)
  local fairseq
  fairseq=$("$python" "$inspect" fairseq)
  # READTHEDOCS and CUDA_HOME decide what fairseq's setup compiles: nothing, or parts that need a CUDA compiler.
  if [[ "${FAIRSEQ_EXTENSIONS:-}" != 1 ]]; then
    step "installing fairseq" env -u CUDA_HOME READTHEDOCS=1 "${options[@]}" "$fairseq"
  elif ! "$python" "$inspect" has-compiled-fairseq 2>/dev/null; then
    # Not from pip's cache: that may hold it without extensions.
    step "compiling fairseq (about three minutes)" \
      env -u CUDA_HOME -u READTHEDOCS "${options[@]}" --force-reinstall --no-cache-dir "$fairseq"
    "$python" "$inspect" has-compiled-fairseq ||
      fail "fairseq was installed without its compiled extensions; install a C++ compiler and Python's headers (Debian: build-essential python3-dev), or leave FAIRSEQ_EXTENSIONS unset; see $log"
  fi
  "$python" "$inspect" place-stand-ins
}

prefix=$(find_environment)
stamp=$prefix/.muse-plugin-installed
unfinished=$prefix/.muse-plugin-unfinished
log=$prefix/muse-plugin-setup.log
python=$prefix/bin/python
inspect=$script/inspect_installation.py

is_current() {
  [[ -x "$python" && ! -e "$unfinished" ]] && "$python" "$inspect" is-current "$stamp" "${extras[@]}" 2>/dev/null &&
    { [[ "${FAIRSEQ_EXTENSIONS:-}" != 1 ]] || "$python" "$inspect" has-compiled-fairseq 2>/dev/null; }
}

refuse_other_python
if is_current; then
  if $if_needed; then
    exit 0
  fi
else
  make_environment
  : >"$log"
  "$python" -c "$check_version" ||
    fail "Python $versions is needed, but $prefix has $("$python" --version 2>&1); use another environment, or deactivate it to get one made."
  if [[ -e "$unfinished" ]]; then
    printf 'an earlier run was interrupted; continuing ...\n'
    "$python" "$inspect" forget-damaged
  fi
  rm -f "$stamp"
  : >"$unfinished"
  printf 'installing into %s\n' "$prefix"
  # What is imported is compiled to bytecode then: all of it at once would take a quarter of a minute.
  pip=("$python" -m pip install --disable-pip-version-check --no-input --no-compile)
  install_torch
  # From here on pip may not exchange torch for another build.
  constraints=$prefix/muse-plugin-constraints.txt
  "$python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' >"$constraints"
  step "installing build tools" "${pip[@]}" -c "$constraints" "setuptools>=64,<81" wheel setuptools_scm
  READTHEDOCS=1 step "installing muse_plugin" "${pip[@]}" --no-deps --no-build-isolation -e "$root"
  requirements=$prefix/muse-plugin-requirements.txt
  "$python" "$inspect" requirements "${extras[@]}" >"$requirements"
  step "installing what fairseq and muse_plugin need" \
    "${pip[@]}" -c "$constraints" -r "$script/requirements-fairseq.txt" -r "$requirements"
  # Its setup.py fetches a setuptools_scm without what that needs, unless there is one.
  printf 'installing seqeval ...\n'
  run_logged "${pip[@]}" --no-deps --no-build-isolation "seqeval>=1.2" ||
    printf 'seqeval could not be installed (see %s): taggers are not measured by entities, all else works\n' "$log"
  install_fairseq
  "$python" "$inspect" mark-current "$stamp"
  rm -f "$unfinished"
fi

unset PYTHONDONTWRITEBYTECODE # what this imports is compiled once, or each command pays six seconds for it
"$prefix/bin/muse-plugin" doctor
