"""Describes the machine and the versions behind a measured number, to be stored next to it.

``muse-plugin evaluate`` and the benchmarks put this into the JSON that they write. There is no date in it: two runs of
the same thing give the same description.
"""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any, Optional

import torch

PACKAGES = (
    "torch",
    "fairseq-fixed",
    "numpy",
    "sacrebleu",
    "sacremoses",
    "subword-nmt",
    "sentencepiece",
    "triton",
    "scikit-learn",
)
REPOSITORY = Path(__file__).resolve().parents[2]
_CPU_INFO = Path("/proc/cpuinfo")


def describe_run() -> dict[str, Any]:
    """Describes this process: what runs, on what, with how many threads.

    Returns:
        A dict that JSON can hold:

        - ``versions``: of Python and of ``PACKAGES``, None for a package that is not installed;
        - ``git``: ``commit`` and whether files differ from it (``dirty``), or None if this is not a git checkout;
        - ``hardware``: ``cpu`` (model name), ``cores`` (that this process may use), ``memory_gib``, and ``gpus``, each
          with ``name``, ``memory_gib`` and, where nvidia-smi answers, ``driver`` and ``clocks_mhz``: the highest ones,
          of the processors and of the memory;
        - ``threads``: of torch, and the environment variable ``OMP_NUM_THREADS``, None if it is not set.
    """
    return {
        "versions": read_versions(),
        "git": read_git_state(REPOSITORY),
        "hardware": describe_hardware(),
        "threads": {"torch": torch.get_num_threads(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
    }


def read_versions() -> dict[str, Optional[str]]:
    """Returns the versions of Python and of ``PACKAGES``, None for a package that is not installed."""
    versions: dict[str, Optional[str]] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def read_git_state(folder: Path) -> Optional[dict[str, Any]]:
    """Reads the commit that a folder is checked out at.

    Args:
        folder: the top of a repository; a folder within another project's repository does not count.

    Returns:
        ``commit``, and ``dirty``: whether a file was changed or added since; None if ``folder`` is not the top of a
        repository with a commit, or git is not installed.
    """
    try:
        top, commit = _run_git(folder, "rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != folder.resolve():
            return None
        return {"commit": commit, "dirty": bool(_run_git(folder, "status", "--porcelain"))}
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def _run_git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def describe_hardware() -> dict[str, Any]:
    """Returns processor, usable cores, memory in GiB and GPUs of this machine; see ``describe_run``."""
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    drivers = _read_drivers() if properties else {}
    return {
        "cpu": read_cpu_name(),
        "cores": _count_cores(),
        "memory_gib": _read_memory(),
        "gpus": [
            {"name": gpu.name, "memory_gib": round(gpu.total_memory / 2**30, 1), **drivers.get(gpu.name, {})}
            for gpu in properties
        ],
    }


def _read_drivers() -> dict[str, dict[str, Any]]:
    """Driver and highest clocks by the name of the GPU; empty where nvidia-smi is missing or says something else."""
    query = "name,driver_version,clocks.max.sm,clocks.max.memory"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    found: dict[str, dict[str, Any]] = {}
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        for line in text.splitlines():
            name, driver, processors, memory = (part.strip() for part in line.split(","))
            found[name] = {"driver": driver, "clocks_mhz": {"sm": int(processors), "memory": int(memory)}}
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return found


def format_gpu(gpu: dict[str, Any]) -> str:
    """A GPU of ``describe_hardware`` in words: its name, and driver and clocks where they are known."""
    if "driver" not in gpu:
        return str(gpu["name"])
    clocks = gpu["clocks_mhz"]
    return f"{gpu['name']} (driver {gpu['driver']}, at most {clocks['sm']} MHz, memory {clocks['memory']} MHz)"


def read_cpu_name() -> str:
    """Returns the model name of the processor, or its architecture where the system does not tell the model."""
    with contextlib.suppress(OSError):
        match = re.search(r"^model name\s*:\s*(\S.*)$", _CPU_INFO.read_text(errors="replace"), flags=re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()


def _count_cores() -> Optional[int]:
    if hasattr(os, "sched_getaffinity"):  # Linux: the cores that this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _read_memory() -> Optional[float]:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):  # not every system has these names
        return None
