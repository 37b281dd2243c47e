#!/usr/bin/env bash
# Builds fairseq's own CUDA kernels of the dynamic and the lightweight convolution (the modules dynamicconv_cuda and
# lightconv_cuda) into the active environment, and runs their test if there is a GPU. Safe to run again.
#
#   bash scripts/build_lightconv.sh          then: fairseq-train ... --conv-backend fairseq_cuda
#
# Needs a CUDA build of PyTorch, a C++ compiler, and NVIDIA's compiler nvcc of the same major version: a CUDA toolkit or, for
# CUDA 13, packages (what is missing is named). There is a kernel for every size, dtype and kind of GPU: for two kinds, two
# loaded cores of an AMD EPYC took 25 to 45 minutes.
#
# FAIRSEQ_SOURCE=folder            a clone of fairseq (it is not changed); default: fetched from its git repository
# FAIRSEQ_REPOSITORY=url           another place to fetch from
# FAIRSEQ_COMMIT=commit            another commit than the one that this was tried with
# CUDA_HOME=folder                 the CUDA toolkit; default: where nvcc is
# TORCH_CUDA_ARCH_LIST="8.0;9.0"   for which GPUs; default: the one of this machine
# MAX_JOBS=2                       compilers at a time
# WHEELS=folder                    also leaves the wheels there, to be carried to such a machine: pip install --no-deps folder/*.whl
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/environment.sh
. "$script/environment.sh"

