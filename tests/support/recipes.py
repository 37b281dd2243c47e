"""Scripts of the recipes, run as trials or with programs that only write down what they are asked for."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from support.fairseq_commands import parse_training
from support.helpers import REPOSITORY, recipe_environment, run_command

import muse_plugin  # noqa: F401  (registers the models)

EXAMPLES = REPOSITORY / "examples"
# What a program does that appends its arguments to a file, each on a line, and an empty line.
WRITE_DOWN = 'printf "%s\\n" "$@" "" >>"$ARGUMENTS_FILE"'


def run_recipe(
    recipe: str, script: str, *arguments: str, programs: tuple[Path, ...] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script of a recipe on one core, without a GPU and without the network; see ``recipe_environment``."""
    command = ["bash", str(EXAMPLES / recipe / f"{script}.sh"), *arguments]
    return run_command(command, cwd=REPOSITORY, env=recipe_environment(*programs, **settings), timeout=600)


def run_trial(
    recipe: str, script: str, raw_dir: Path, work_dir: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script on what is in ``raw_dir``, as a trial unless ``TRIAL`` says otherwise."""
    return run_recipe(recipe, script, **{"RAW_DIR": str(raw_dir), "WORK_DIR": str(work_dir), "TRIAL": "1", **settings})


def run_trials(
    recipe: str, raw_dir: Path, work_dir: Path, scripts: tuple[str, ...] = ("prepare", "train", "evaluate"), **settings
) -> str:
    """Runs scripts in their order; none may fail. Returns what the last one printed."""
    for script in scripts:
        done = run_trial(recipe, script, raw_dir, work_dir, **settings)
        assert done.returncode == 0, f"{script}: {done.stdout}\n{done.stderr}"
    return done.stdout


def run_written_down(
    folder: Path, recipe: str, script: str, *arguments: str, programs: dict[str, str], **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with some programs replaced.

    Args:
        folder: gets ``work``, the recipe's folder, and ``arguments``, what ``WRITE_DOWN`` has written.
        recipe: the folder in examples/.
        script: its name, without .sh.
        *arguments: of the script.
        programs: shell text by name of the program; with the programs of the recipe's own environment behind.
        **settings: variables that the recipe reads.
    """
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        program = folder / "programs" / name
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)
    own = {"ARGUMENTS_FILE": str(folder / "arguments"), "WORK_DIR": str(folder / "work")}
    return run_recipe(recipe, script, *arguments, programs=(folder / "programs",), **{**own, **settings})


def read_calls(folder: Path) -> list[list[str]]:
    """The arguments of each call that was written down."""
    return [text.split("\n") for text in (folder / "arguments").read_text(encoding="utf-8").split("\n\n")[:-1]]


def mark_prepared(data: Path, settings: str = "trial=0\n") -> Path:
    """Leaves what prepare.sh of a recipe of sentences leaves of its steps and settings; returns the folder."""
    (data / "bin").mkdir(parents=True, exist_ok=True)
    (data / ".text.done").touch()
    (data / "settings.txt").write_text(settings, encoding="utf-8")
    return data


def run_main(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *words: object) -> int:
    """Runs a program of a recipe in this process, with these arguments."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
    return module.main()


def run_pairs(recipe: str, form: str, content: bytes | str, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """Runs pairs.py of a recipe on what is in one of its forms."""
    content = content if isinstance(content, bytes) else content.encode("utf-8")
    command = [sys.executable, str(EXAMPLES / recipe / "pairs.py"), form, *flags]
    return subprocess.run(command, input=content, capture_output=True, timeout=60, check=False)


def read_settings(folder: Path, recipe: str, *arguments: str, **settings: str) -> Namespace:
    """Runs train.sh with a fairseq-train that only writes down its arguments; returns them as fairseq reads them."""
    for name in ("data", "en-de"):  # what prepare.sh leaves behind
        for part in ("bin", "bin-both", "bin-joined"):
            (folder / "work" / name / part).mkdir(parents=True)
        for step in ("binarise", "binarise-both"):
            (folder / "work" / name / f".{step}.done").touch()
    programs, settings = {"fairseq-train": WRITE_DOWN}, {"NUM_GPUS": "1", **settings}
    done = run_written_down(folder, recipe, "train", *arguments, programs=programs, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (words,) = read_calls(folder)
    return parse_call(words)


def parse_call(words: list[str]) -> Namespace:
    """The arguments of a call as fairseq-train understands them; the plugin is imported already."""
    at = words.index("--user-dir")
    return parse_training(*words[:at], *words[at + 2 :])


def read_flag(args: Namespace, name: str) -> object:
    """A flag as the model sees it: given, of the preset, or the model's default."""
    return getattr(args if hasattr(args, name) else ARCH_MODEL_REGISTRY[args.arch].config_class(), name)
