import errno
import gc
import os
import re
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from support.helpers import PACKAGE, REPOSITORY, run_command, run_python

import muse_plugin_command
from muse_plugin import __version__
from muse_plugin_command import cli

COMMAND = [sys.executable, "-m", "muse_plugin_command"]


@pytest.fixture
def fake_command(monkeypatch):
    """Replaces ``muse-plugin average`` by a command whose body is the test's."""
    flags, body = ModuleType("muse_plugin_command.flags.average"), ModuleType("muse_plugin.checkpoints.averaging")
    flags.add_arguments = lambda parser: parser.add_argument("--size", type=int, default=1)
    body.run = lambda args: 0
    for module in (flags, body):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return body


def raise_(error):
    raise error


def test_help_lists_every_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert name in printed
        assert command.help in printed


def test_every_command_has_the_two_functions(capsys):
    assert set(cli.COMMANDS) >= {"path", "doctor", "average", "convert", "translate"}
    for name in cli.COMMANDS:
        assert cli.main([name, "--help"]) == 0, name
        assert f"usage: muse-plugin {name}" in capsys.readouterr().out
        assert callable(cli.load_body(name).run)


@pytest.mark.parametrize(
    ("words", "code"),
    [("--help", 0), ("path", 0), ("--version", 0), ("match encode --help", 0), ("benchmark conv --rounds 0", 2)],
)
def test_help_and_wrong_flags_import_neither_the_package_nor_torch(tmp_path, words, code):
    # -X importtime would name them; PYTHONPATH makes them importable, so that their absence means something.
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    start = time.perf_counter()
    done = run_command([sys.executable, "-X", "importtime", *COMMAND[1:], *words.split()], cwd=tmp_path, env=env)
    assert done.returncode == code, done.stderr
    assert "argparse" in done.stderr
    for package in ("muse_plugin", "torch", "fairseq", "numpy"):
        assert not re.search(rf"\| +{package}\b(?!_)", done.stderr), f"{words} imports {package}"
    assert time.perf_counter() - start < 10  # 0.3 s on an idle machine; importing fairseq takes 4 s and more there


def test_path_prints_the_package_folder(tmp_path):
    done = run_command([*COMMAND, "path"], cwd=tmp_path)
    assert done.stdout == f"{PACKAGE}\n"


def test_the_module_of_the_package_is_the_same_command(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = run_command([sys.executable, "-m", "muse_plugin.cli", "path"], cwd=tmp_path, env=env)
    assert done.stdout == f"{PACKAGE}\n"


def test_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"muse-plugin {__version__}\n"
    assert cli.read_version() == __version__


def test_unknown_command_lists_the_choices(capsys):
    assert cli.main(["avarage"]) == 2
    printed = capsys.readouterr().err
    assert "invalid choice: 'avarage'" in printed
    for name in cli.COMMANDS:
        assert name in printed


def test_no_command_prints_the_help_and_fails(capsys):
    assert cli.main([]) == 2
    assert "usage: muse-plugin" in capsys.readouterr().err


def test_unknown_flag_and_bad_value_are_refused(fake_command, capsys):
    assert cli.main(["average", "--sise", "3"]) == 2
    assert "unrecognized arguments: --sise" in capsys.readouterr().err
    assert cli.main(["average", "--size", "three"]) == 2
    assert "muse-plugin average: error: argument --size: invalid int value: 'three'" in capsys.readouterr().err


def test_exit_code_is_what_the_command_returns(fake_command):
    fake_command.run = lambda args: args.size
    assert cli.main(["average", "--size", "7"]) == 7


def test_garbage_is_collected_while_a_command_works_and_not_while_it_is_imported(fake_command, monkeypatch):
    fake_command.run = lambda args: int(gc.isenabled())
    load_body, while_importing = cli.load_body, []
    monkeypatch.setattr(cli, "load_body", lambda name: [while_importing.append(gc.isenabled()), load_body(name)][1])
    assert cli.main(["average"]) == 1
    assert while_importing == [False]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("size must be positive."),
        FileNotFoundError("there is no file."),
        NotImplementedError("a with b is not built."),
        ImportError("install x."),
        PermissionError("may not write."),
    ],
)
def test_clear_sentences_are_printed_without_a_traceback(fake_command, capsys, error):
    fake_command.run = lambda args: raise_(error)
    assert cli.main(["average"]) == 2
    assert capsys.readouterr().err == f"muse-plugin average: error: {error}\n"


