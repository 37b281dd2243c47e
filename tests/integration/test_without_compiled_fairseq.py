"""fairseq as a machine without a compiler has it: the commands work, with the plugin and without."""

import importlib.util
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from support.helpers import REPOSITORY, run_command, run_python

TRAIN_AND_GENERATE = """
import sys
import zipfile
from pathlib import Path
from support.fairseq_commands import generate, make_data, run, train
folder = Path(sys.argv[1])
data = make_data(folder, {"train": 30, "valid": 13, "test": 21})
train(data, folder / "run", "muse_tiny", "--max-update", 2, "--task", "translation")
log = run("generate", data, "--user-dir", sys.argv[2], "--path", folder / "run" / "checkpoint_last.pt", "--cpu")
print(log)
import fairseq.data.data_utils_fast as batching
print("batches by", batching.__file__)
"""
# Python 3.14 writes an optional type as int | None.
TYPES = """
import typing
from fairseq.dataclass import utils
kinds = (int, typing.Optional[int], int | None, typing.Any, typing.Optional[typing.List[str]], typing.List[int])
print(*map(utils.interpret_dc_type, kinds))
assert utils.gen_parser_from_dataclass.__globals__ is vars(utils)  # it asks the new function
"""
BATCH = """
import sys
import numpy as np
from fairseq.data import data_utils
print([batch.tolist() for batch in data_utils.batch_by_size(np.arange(6), None, np.array([1, 2, 2, 3, 5, 9]), 10)])
assert not any(name.startswith("muse_plugin") for name in sys.modules)
"""
SCORE = """
import sys
sys.argv[1:] = ["-s", "text", "-r", "text"]
from fairseq_cli.score import cli_main
cli_main()
"""


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory):
    """A folder with fairseq, its files linked, without extensions; returns the environment that sees it first."""
    installed = Path(importlib.util.find_spec("fairseq").origin).parent
    library = tmp_path_factory.mktemp("library")

    def skip(folder, names):
        stand_ins = {"libbleu.py", "data_utils_fast.py", "token_block_utils_fast.py"}
        return [name for name in names if name.endswith((".so", ".pyd")) or name in stand_ins]

    shutil.copytree(installed, library / "fairseq", copy_function=os.symlink, ignore=skip)
    programs = tmp_path_factory.mktemp("programs")  # no compiler is found
    search = os.pathsep.join(map(str, (library, REPOSITORY, REPOSITORY / "tests")))
    return {**os.environ, "PYTHONPATH": search, "PATH": str(programs), "CUDA_VISIBLE_DEVICES": ""}


def test_a_model_is_trained_and_scored_without_extensions(uncompiled, tmp_path):
    done = run_python(TRAIN_AND_GENERATE, str(tmp_path), str(REPOSITORY / "muse_plugin"), env=uncompiled, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^H-\d+\t", done.stdout, flags=re.MULTILINE)) == 21
    assert re.search(r"BLEU4 = \d+\.\d\d, ", done.stdout)
    assert str(Path("fairseq_stand_ins", "data", "data_utils_fast.py")) in done.stdout


def test_copies_of_the_stand_ins_serve_commands_without_the_plugin(uncompiled, tmp_path):
    done = run_python(BATCH, env=uncompiled, cwd=tmp_path)
    assert "Please build Cython components" in done.stderr
    inspect = REPOSITORY / "scripts" / "inspect_installation.py"
    done = run_command([sys.executable, str(inspect), "place-stand-ins"], env=uncompiled, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "text").write_text("a b c\n")
    done = run_python(BATCH + TYPES + SCORE, env=uncompiled, cwd=tmp_path)
    assert done.stdout.splitlines()[:2] == [
        "[[0, 1, 2], [3, 4], [5]]",
        "<class 'int'> <class 'int'> <class 'int'> <class 'str'> typing.List[str] typing.List[int]",
    ], done.stderr
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("fairseq's own BLEU needs its compiled extension libbleu")
    assert "Traceback" not in done.stderr


def build(folder, **variables):
    """Builds a wheel of what git would hand out, as pip does; returns the finished process."""
    source = folder / "source"
    names = ("muse_plugin", "muse_plugin_command", "setup.py", "pyproject.toml", "README.md", "LICENSE")
    for name in names:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(REPOSITORY / name, source / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(source),
    ]
    env = {name: value for name, value in os.environ.items() if name not in ("READTHEDOCS", "CXX")}
    return run_command(command, cwd=folder, env={**env, **variables})


def test_a_wheel_brings_the_stand_ins_as_modules_of_fairseq(tmp_path):
    done = build(tmp_path, READTHEDOCS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("muse_plugin-*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fairseq/")}
    assert names == {
        "fairseq/libbleu.py",
        "fairseq/data/data_utils_fast.py",
        "fairseq/data/token_block_utils_fast.py",
        "fairseq/dataclass/utils/__init__.py",
    }


def test_an_installation_without_a_compiler_says_what_to_type(tmp_path):
    done = build(tmp_path, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "no C++ compiler was found; type READTHEDOCS=1 before the command" in done.stdout + done.stderr