repository=${FAIRSEQ_REPOSITORY:-https://github.com/facebookresearch/fairseq}
commit=${FAIRSEQ_COMMIT:-3d262bb25690e4eb2e7d3c1309b1e9c406ca4b99}

fail() {
  printf 'build_lightconv: error: %s\n' "$*" >&2
  exit 1
}

(($# == 0)) || { echo "usage: bash scripts/build_lightconv.sh (settings are variables, see its first lines)" >&2; exit 2; }

[[ -z "${WHEELS:-}" ]] || mkdir -p "$WHEELS" || fail "WHEELS must be a folder that can be made, but is $WHEELS; name another."
wheels=${WHEELS:+$(cd "$WHEELS" && pwd -P)}
enter_environment || exit 1
python=$(command -v python)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cuda=$(cd "$work" && "$python" -c 'import torch; print(torch.version.cuda or "none")') ||
  fail "PyTorch cannot be imported in $python; run: bash scripts/setup.sh"
[[ "$cuda" != none ]] ||
  fail "the kernels need a CUDA build of PyTorch, but that of $python is for the CPU only; install one: pip install torch"

find_toolkit() { # prints the folder of a CUDA toolkit that has bin/nvcc
  local packages library
  if [[ -n "${CUDA_HOME:-}" ]]; then
    [[ -x "$CUDA_HOME/bin/nvcc" ]] || fail "CUDA_HOME must be a CUDA toolkit, but $CUDA_HOME/bin/nvcc does not exist; correct or unset it."
    printf '%s\n' "$CUDA_HOME"
    return
  fi
  if command -v nvcc >/dev/null; then
    # What it calls TOP, since the nvcc on the path may be a script or a link. An unset CUDA_HOME is looked up by this.
    : >"$work/empty.cu"
    nvcc --dryrun "$work/empty.cu" 2>&1 | sed -n 's/^#\$ TOP=//p' | head -n 1
    return
  fi
  # The packages of NVIDIA have no lib64, and no library without a version in its name.
  packages=$("$python" - "${cuda%%.*}" <<'PYTHON'
import glob, os, sys, sysconfig
found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", f"cu{sys.argv[1]}", "bin", "nvcc"))
print(os.path.dirname(os.path.dirname(found[0])) if found else "")
PYTHON
)
  if [[ -z "$packages" ]]; then
    packages=" 'nvidia-cuda-nvcc==$cuda.*' 'nvidia-cuda-cccl==$cuda.*' 'nvidia-cuda-crt==$cuda.*' 'nvidia-nvvm==$cuda.*'"
    ((${cuda%%.*} >= 13)) && packages=", or: pip install$packages" || packages=
    fail "NVIDIA's compiler nvcc is on no path; install a CUDA toolkit $cuda$packages"
  fi
  mkdir -p "$work/toolkit/lib64"
  ln -s "$packages/bin" "$packages/include" "$packages/nvvm" "$work/toolkit/"
  for library in "$packages"/lib/*; do
    ln -s "$library" "$work/toolkit/lib64/"
  done
  [[ -e "$work/toolkit/lib64/libcudart.so" ]] || ln -s libcudart.so."${cuda%%.*}" "$work/toolkit/lib64/libcudart.so"
  printf '%s\n' "$work/toolkit"
}

CUDA_HOME=$(find_toolkit)
export CUDA_HOME
[[ -x "$CUDA_HOME/bin/nvcc" ]] || fail "$(command -v nvcc) does not tell its CUDA toolkit; name it: CUDA_HOME=folder"
version=$("$CUDA_HOME/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
[[ "${version%%.*}" == "${cuda%%.*}" ]] ||
  fail "nvcc must have the major version of PyTorch's CUDA, but $CUDA_HOME has ${version:-none that it tells} and PyTorch has $cuda; set CUDA_HOME to a toolkit $cuda."
command -v "${CXX:-c++}" >/dev/null ||
  fail "a C++ compiler is needed, but ${CXX:-c++} cannot be found; install one (Debian: build-essential) or name it in CXX."

if [[ -z "${TORCH_CUDA_ARCH_LIST:-}" ]]; then
  TORCH_CUDA_ARCH_LIST=$(cd "$work" && "$python" -c '
import torch
print(";".join(sorted({"%d.%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())})))')
  [[ -n "$TORCH_CUDA_ARCH_LIST" ]] ||
    fail "there is no GPU on this machine to build for; name the kinds, such as TORCH_CUDA_ARCH_LIST='8.0;9.0' (A100, H100)."
  export TORCH_CUDA_ARCH_LIST
fi

if [[ -n "${FAIRSEQ_SOURCE:-}" ]]; then
  [[ -d "$FAIRSEQ_SOURCE/fairseq/modules" ]] ||
    fail "FAIRSEQ_SOURCE must be a clone of fairseq, but $FAIRSEQ_SOURCE has no folder fairseq/modules; correct or unset it."
  cp -r "$FAIRSEQ_SOURCE/fairseq/modules" "$work/modules"
else
  command -v git >/dev/null || fail "git is needed to fetch fairseq, but cannot be found; install it, or set FAIRSEQ_SOURCE."
  printf 'fetching fairseq %s ...\n' "$commit"
  git init --quiet "$work/fairseq"
  git -C "$work/fairseq" fetch --quiet --depth 1 "$repository" "$commit" ||
    fail "fairseq could not be fetched from $repository; set FAIRSEQ_SOURCE to a clone of it."
  git -C "$work/fairseq" checkout --quiet FETCH_HEAD -- fairseq/modules
  mv "$work/fairseq/fairseq/modules" "$work/modules"
fi
"$python" "$script/edit_fairseq_kernels.py" "$work/modules"

for layer in dynamicconv lightconv; do
  printf 'building %s_cuda for GPUs of kind %s with CUDA %s ...\n' "$layer" "$TORCH_CUDA_ARCH_LIST" "$version"
  (
    cd "$work/modules/${layer}_layer"
    "$python" cuda_function_gen.py
    "$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-cache-dir -w "$work/wheels/$layer" . &&
      "$python" -m pip install --quiet --no-index --no-deps --force-reinstall "$work/wheels/$layer"/*.whl
  ) >"$work/log" 2>&1 || {
    grep -m 5 -iE 'error|No module' "$work/log" >&2 || tail -n 5 "$work/log" >&2
    fail "${layer}_cuda could not be built; its first errors are above."
  }
  (cd "$work" && "$python" -c "import torch, ${layer}_cuda") || fail "${layer}_cuda was built but cannot be imported; see above."
  [[ -z "$wheels" ]] || cp "$work/wheels/$layer"/*.whl "$wheels/"
done

if ! (cd "$work" && "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'); then
  echo "Both are built and can be imported. There is no GPU here, so they were not run; on one: bash scripts/test.sh -m gpu"
  exit 0
fi
"$python" -c 'import pytest' 2>/dev/null || fail "both are built, but their test needs pytest: bash scripts/setup.sh --dev, then bash scripts/test.sh -m gpu"
cd "$muse_plugin_root"
"$python" -m pytest -q -m gpu tests/gpu/test_dynamic_conv_on_gpu.py -k fairseq
echo "Both are built and agree with the reference."
