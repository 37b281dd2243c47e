"""Which checkpoint a folder stands for as ``--path``, and that it is said."""

import shutil

import pytest
import torch
from support.helpers import save_checkpoint
from support.translation_models import save_translation_model

from muse_plugin.checkpoints.averaging import average_checkpoints
from muse_plugin.checkpoints.model_loading import read_state
from muse_plugin.checkpoints.safe_loading import save_atomically


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return save_translation_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(trained, tmp_path):
    """A folder with two checkpoints of a training."""
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        shutil.copy(trained / "checkpoint_avg.pt", tmp_path / name)
    return tmp_path


def test_the_first_of_three_names_is_used_and_said(folder, capsys):
    read_state(folder, {})
    said = capsys.readouterr()
    assert said.err == f"using checkpoint_best.pt, of 2 checkpoints in the folder {folder}\n"
    assert said.out == ""
    (folder / "checkpoint_best.pt").unlink()
    read_state(folder, {})
    assert capsys.readouterr().err == f"using checkpoint_last.pt, the only checkpoint in the folder {folder}\n"


def test_an_average_says_of_how_many(folder, capsys):
    inputs = sorted(folder.glob("*.pt"))
    save_atomically(average_checkpoints(inputs), folder / "checkpoint_avg.pt")
    read_state(folder, {})
    assert capsys.readouterr().err == (
        f"using checkpoint_avg.pt, average of 2, of 3 checkpoints in the folder {folder}\n"
    )


def test_a_checkpoint_named_by_itself_is_not_said_again(folder, capsys):
    read_state(folder / "checkpoint_last.pt", {})
    assert capsys.readouterr().err == ""


def test_a_checkpoint_is_read_once(folder, monkeypatch):
    read, reads = torch.load, []
    monkeypatch.setattr(torch, "load", lambda *args, **named: reads.append(args) or read(*args, **named))
    read_state(folder, {})
    assert len(reads) == 1


def test_an_odd_list_of_averaged_files_is_passed_over(tmp_path, capsys):
    save_checkpoint(tmp_path / "checkpoint_avg.pt", {"w": torch.ones(1)}, averaged_from=torch.ones(3), args=None)
    read_state(tmp_path, {})
    assert capsys.readouterr().err.startswith("using checkpoint_avg.pt, the only checkpoint in")
