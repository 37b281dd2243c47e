"""One of several training processes dies: the run ends with a sentence that says so, and leaves no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.fairseq_commands import SMALL, USER_DIR
from support.helpers import REPOSITORY

SECONDS_TO_END = 60  # after the death; about 4 on a busy machine. The others have 30 to end before they are killed
SECONDS_TO_START = 280

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "fairseq_cli.train"]
STARTS = {
    "torchrun": (TORCHRUN, []),
    "fairseq's own": (["-m", "fairseq_cli.train"], ["--distributed-world-size", 2]),
}
FLAGS = [
    "--user-dir", USER_DIR, "--arch", "muse_tiny", *SMALL, "--cpu", "--criterion", "label_smoothed_cross_entropy",
    "--optimizer", "adam", "--lr", 0.001, "--max-tokens", 60, "--num-workers", 0, "--max-epoch", 100000, "--no-save",
    "--disable-validation", "--log-format", "simple", "--log-interval", 1,
]  # fmt: skip


class Run:
    """A training that has made some updates.

    Attributes:
        workers: the ids of its processes, by rank.
        output: what it printed so far.
    """

    def __init__(self, start, data, *flags):
        command, settings = STARTS[start]
        self.process = subprocess.Popen(
            [
                sys.executable,
                *map(str, [*command, data, *FLAGS, "--save-dir", data.parent / "saved", *settings, *flags]),
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        limit = threading.Timer(SECONDS_TO_START, self.end)
        limit.start()
        for line in self.process.stdout:
            self.output += line
            if "num_updates=5," in line:
                break
        limit.cancel()
        self.workers = find_workers(self.process.pid)
        assert len(self.workers) == 2, self.output

    def wait(self):
        """Waits for the end; returns how many seconds that took."""
        start = time.perf_counter()
        limit = threading.Timer(SECONDS_TO_END, self.end)
        limit.start()
        for line in self.process.stdout:
            self.output += line
            if "Terminating process" in line:  # a stopped process hears of it when it continues; else 30 seconds pass
                with contextlib.suppress(ProcessLookupError):  # it has died already
                    os.kill(self.workers[1], signal.SIGCONT)
        self.process.wait()
        limit.cancel()
        return time.perf_counter() - start

    def end(self):
        for process in (self.process.pid, *find_workers(self.process.pid)):
            os.kill(process, signal.SIGKILL)


def find_workers(launcher):
    """The processes that train, by rank: those of torchrun know their rank, those of fairseq start in its order."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found = {}
    for child in sorted(map(int, children)):
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        environment = Path(f"/proc/{child}/environ").read_text().split("\0")
        ranks = [int(entry.partition("=")[2]) for entry in environment if entry.startswith("RANK=")]
        if ranks:
            found[ranks[0]] = child
        elif any("spawn_main" in word for word in words):
            found[len(found)] = child
    return [found[rank] for rank in sorted(found)]


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("start", "rank"), [("torchrun", 1), ("fairseq's own", 1), ("fairseq's own", 0)])
def test_a_process_that_is_killed_ends_the_run_with_a_sentence_about_it(start, rank, data):
    run = Run(start, data)
    os.kill(run.workers[rank], signal.SIGKILL)
    seconds = run.wait()
    assert seconds < SECONDS_TO_END
    assert run.process.returncode == 1, run.output
    if start == "torchrun":
        cause = run.output[run.output.index("Root Cause") :]
        assert f"rank      : {rank} " in cause
        assert f"Signal 9 (SIGKILL) received by PID {run.workers[rank]}" in cause
    else:
        assert (
            f"RuntimeError: training process {rank} of 2 (counted from 0) was ended by SIGKILL; the system does"
            in run.output
        )
        assert "start the same command again: training continues from the last checkpoint." in run.output
    assert not any(map(is_running, run.workers))


def test_a_process_that_hangs_ends_the_run_after_the_heartbeat_timeout(data):
    run = Run("fairseq's own", data, "--heartbeat-timeout", 5)
    os.kill(run.workers[1], signal.SIGSTOP)
    seconds = run.wait()
    assert 5 < seconds < SECONDS_TO_END
    assert run.process.returncode == 1, run.output
    assert "Killing job for not making progress in 5 seconds." in run.output
    assert "RuntimeError: training process 0 of 2 (counted from 0) was ended by SIGTERM. All" in run.output
    assert not any(map(is_running, run.workers))
