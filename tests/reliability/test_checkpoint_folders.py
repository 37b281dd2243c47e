"""``muse-plugin average`` and ``evaluate`` while files appear and vanish: a right result or one sentence."""

import os
import random
import subprocess
from types import SimpleNamespace

import pytest
import torch
from support.helpers import assert_close, save_checkpoint

from muse_plugin.checkpoints import averaging
from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.evaluation import evaluate
from muse_plugin.files import lines
from muse_plugin_command import cli

COMPLAINT = "checkpoints must not vanish while they are averaged, but {} is gone, perhaps removed by a training with "


@pytest.fixture
def folder(tmp_path):
    """Epochs 1 to 5; epoch n holds the number n."""
    for epoch in range(1, 6):
        write(tmp_path, epoch)
    return tmp_path


def write(folder, epoch):
    save_checkpoint(folder / f"checkpoint{epoch}.pt", {"weight": torch.full((4,), float(epoch))}, num_updates=epoch)


def run_average(folder, *flags):
    return cli.main(
        ["average", "--inputs", str(folder), "--output", str(folder / "checkpoint_avg.pt"), *map(str, flags)]
    )


def before_reading(monkeypatch, action):
    """Has ``action(number of the reading, path)`` come between the listing and each reading of a checkpoint."""
    original, count = averaging.load_checkpoint, iter(range(100))

    def load(path):
        action(next(count), path)
        return original(path)

    monkeypatch.setattr(averaging, "load_checkpoint", load)


@pytest.mark.parametrize("reading", [0, 1, 2])
def test_checkpoint_that_vanishes_after_the_listing_is_named_and_nothing_written(reading, folder, monkeypatch, capsys):
    (folder / "checkpoint_avg.pt").write_bytes(b"earlier")
    gone = []

    def remove(number, path):
        if number == reading:
            path.unlink()
            gone.append(path)

    before_reading(monkeypatch, remove)
    assert run_average(folder, "--num-epoch-checkpoints", 3) == 2
    assert COMPLAINT.format(gone[0]) in capsys.readouterr().err
    assert (folder / "checkpoint_avg.pt").read_bytes() == b"earlier"
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_checkpoint_that_vanishes_while_it_is_read_is_not_called_damaged(folder, monkeypatch, capsys):
    original = torch.load

    def load(path, **named):
        os.unlink(path)
        return original(path, **named)

    monkeypatch.setattr(torch, "load", load)
    assert run_average(folder, "--num-epoch-checkpoints", 3) == 2
    error = capsys.readouterr().err
    assert COMPLAINT.format(folder / "checkpoint5.pt") in error
    assert "damaged" not in error
    assert not (folder / "checkpoint_avg.pt").exists()


def test_best_checkpoint_that_vanishes_before_its_settings_are_read_is_named(tmp_path, monkeypatch, capsys):
    for value in ("1.00", "2.00"):
        save_checkpoint(tmp_path / f"checkpoint.best_loss_{value}0.pt", {"w": torch.ones(1)}, maximize_metric=False)
    before_reading(monkeypatch, lambda number, path: path.unlink())
    assert run_average(tmp_path, "--num-best-checkpoints", 1) == 2
    assert COMPLAINT.format(tmp_path / "checkpoint.best_loss_1.000.pt") in capsys.readouterr().err


def test_checkpoints_that_appear_do_not_change_what_was_listed(folder, monkeypatch):
    before_reading(monkeypatch, lambda number, path: write(folder, 6 + number))
    assert run_average(folder, "--num-epoch-checkpoints", 3) == 0
    state = load_checkpoint(folder / "checkpoint_avg.pt")
    assert state["averaged_from"] == ["checkpoint5.pt", "checkpoint4.pt", "checkpoint3.pt"]
    assert_close(state["model"]["weight"], [4.0] * 4)


