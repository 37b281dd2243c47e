"""Started by tests: imports fairseq and reads a command line once, then trains in child processes, which may be killed.

It has no threads, so that it can fork; a child starts within a fraction of a second. Requests and answers are
lines of JSON on standard input and output.

A request has ``arguments`` (words after ``fairseq-train``), ``log`` (a file) and at most one of ``seconds`` (after
which the child is killed from outside) and ``moment`` (``[name, n]``: the child kills itself in the n-th such moment,
see ``MOMENTS``). The answer has ``signal`` (of which it died, or 0), ``code`` and ``seconds``. What imports print is in
between.
"""

import functools
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback

import fairseq_cli.train
import torch
import torch._dynamo  # which the first optimizer would import: seconds
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

import muse_plugin
from muse_plugin import fairseq_repairs

assert muse_plugin.__version__
fairseq_repairs.apply()


class Countdown:
    """Kills this process when it is called for the n-th time."""

    def __init__(self, n):
        self.left = n

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def before(owner, name, countdown):
    """Has ``owner.name`` count first, each time that it is called."""
    original = getattr(owner, name)

    def counted(*arguments, **named):
        countdown()
        return original(*arguments, **named)

    setattr(owner, name, counted)


def after(owner, name, countdown):
    """Has ``owner.name`` count when it is done."""
    original = getattr(owner, name)

    def counted(*arguments, **named):
        result = original(*arguments, **named)
        countdown()
        return result

    setattr(owner, name, counted)


class HalfWritten:
    """A file that is killed in the middle of a write: half of the bytes reach it."""

    def __init__(self, file, countdown):
        self.file = file
        self.countdown = countdown

    def write(self, data):
        if self.countdown.left == 1:
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
        self.countdown()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def within_writes(countdown):
    original = torch.save

    def save(obj, file, *rest, **named):
        original(obj, HalfWritten(file, countdown), *rest, **named)

    torch.save = save


def within_copies(countdown):
    """Counts after the first half of every copy."""

    def copyfileobj(source, target, *rest):
        data = source.read()
        target.write(data[: len(data) // 2])
        target.flush()
        countdown()
        target.write(data[len(data) // 2 :])

    shutil.copyfileobj = copyfileobj


MOMENTS = {
    "step": lambda countdown: before(Trainer, "clip_grad_norm", countdown),  # between gradients and parameters
    "stepped": lambda countdown: after(Trainer, "train_step", countdown),
    "validation": lambda countdown: after(Trainer, "valid_step", countdown),
    "write": within_writes,
    "copy": within_copies,
    "sync": lambda countdown: before(os, "fsync", countdown),
    "rename": lambda countdown: before(os, "replace", countdown),
    "renamed": lambda countdown: after(os, "replace", countdown),
    "removal": lambda countdown: after(os, "remove", countdown),
}


@functools.cache
def read(arguments):
    """The settings that a command line stands for."""
    return convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    )


def train(request, settings):
    """The child: never returns."""
    code = 1
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        if request.get("moment"):
            name, n = request["moment"]
            MOMENTS[name](Countdown(n))
        fairseq_cli.train.main(settings)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        settings = read(tuple(request["arguments"]))
        start = time.perf_counter()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            train(request, settings)
        if request.get("seconds"):
            ended = os.pidfd_open(child)
            if not select.select([ended], [], [], request["seconds"])[0]:
                os.kill(child, signal.SIGKILL)
            os.close(ended)
        _, status = os.waitpid(child, 0)
        answer = {
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "seconds": time.perf_counter() - start,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
