"""Imports point one way: ops <- modules <- models <- the rest. The table is that of the design."""

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple, Optional

import pytest
from support.helpers import PACKAGE, REPOSITORY


class Floor(NamedTuple):
    """What the files of one folder may import.

    Attributes:
        rooms: folders of this package, the own one not mentioned.
        others: packages from outside; None if all are allowed.
    """

    rooms: frozenset[str]
    others: Optional[frozenset[str]] = None


def floor(rooms, others=None):
    return Floor(frozenset(rooms.split()), None if others is None else frozenset(others.split()))


BELOW = "models modules ops pretrained"
FLOORS = {
    "files": floor("", "tqdm"),
    "text": floor("files", "subword_nmt sentencepiece sacremoses tokenizers"),
    "results": floor("files", "torch matplotlib"),
    "ops": floor("", "torch numpy triton"),
    "modules": floor("ops", "torch numpy torchcrf"),
    "contracts": floor("", "fairseq seqeval"),
    "pretrained": floor("files modules"),
    # The program that is copied into exported folders; test_runner.py holds what it may import.
    "runner": floor("", "numpy onnxruntime sacremoses subword_nmt sentencepiece"),
    "models": floor("contracts modules ops pretrained runner"),
    "tasks": floor("contracts text"),
    "criterions": floor("contracts ops"),
    "checkpoints": floor(f"files {BELOW}"),
    "preparation": floor(f"files text {BELOW}"),
    # Reads checkpoints; knows nothing of evaluation and analysis, nor they of it.
    "inference": floor(f"files text checkpoints tasks {BELOW}"),
    "matching": floor(f"files text results checkpoints inference {BELOW}"),
    "evaluation": floor(f"contracts files text results checkpoints {BELOW}"),
    "exporting": floor("files text checkpoints inference models modules runner"),
    "benchmark": floor(f"fairseq_stand_ins files results criterions exporting {BELOW}"),
    "analysis": floor(f"files text results checkpoints inference {BELOW}"),
    "serve": floor("files text checkpoints inference runner analysis"),
    "fairseq_stand_ins": floor("", "numpy"),
    "fairseq_repairs": floor("fairseq_stand_ins files checkpoints models pretrained warning_filters"),
    # Files of the package itself.
    "__init__": floor("warning_filters fairseq_repairs checkpoints models tasks criterions"),
    "cli": floor("", ""),
    "warning_filters": floor(""),
}
COMMAND = "muse_plugin_command"  # the sibling package: the standard library alone, but for the second process of doctor
COMMAND_IMPORTS = {"doctor.py": {"fairseq"}}  # test_doctor runs it where fairseq is missing
# The standard library is open to all, but for these: modules get numbers, not command lines.
FORBIDDEN_STANDARD = {"ops": {"argparse"}, "modules": {"argparse"}}


def find_imports(path: Path, package: str) -> list[tuple[int, str]]:
    """Returns (line, dotted name) of every import of a file, also those within functions and by literal name.

    ``package`` is the dotted name of the package that the file is in, against which relative imports count.
    """
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.append((node.lineno, node.args[0].value))
    return found


def find_violations(folder: Path) -> tuple[list[str], int]:
    """Checks every Python file of a package; returns the sentences and the number of files read."""
    violations = []
    files = sorted(folder.rglob("*.py"))
    for path in files:
        relative = path.relative_to(folder)
        room = relative.parts[0] if len(relative.parts) > 1 else relative.stem
        if room not in FLOORS:
            violations.append(f"{relative}: {room} is not in the table of this test; add what it may import")
            continue
        package = ".".join([folder.name, *relative.parts[:-1]])
        for line, name in find_imports(path, package):
            if not is_allowed(FLOORS[room], room, name, folder.name, relative):
                violations.append(f"{relative}:{line}: {room} must not import {name}")
    return violations, len(files)


def is_allowed(rules: Floor, room: str, name: str, package: str, relative: Path) -> bool:
    top, _, rest = name.partition(".")
    if top == package:
        target = rest.split(".")[0]
        return target in rules.rooms or target in (room, "") or target not in FLOORS  # a name such as __version__
    if top in sys.stdlib_module_names:
        return top not in FORBIDDEN_STANDARD.get(room, ())
    if top == "torchcrf" and room == "modules":
        return relative.stem == "tag_scores"  # an optional package, asked for in one place
    if top == "triton" and room == "ops":
        return relative.stem.endswith("_triton")  # kernels have files of their own
    if top == COMMAND:
        parts = ("flag_checks", "flag_suggestions", "flags")
        return room == "cli" or (room not in FORBIDDEN_STANDARD and rest.split(".")[0] in parts)
    return rules.others is None or top in rules.others