def test_average_of_a_folder_that_changes_at_every_step_is_right_or_refused(folder, monkeypatch, capsys):
    generator = random.Random(4)
    newest = 5
    codes = []

    def change(number, path):
        nonlocal newest
        for _ in range(generator.randint(0, 2)):
            newest += 1
            write(folder, newest)
            # As --keep-last-epochs: the oldest goes. What is being read may be among them.
            numbers = sorted(int(p.stem.removeprefix("checkpoint")) for p in folder.glob("checkpoint[0-9]*.pt"))
            (folder / f"checkpoint{numbers[0]}.pt").unlink()

    before_reading(monkeypatch, change)
    for _ in range(30):
        (folder / "checkpoint_avg.pt").unlink(missing_ok=True)
        codes.append(run_average(folder, "--num-epoch-checkpoints", 4))
        if codes[-1] == 0:
            state = load_checkpoint(folder / "checkpoint_avg.pt")
            epochs = [int(name.removeprefix("checkpoint").removesuffix(".pt")) for name in state["averaged_from"]]
            assert len(epochs) == 4
            assert_close(state["model"]["weight"], [sum(epochs) / 4] * 4)
        else:
            assert "is gone, perhaps removed by a training" in capsys.readouterr().err
            assert not (folder / "checkpoint_avg.pt").exists()
        monkeypatch.setattr(averaging, "load_checkpoint", load_checkpoint)
        before_reading(monkeypatch, change)
    assert {0, 2} == set(codes)


# ---- evaluate --------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "hypotheses").write_text("a b c d e\n" * 5)
    (tmp_path / "references").write_text("a b c d e\n" * 5)
    return tmp_path


def run_evaluate(folder):
    files = ["--hypotheses", str(folder / "hypotheses"), "--references", str(folder / "references")]
    return cli.main(["evaluate", *files, "--target-lang", "en", "--output", str(folder / "scores.json")])


@pytest.mark.parametrize("name", ["hypotheses", "references"])
@pytest.mark.parametrize("moment", ["before", "between_check_and_opening"])
def test_evaluate_names_a_file_that_vanishes_and_writes_no_scores(name, moment, texts, monkeypatch, capsys):
    (texts / "scores.json").write_text("earlier")
    if moment == "before":
        (texts / name).unlink()
    else:
        original = lines._iterate_bytes

        def iterate(path):
            if path.name == name:
                path.unlink()
            return original(path)

        monkeypatch.setattr("muse_plugin.files.lines._iterate_bytes", iterate)
    assert run_evaluate(texts) == 2
    error = capsys.readouterr().err
    assert error.startswith("muse-plugin evaluate: error: ")
    assert str(texts / name) in error
    assert "No such file" in error or f"--{name} must name a file, but {texts / name} does not exist" in error
    assert (texts / "scores.json").read_text() == "earlier"
    assert not [file for file in os.listdir(texts) if file.endswith(".tmp")]


def test_evaluate_scores_what_it_read_although_files_vanish_afterwards(texts, monkeypatch):
    original = evaluate.load_texts

    def load(*inputs):
        loaded = original(*inputs)
        for name in ("hypotheses", "references"):
            (texts / name).unlink()
        return loaded

    monkeypatch.setattr(evaluate, "load_texts", load)
    assert run_evaluate(texts) == 0
    assert "100.0" in (texts / "scores.json").read_text()


def test_evaluate_of_a_checkpoint_that_vanishes_before_generation_is_one_sentence(texts, capsys, monkeypatch):
    checkpoint = save_checkpoint(texts / "checkpoint_best.pt", {"weight": torch.ones(1)})
    (texts / "data").mkdir()

    def generate(command, **named):
        checkpoint.unlink()
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(subprocess, "run", generate)
    flags = ["--path", str(checkpoint), "--data", str(texts / "data"), "--target-lang", "en", "--source-lang", "de"]
    assert cli.main(["evaluate", *flags, "--output", str(texts / "scores.json")]) == 2
    error = capsys.readouterr().err
    assert "fairseq-generate must end with exit code 0, but got 1; its own message is above" in error
    assert not (texts / "scores.json").exists()
    assert cli.main(["evaluate", *flags]) == 2
    assert (
        f"--path must name a checkpoint or a folder with one, but {checkpoint} does not exist; "
        in capsys.readouterr().err
    )
