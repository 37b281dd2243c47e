"""What tests share: one comparison, and small builders."""

import argparse
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import pytest
import torch
from support.warm_python import find_programs, find_python
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from muse_plugin_command import cli

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "muse_plugin"


def assert_close(actual: Any, expected: Any, atol: float = 1e-5, rtol: float = 1.3e-6, why: str = "") -> None:
    """Compares tensors (or what can become one) in value, shape and dtype; all comparisons of tensors go through here.

    Args:
        actual: what the program computed.
        expected: what it should be; numbers and arrays take the dtype of ``actual``.
        atol: absolute tolerance; 0 together with ``rtol=0`` asks for equal bits, NaN equal to NaN.
        rtol: relative tolerance.
        why: opens the message of a failure; also the place for the reason of a loosened tolerance.
    """
    actual = torch.as_tensor(actual).detach()
    if not isinstance(expected, Tensor):
        expected = torch.as_tensor(expected, dtype=actual.dtype, device=actual.device)
    torch.testing.assert_close(
        actual,
        expected.detach(),
        atol=atol,
        rtol=rtol,
        equal_nan=True,
        msg=lambda text: f"{why}: {text}" if why else text,
    )


def save_checkpoint(
    path: Path,
    model: Mapping[str, Tensor],
    num_updates: int = 0,
    maximize_metric: Optional[bool] = None,
    **entries: Any,
) -> Path:
    """Writes a file laid out like fairseq's checkpoints, with a Namespace under ``args``.

    Args:
        path: where to.
        model: the parameters.
        num_updates: what the training history says.
        maximize_metric: the option ``--maximize-best-checkpoint-metric``; left out if None.
        **entries: further entries of the file, instead of the defaults.

    Returns:
        ``path``.
    """
    args = argparse.Namespace(arch="muse_tiny", task="translation")
    if maximize_metric is not None:
        args.maximize_best_checkpoint_metric = maximize_metric
    history = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": num_updates,
    }
    state = {
        "args": args,
        "cfg": None,
        "model": dict(model),
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"exp_avg": torch.zeros(3)},
    }
    torch.save({**state, **entries}, path)
    return path


def run_python(
    code: str,
    *words: str,
    cwd: Path,
    env: Optional[Mapping[str, str]] = None,
    timeout: float = 300,
    warm: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Runs code in a fresh interpreter.

    Args:
        code: the program.
        *words: its ``sys.argv[1:]``.
        cwd: the current folder.
        env: the environment; that of the tests if None.
        timeout: seconds.
        warm: whether torch and fairseq have been imported there, see ``support.warm_python``.

    Returns:
        The finished process, with text output.
    """
    command = [find_python() if warm else sys.executable, "-c", code, *words]
    return run_command(command, cwd=cwd, env=env, timeout=timeout)


def run_command(
    command: Sequence[str],
    cwd: Path,
    env: Optional[Mapping[str, str]] = None,
    input: Optional[str] = None,
    timeout: float = 300,
) -> "subprocess.CompletedProcess[str]":
    """Runs a command and returns the finished process, with text output; it may have failed."""
    return subprocess.run(
        command, cwd=cwd, env=env, input=input, capture_output=True, text=True, timeout=timeout, check=False
    )


def sentences_of(call: Callable[..., Any], *words: object, **flags: object) -> list[str]:
    """The sentences, one per line, of the ValueError that a call ends with."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        call(*words, **flags)
    return str(caught.value).splitlines()


def assert_refused(done: "subprocess.CompletedProcess[str]", *sentences: str) -> None:
    """A finished process ended with exit code 2 and said all of the sentences on standard error."""
    assert done.returncode == 2, done.stdout + done.stderr
    for sentence in sentences:
        assert sentence in done.stderr


class Results(TorchDispatchMode):
    """Collects what operators return: pairs of operator and tensor in ``made``."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) else (result,)
        self.made += [(func, part) for part in parts if isinstance(part, Tensor)]
        return result


def load_program(path: Path) -> ModuleType:
    """Imports a Python file that belongs to no package, under a name of its own; it finds the files next to it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"program_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def parse_flags(name: str, *words: object) -> argparse.Namespace:
    """The flags of a sub-command as its ``run`` gets them."""
    return cli.build_parser(name).parse_args([name, *map(str, words)])


# Of the machine, not of a recipe.
_KEPT_VARIABLES = {"PYTHONPATH", "CUDA_VISIBLE_DEVICES"}


@functools.cache
def _find_settings() -> set[str]:
    """The variables that scripts of recipes read."""
    scripts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "examples").rglob("*.sh")]
    return {name for text in scripts for name in re.findall(r"\$\{([A-Z][A-Z0-9_]*)[:}?-]", text)} - _KEPT_VARIABLES


def recipe_environment(*programs: Path, warm: bool = True, **settings: str) -> dict[str, str]:
    """The environment for a recipe: as it is set up, on one core, without a GPU, and with no setting of the user's.

    Args:
        *programs: folders of programs that come before all others.
        warm: whether Python's programs start without importing torch and fairseq, see ``support.warm_python``.
        **settings: variables that the recipe reads; with NUM_GPUS, a stand-in for PyTorch says there are eight.
    """
    read = _find_settings()
    if settings.get("NUM_GPUS", "0") != "0":
        settings, warm = {"PYTHONPATH": str(Path(__file__).with_name("eight_gpus")), **settings}, False
    folders = [*programs, *([find_programs()] if warm else []), Path(sys.executable).parent]
    return {
        **{name: value for name, value in os.environ.items() if name not in read},
        "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
        "SKIP_SETUP": "1",
        "NUM_GPUS": "0",
        "OMP_NUM_THREADS": "1",
        **settings,
    }


def change_settings(path: Path, change: Mapping[str, Any]) -> None:
    """Sets entries of a JSON file, ``a.b`` for ``b`` within ``a``, and drops those that get ``...``."""
    content = json.loads(path.read_text())
    for name, value in change.items():
        *outer, inner = name.split(".")
        place = content
        for key in outer:
            place = place[key]
        place[inner] = value
        if value is ...:
            del place[inner]
    path.write_text(json.dumps(content))