def test_traceback_can_be_asked_for(fake_command):
    fake_command.run = lambda args: raise_(ValueError("size must be positive."))
    with pytest.raises(ValueError, match=r"size must be positive\."):
        cli.main(["--traceback", "average"])


def test_defects_keep_their_traceback(fake_command):
    fake_command.run = lambda args: raise_(KeyError("size"))
    with pytest.raises(KeyError, match="size"):
        cli.main(["average"])


def test_real_command_reports_its_error(capsys, tmp_path):
    assert cli.main(["average", "--inputs", str(tmp_path / "absent.pt"), "--output", str(tmp_path / "out.pt")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("muse-plugin average: error: --inputs must name existing files")
    assert "Traceback" not in printed


@pytest.mark.parametrize("missing", ["fairseq", "torch"])
def test_command_that_cannot_be_imported_points_to_the_doctor(tmp_path, missing):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules['{missing}'] = None\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    average = [*COMMAND, "average"]
    assert run_command([*average, "--help"], cwd=tmp_path, env=env).returncode == 0
    done = run_command([*average, "--inputs", "a.pt", "--output", "b.pt"], cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("muse-plugin average: error: it cannot start: ")
    assert done.stderr.endswith("'muse-plugin doctor' says what is missing.\n")
    assert "Traceback" not in done.stderr


def test_closed_pipe_and_interruption_end_quietly(tmp_path):
    command = f"set -o pipefail; '{sys.executable}' -m muse_plugin_command --help | true"
    done = run_command(["bash", "-c", command], cwd=tmp_path)
    assert done.stderr == ""
    code = (
        "import argparse, runpy, sys\n"
        "def interrupt(*args): raise KeyboardInterrupt\n"
        "argparse.ArgumentParser.parse_args = interrupt\n"
        "sys.argv = ['muse-plugin', 'path']\n"
        "runpy.run_module('muse_plugin_command', run_name='__main__')\n"
    )
    done = run_python(code, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr == ""


def test_a_reader_that_goes_away_ends_the_command_quietly(monkeypatch):
    read, write = os.pipe()
    try:
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        monkeypatch.setattr(cli, "main", lambda: raise_(BrokenPipeError()))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=lambda: write))
        assert muse_plugin_command.main() == 141
        assert os.write(write, b"what Python has still to write goes nowhere")
    finally:
        os.close(write)
    assert os.read(read, 10) == b""
    os.close(read)


def test_what_the_system_says_of_a_path_is_a_sentence(fake_command, capsys, tmp_path):
    fake_command.run = lambda args: tmp_path.read_bytes()
    assert cli.main(["average"]) == 2
    assert capsys.readouterr().err.endswith(f": error: cannot use {tmp_path}: Is a directory; check this path.\n")


def test_a_full_disk_gives_a_sentence_and_other_faults_of_the_system_keep_their_traceback(fake_command, capsys):
    fake_command.run = lambda args: raise_(OSError(errno.ENOSPC, "No space left on device"))
    assert cli.main(["average"]) == 2
    printed = capsys.readouterr().err
    assert "there is no room to write (No space left on device); make some, then give the command again." in printed
    fake_command.run = lambda args: raise_(OSError(errno.EROFS, "Read-only file system", "a.pt"))
    assert cli.main(["average"]) == 2
    assert "cannot write a.pt: Read-only file system; choose another place." in capsys.readouterr().err
    fake_command.run = lambda args: raise_(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        cli.main(["average"])
