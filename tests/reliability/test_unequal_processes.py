"""Processes of one training that do not have the same data, dictionaries or model; one that waits for the others."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from support.fairseq_commands import SMALL, USER_DIR, make_data
from support.helpers import REPOSITORY
from support.warm_python import find_python

from muse_plugin.fairseq_repairs import equal_processes
from muse_plugin.fairseq_repairs.equal_processes import Fingerprint, check_equal

SECONDS_TO_END = 5  # after Ctrl-C
SECONDS = 280
FLAGS = [
    "--user-dir", USER_DIR, "--arch", "muse_tiny", *SMALL, "--cpu", "--criterion", "label_smoothed_cross_entropy",
    "--optimizer", "adam", "--lr", 0.001, "--max-tokens", 60, "--num-workers", 0, "--max-update", 2, "--no-save",
    "--log-format", "simple", "--distributed-world-size", 2, "--distributed-no-spawn",
]  # fmt: skip


def find_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def start(data, rank, port, *flags, python=None):
    words = [data, *FLAGS, "--distributed-rank", rank, "--distributed-init-method", f"tcp://localhost:{port}", *flags]
    return subprocess.Popen(
        [python or find_python(), "-m", "fairseq_cli.train", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def swap_words(folder):
    """The same words in another order."""
    for lang in ("de", "en"):
        path = folder / f"dict.{lang}.txt"
        first, second, *rest = path.read_text().splitlines(keepends=True)
        path.write_text("".join([second, first, *rest]))


def shorten(folder):
    other = make_data(folder.parent / "shorter", {"train": 10, "valid": 8})
    for path in other.glob("train.*"):
        shutil.copy(path, folder / path.name)


@pytest.mark.parametrize(
    ("change", "flags", "sentence"),
    [
        (
            swap_words,
            [],
            "the dictionary src_dict is not the same: process 0 has 24 words, process 1 (counted from 0) 2",
        ),
        (shorten, [], "the data of train is not the same: process 0 has 40 sentences, process 1 (counted from 0) 10"),
        (None, ["--encoder-layers", 1], "the model is not the same: process 0 has"),
    ],
)
def test_processes_that_are_not_equal_end_with_a_sentence(data, tmp_path, change, flags, sentence):
    shutil.copytree(data, tmp_path / "data")
    if change is not None:
        change(tmp_path / "data")
    port = find_port()
    processes = [start(data, 0, port), start(tmp_path / "data", 1, port, *flags)]
    for process in processes:
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 1, output
        assert sentence in output
        assert output.rstrip().endswith("give all of them the same folder of data and the same flags.")


def test_the_first_difference_is_named():
    mine = {"the model": Fingerprint("9 parameters", "a"), "the data of train": Fingerprint("4 sentences", "b")}
    check_equal([mine, dict(mine), dict(mine)])
    check_equal([mine])
    with pytest.raises(ValueError, match=r"the model is not the same: .* 9 parameters, .* 9 parameters, but other one"):
        check_equal([mine, mine, {**mine, "the model": Fingerprint("9 parameters", "x")}])
    with pytest.raises(ValueError, match=r"the data of train is not the same: .* 4 sentences, .* none; give"):
        check_equal([mine, {"the model": mine["the model"]}])


def test_a_fingerprint_knows_order_lengths_and_shapes():
    dictionaries = []
    for words in ("a b", "b a"):
        dictionary = Dictionary()
        for word in words.split():
            dictionary.add_symbol(word)
        task = SimpleNamespace(src_dict=dictionary, dicts={"de": dictionary}, cfg=None)
        dictionaries.append(dict(equal_processes._dictionaries(task)))
    assert list(dictionaries[0]) == ["the dictionary src_dict", "the dictionary dicts[de]"]
    assert dictionaries[0] != dictionaries[1]

    class Sentences(list):
        def __init__(self, sizes):
            super().__init__(sizes)
            self.sizes = np.array(sizes)

    first, same, other = (dict(equal_processes._data("x", Sentences(s))) for s in ([3, 4], [3, 4], [4, 3]))
    assert first == same != other
    assert list(equal_processes._data("x", iter([]))) == []
    models = [dict(equal_processes._model(torch.nn.Linear(*shape))) for shape in ((2, 5), (2, 5), (5, 2))]
    assert models[0] == models[1] != models[2]


def read_until(process, words):
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            return output
    raise AssertionError(output)


def interrupt(process):
    begun = time.perf_counter()
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=SECONDS_TO_END)
    finally:
        process.kill()
    assert time.perf_counter() - begun < SECONDS_TO_END
    assert process.returncode == 130, output
    assert "interrupted while waiting for the other processes of the training; start the same" in output


def test_ctrl_c_ends_a_process_that_waits_for_one_that_never_comes(data):
    process = start(data, 0, find_port())
    read_until(process, "distributed init (rank 0)")
    time.sleep(2)
    interrupt(process)


def test_ctrl_c_ends_a_process_that_waits_for_one_that_stands_still(data):
    port = find_port()
    endless = ("--max-update", 100000, "--log-interval", 1)
    processes = [start(data, 0, port, *endless), start(data, 1, port, *endless, python=sys.executable)]
    try:
        read_until(processes[0], "num_updates=5,")
        processes[1].send_signal(signal.SIGSTOP)
        time.sleep(2)
        interrupt(processes[0])
    finally:
        processes[1].kill()
        processes[1].communicate()
