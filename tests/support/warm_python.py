"""Programs of Python without the seconds that importing torch and fairseq takes, for tests of scripts that start many.

``find_programs`` gives a folder to put first on the ``PATH``: its ``python``, ``fairseq-train`` and so on hand their
arguments, environment, folder and open files to a process that has imported what others wrote; it forks one that runs
the program. None of our code has been imported there, so what it runs is as good as a program in a new process. What it
starts by ``sys.executable`` starts warm, too, but not what ``multiprocessing`` starts. SIGINT, SIGTERM and SIGKILL
reach it, no other signal. Tests of how Python starts and of processes by their number start real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

_IMPORTED = (
    "multiprocessing.spawn",  # remembers the real executable
    "torch._dynamo",  # an optimiser imports it
    "fairseq",  # and scikit-learn
    "sacrebleu",
    "sacremoses",
    "sentencepiece",
    "subword_nmt.apply_bpe",
)
_FAIRSEQ = ("preprocess", "train", "validate", "generate", "interactive")
_PYTHON = sys.executable
_PROGRAMS = ("python", "muse-plugin", *(f"fairseq-{name}" for name in _FAIRSEQ))
# What is behind each program: needs only the standard library, so that it starts at once.
_CLIENT = """
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"."], [0, 1, 2])
    request = {"words": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
    connection.sendall(json.dumps(request).encode() + b"\\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    sys.exit(int(connection.recv(8)))
"""


@functools.cache
def find_programs() -> Path:
    """A folder of programs that start warm. It is gone when this process has ended, however it ends."""
    folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
    (folder / "client.py").write_text(_CLIENT)
    for name in _PROGRAMS:
        words = (sys.executable, "-IS", folder / "client.py", folder / "socket", name)
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        (folder / name).chmod(0o755)
    _start_server(folder)
    return folder


def find_python() -> str:
    """Its ``python``."""
    return str(find_programs() / "python")


@functools.cache
def _start_server(folder: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, __file__, str(folder)]
    server = subprocess.Popen(command, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    return server  # kept by the cache, and with it the pipe that ends the server when it closes


def _serve(folder: Path) -> list[str]:
    """Answers until standard input closes. Returns in the process of a program, with its words."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that answer
        while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
            connection = listening.accept()[0]
            if os.fork() == 0:
                break
            connection.close()
        else:
            shutil.rmtree(folder)
            sys.exit()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection:
        _, files, *_ = socket.recv_fds(connection, 1, 3)
        with connection.makefile() as lines:
            request = json.loads(lines.readline())
        program = os.fork()
        for target, file in enumerate(files):
            if program == 0:
                os.dup2(file, target)
            os.close(file)
        if program != 0:
            ended = os.pidfd_open(program)
            while ended not in select.select([ended, connection], [], [])[0]:
                # Nothing more comes from one that was killed.
                os.kill(program, *(connection.recv(1) or [signal.SIGKILL]))
            code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(b"%d" % (code if code >= 0 else 128 - code))
            os._exit(0)
    sys.executable = str(folder / "python")
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request["words"]


def _run(name: str, *words: str) -> None:
    """Does what the program ``name`` does."""
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep) if "PYTHONPATH" in os.environ else []
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(write_through=True)
    if name != "python":
        words = (str(Path(_PYTHON).parent / name), *words)
    first, *rest = words or ("-",)
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))
    elif first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first.startswith("-"):
        os.execv(_PYTHON, [_PYTHON, *words])
    else:
        sys.argv = [*words]
        sys.path.insert(0, str(Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")


def _end(code: int) -> None:
    """Ends the process as Python does, but leaves its memory to the system: half a second for what is imported."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # of this file
    for module in _IMPORTED:
        importlib.import_module(module)
    # fairseq's commands choose their own way to log, before they import the rest.
    logging.root.handlers.clear()
    gc.freeze()
    words = _serve(Path(sys.argv[1]))
    try:
        _run(*words)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise  # Python prints it
        _end(int(end.code or 0))
    _end(0)
