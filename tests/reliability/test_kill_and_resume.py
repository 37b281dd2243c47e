"""Training that is killed again and again, each time started by the same command, ends as one that never stopped.

Bit for bit, on a CPU: parameters, the optimizer's state, the number of updates, the best score so far. A process of its
own (``training_server.py``) trains; children of it are killed by SIGKILL, in moments that are hit for certain and after
random times.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fairseq_commands import SMALL, USER_DIR, make_data
from support.helpers import REPOSITORY, assert_close
from support.sentence_models import write_data

from muse_plugin.checkpoints.safe_loading import load_checkpoint

TRANSLATION = [
    "--arch", "muse_tiny", *SMALL, "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1,
    "--max-tokens", 60, "--update-freq", 2, "--dropout", 0.1, "--input-dropout", 0.1, "--max-epoch", 4,
    "--save-interval-updates", 3, "--keep-interval-updates", 2, "--keep-last-epochs", 2,
]  # fmt: skip
SENTENCES = [
    "--task", "muse_sentence_classification", "--criterion", "muse_sentence_classification", "--word-embed-dim", 12,
    "--encoder-embed-dim", 16, "--classifier-hidden-dim", 16, "--dropout", 0.1, "--batch-size", 8, "--max-epoch", 3,
    "--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric",
    "--save-interval-updates", 3, "--keep-interval-updates", 2, "--no-epoch-checkpoints",
]  # fmt: skip
SENTENCE_MODELS = {
    "multi_scale_transformer": [
        "--encoder-layers", 2, "--encoder-attention-heads", 4, "--encoder-head-dim", 6,
        "--encoder-attention-scales", "1,3,N/4",
    ],
    "lama": ["--encoder-hidden-size", 8, "--pooling-heads", 3],
}  # fmt: skip


class Trainings:
    """The server; each call of ``run`` is one start of fairseq-train."""

    def __init__(self):
        path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("training_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def run(self, arguments, log, **how):
        request = {"arguments": [str(word) for word in arguments], "log": str(log), **how}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(next(line for line in self.process.stdout if line.startswith("{")))
        assert answer["signal"] or answer["code"] == 0 or how.get("may_fail"), Path(log).read_text()[-4000:]
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def trainings():
    server = Trainings()
    yield server
    server.close()


@pytest.fixture(scope="module")
def translation_data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("translation"), {"train": 70, "valid": 24, "test": 5})


@pytest.fixture(scope="module")
def sentence_data(tmp_path_factory):
    generator = random.Random(5)
    splits = {}
    for split, size in (("train", 56), ("valid", 24)):
        rows = []
        for number in range(size):
            words = generator.choices([f"w{i}" for i in range(12)], k=generator.randint(1, 8))
            rows.append((" ".join([*words, ("bad", "good")[number % 2]]), ("negative", "positive")[number % 2]))
        splits[split] = rows
    return write_data(tmp_path_factory.mktemp("sentences"), splits)


def command(data, save_dir, *arguments):
    return [
        data, "--user-dir", USER_DIR, "--save-dir", save_dir, "--cpu", "--optimizer", "adam", "--lr", 0.01,
        "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 2, "--no-progress-bar", "--log-format", "simple",
        "--num-workers", 0, "--seed", 3, *arguments,
    ]  # fmt: skip


def same_bits(actual, expected, where):
    """Compares two stored states, tensor by tensor."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key in expected:
            same_bits(actual[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for i, pair in enumerate(zip(actual, expected, strict=True)):
            same_bits(*pair, f"{where}.{i}")
    elif hasattr(expected, "dtype"):
        assert_close(actual, expected, atol=0, rtol=0, why=where)
    else:
        assert actual == expected, where


def check_same_end(folder, whole):
    """The last and the best checkpoint of two trainings are the same in all that training depends on."""
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        actual, expected = load_checkpoint(folder / name), load_checkpoint(whole / name)
        assert len(expected["last_optimizer_state"]["state"]) > 3
        for part in ("model", "last_optimizer_state"):
            same_bits(actual[part], expected[part], f"{name}: {part}")
        # The history has an entry for each start; the last one counts the updates of all.
        same_bits(actual["optimizer_history"][-1], expected["optimizer_history"][-1], f"{name}: optimizer_history")
        for part in ("train_iterator", "val_loss", "best"):
            same_bits(actual["extra_state"][part], expected["extra_state"][part], f"{name}: {part}")


def check_folder(folder, whole):
    """Nothing is left over: the same files as without kills."""
    assert sorted(os.listdir(folder)) == sorted(os.listdir(whole))


def check_training_survives(trainings, tmp_path, data, flags, kills, generator):
    """Trains once without ``kills`` and once with them: moments of the child, or None for a random time.

    Returns:
        The log of the killed training.
    """
    whole, parts, log = tmp_path / "whole", tmp_path / "parts", tmp_path / "parts.log"
    full = trainings.run(command(data, whole, *flags), tmp_path / "whole.log")["seconds"]
    for moment in kills:
        seconds = generator.uniform(0.02, 0.6) * full
        while True:
            how = {"seconds": seconds} if moment is None else {"moment": moment}
            answer = trainings.run(command(data, parts, *flags), log, **how)
            if answer["signal"] == signal.SIGKILL:
                break
            # It came to its end first: the same from the beginning.
            check_same_end(parts, whole)
            shutil.rmtree(parts)
            seconds /= 2
    trainings.run(command(data, parts, *flags), log)
    check_same_end(parts, whole)
    check_folder(parts, whole)
    return log.read_text()


def test_a_translation_model_killed_again_and_again_ends_with_the_same_bits(trainings, translation_data, tmp_path):
    generator = random.Random(11)
    certain = [
        ["step", 1], ["write", 9], ["copy", 1], ["rename", 2], ["step", 3], ["validation", 2], ["write", 40],
        ["stepped", 4], ["sync", 4], ["copy", 2], ["renamed", 1], ["validation", 5], ["removal", 2], ["rename", 1],
    ]  # fmt: skip
    kills = []
    for moment in certain:
        kills += [moment, None] if generator.random() < 0.55 else [moment]
    assert len(kills) >= 20
    log = check_training_survives(trainings, tmp_path, translation_data, TRANSLATION, kills, generator)
    assert len(re.findall(r"removed what a killed process had left of checkpoints: \.checkpoint", log)) >= 4
    assert "is damaged" not in log


@pytest.mark.parametrize("arch", SENTENCE_MODELS)
def test_a_sentence_model_killed_again_and_again_ends_with_the_same_bits(arch, trainings, sentence_data, tmp_path):
    kills = [["step", 5], ["copy", 2], None, ["validation", 4], ["write", 20], ["rename", 2]]
    flags = [*SENTENCES, "--arch", arch, *SENTENCE_MODELS[arch]]
    check_training_survives(trainings, tmp_path, sentence_data, flags, kills, random.Random(12))


def test_a_finished_training_started_again_stays_as_it_is(trainings, translation_data, tmp_path):
    arguments = command(translation_data, tmp_path / "a", *TRANSLATION, "--max-update", 7)
    trainings.run(arguments, tmp_path / "log")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    trainings.run(arguments, tmp_path / "again.log")
    assert (
        "this training has ended before: --max-update is 7, and 7 updates are done"
        in (tmp_path / "again.log").read_text()
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    trainings.run([*arguments, "--max-update", 9], tmp_path / "more.log")
    last = load_checkpoint(tmp_path / "a" / "checkpoint_last.pt")
    assert last["optimizer_history"][-1]["num_updates"] == 9


def test_patience_counts_on_after_a_kill(trainings, translation_data, tmp_path):
    # Nothing is learnt, so nothing improves: --patience 3 ends training at the fourth validation.
    flags = [*TRANSLATION, "--lr", 0, "--patience", 3, "--max-epoch", 9]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainings.run(command(translation_data, whole, *flags), tmp_path / "whole.log")
    assert trainings.run(command(translation_data, parts, *flags), tmp_path / "log", moment=["step", 7])["signal"] == 9
    trainings.run(command(translation_data, parts, *flags), tmp_path / "log")
    check_same_end(parts, whole)
    trainings.run(command(translation_data, parts, *flags), tmp_path / "again.log")
    assert "this training has ended before: --patience is 3" in (tmp_path / "again.log").read_text()
    check_same_end(parts, whole)


def test_a_training_that_its_hours_ended_stays_as_it_is(trainings, translation_data, tmp_path):
    arguments = command(translation_data, tmp_path / "a", *TRANSLATION, "--stop-time-hours", 1e-7)
    trainings.run(arguments, tmp_path / "log")
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert load_checkpoint(tmp_path / "a" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 1
    trainings.run(arguments, tmp_path / "again.log")
    assert "this training has ended before: --stop-time-hours is 1e-07" in (tmp_path / "again.log").read_text()
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


def test_the_least_rate_counts_at_the_end_of_an_epoch_only(trainings, translation_data, tmp_path):
    schedule = ["--lr-scheduler", "polynomial_decay", "--total-num-update", 12, "--stop-min-lr", 0.008]
    flags = [*TRANSLATION, *schedule, "--warmup-updates", 0]  # the rate is below that after the third update
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainings.run(command(translation_data, whole, *flags), tmp_path / "whole.log")
    assert "stopping training because current learning rate" in (tmp_path / "whole.log").read_text()
    assert trainings.run(command(translation_data, parts, *flags), tmp_path / "log", moment=["step", 5])["signal"] == 9
    trainings.run(command(translation_data, parts, *flags), tmp_path / "log")
    check_same_end(parts, whole)


def test_plateau_schedule_knows_every_validation_after_kills(trainings, translation_data, tmp_path):
    # Only half the loss would count as better: the rate is halved after the third epoch and after the fifth.
    flags = [*TRANSLATION, "--lr-scheduler", "reduce_lr_on_plateau", "--lr", 0.001, "--lr-shrink", 0.5]
    flags += ["--lr-patience", 1, "--lr-threshold", 0.5, "--max-epoch", 6, "--warmup-updates", 0]
    kills = [["step", 7], ["step", 5], ["step", 6]]
    check_training_survives(trainings, tmp_path, translation_data, flags, kills, random.Random(1))
    state = load_checkpoint(tmp_path / "whole" / "checkpoint_last.pt")["last_optimizer_state"]
    assert state["param_groups"][0]["lr"] == 0.00025