def test_imports_point_downwards():
    violations, count = find_violations(PACKAGE)
    assert count >= 20, f"only {count} files were found under {PACKAGE}"
    assert not violations, "\n".join(violations)


def test_the_command_needs_only_the_standard_library():
    violations = []
    folder = REPOSITORY / COMMAND
    files = sorted(folder.rglob("*.py"))
    assert len(files) >= 10
    for path in files:
        relative = path.relative_to(folder)
        allowed = {COMMAND, *sys.stdlib_module_names, *COMMAND_IMPORTS.get(str(relative), ())}
        for line, name in find_imports(path, ".".join([COMMAND, *relative.parts[:-1]])):
            if name.partition(".")[0] not in allowed:
                violations.append(f"{relative}:{line}: {COMMAND} must not import {name}")
    assert not violations, "\n".join(violations)


def test_what_gets_numbers_speaks_of_no_flags():
    """Errors of modules and ops name arguments; models and tasks, which know the flags, name these."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value!r}"
        for room in ("modules", "ops")
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search("(?<!-)--[a-z]", node.value)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "code", "name"),
    [
        ("ops/a.py", "import fairseq", "fairseq"),
        ("ops/a.py", "from muse_plugin.modules import layer", "muse_plugin.modules.layer"),
        ("ops/a.py", "from ..modules.layer import Layer", "muse_plugin.modules.layer.Layer"),
        ("ops/a.py", "import triton.language as tl", "triton.language"),
        ("ops/deep/a.py", "from ...models import muse", "muse_plugin.models.muse"),
        ("modules/a.py", "import torch, fairseq.utils", "fairseq.utils"),
        ("modules/a.py", "from argparse import Namespace", "argparse.Namespace"),
        (
            "modules/a.py",
            "def f():\n    from muse_plugin.models.muse import MuseModel",
            "muse_plugin.models.muse.MuseModel",
        ),
        ("modules/a.py", "import importlib\nimportlib.import_module('fairseq.utils')", "fairseq.utils"),
        ("models/a.py", "from muse_plugin import tasks", "muse_plugin.tasks"),
        ("models/a.py", "import muse_plugin.checkpoints.averaging", "muse_plugin.checkpoints.averaging"),
        ("tasks/a.py", "from muse_plugin.criterions import loss", "muse_plugin.criterions.loss"),
        ("tasks/a.py", "from muse_plugin.models.muse import MuseModel", "muse_plugin.models.muse.MuseModel"),
        ("checkpoints/a.py", "from muse_plugin.evaluation import bleu", "muse_plugin.evaluation.bleu"),
        ("evaluation/a.py", "from muse_plugin_command.cli import main", "muse_plugin_command.cli.main"),
        (
            "modules/a.py",
            "from muse_plugin_command.flags.match import DTYPES",
            "muse_plugin_command.flags.match.DTYPES",
        ),
        ("cli.py", "import torch", "torch"),
    ],
)
def test_a_wrong_import_is_named(tmp_path, file, code, name):
    path = tmp_path / "muse_plugin" / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    violations, count = find_violations(tmp_path / "muse_plugin")
    assert count == 1
    assert len(violations) == 1
    assert violations[0].startswith(f"{file}:")
    assert violations[0].endswith(f"must not import {name}")


def test_right_imports_pass_and_an_unknown_folder_does_not(tmp_path):
    folder = tmp_path / "muse_plugin"
    for file, code in {
        "ops/a.py": "import math, torch\nfrom muse_plugin.ops import b",
        "ops/b_triton.py": "import triton",
        "modules/a.py": "from muse_plugin.ops.a import f\nfrom . import b",
        "models/a.py": "import fairseq\nfrom ..modules import a",
        "tasks/a.py": "from muse_plugin import __version__\nimport fairseq",
        "matching/a.py": "from muse_plugin_command.flags.match import DTYPES",
        "cli.py": "import argparse\nimport muse_plugin_command",
    }.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(code)
    assert find_violations(folder) == ([], 7)
    (folder / "attic").mkdir()
    (folder / "attic" / "a.py").write_text("")
    assert find_violations(folder)[0] == ["attic/a.py: attic is not in the table of this test; add what it may import"]
