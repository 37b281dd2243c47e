"""Which checkpoint a folder stands for as ``--path``, and that it is said."""

import shutil
from argparse import Namespace

import pytest
import torch
from support.helpers import save_checkpoint

from muse_plugin.checkpoints.averaging import average_checkpoints
from muse_plugin.checkpoints.model_loading import read_state
from muse_plugin.checkpoints.safe_loading import save_atomically


@pytest.fixture
def folder(checkpoint_folder, tmp_path):
    """A folder with two checkpoints of a training."""
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        shutil.copy(checkpoint_folder / "checkpoint_avg.pt", tmp_path / name)
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
    odd = {"averaged_from": torch.ones(3), "args": None, "cfg": {"task": {"_name": "translation"}}}
    save_checkpoint(tmp_path / "checkpoint_avg.pt", {"w": torch.ones(1)}, **odd)
    read_state(tmp_path, {})
    assert capsys.readouterr().err.startswith("using checkpoint_avg.pt, the only checkpoint in")


def test_a_task_that_the_commands_do_not_know_is_named(tmp_path):
    cfg = {"task": Namespace(task="translation_multi_simple_epoch", data="data")}
    save_checkpoint(tmp_path / "checkpoint_avg.pt", {"w": torch.ones(1)}, args=None, cfg=cfg)
    with pytest.raises(ValueError, match=r"was trained with --task translation_multi_simple_epoch, whose models"):
        read_state(tmp_path, {})


def test_data_are_looked_for_above_the_checkpoint_and_next_to_it(checkpoint_folder, tmp_path, monkeypatch, capsys):
    data = tmp_path / "work" / "data"
    shutil.copytree(checkpoint_folder, data / "saved" / "model")
    (data / "dict.de.txt").write_text("")
    for name in ("checkpoint_avg.pt", "checkpoint_of_old_fairseq.pt"):
        checkpoint = data / "saved" / "model" / name
        state = torch.load(checkpoint, weights_only=False)
        settings = state["args"] or state["cfg"]["task"]
        settings.data = "data:other"
        torch.save(state, checkpoint)
        monkeypatch.chdir(data.parent)
        settings = read_state(checkpoint, {})
        assert (settings["args"] or settings["cfg"]["task"]).data == "data:other"
        monkeypatch.chdir("/")
        settings = read_state(checkpoint, {})
        assert (settings["args"] or settings["cfg"]["task"]).data == f"{data}:{data.parent / 'other'}"
        assert read_state(checkpoint, {"data": "mine"})["cfg"]["task"]["data"] == "mine"
        (data / "dict.de.txt").rename(data / "dict")
        assert read_state(checkpoint, {})["cfg"]["task"]["data"] == str(checkpoint.parent)
        (data / "dict").rename(data / "dict.de.txt")


@pytest.mark.parametrize("stored", ["", "nowhere", "a\0b", "x" * 300, "/nowhere", 3, None, ["data"]])
def test_data_that_are_nowhere_are_left_as_they_are(tmp_path, capsys, stored):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "dict.txt").write_text("")
    (tmp_path / "model").mkdir()
    cfg = {"task": {"_name": "translation", "data": stored}}
    path = save_checkpoint(tmp_path / "model" / "checkpoint.pt", {"w": torch.ones(1)}, args=None, cfg=cfg)
    assert read_state(path, {})["cfg"]["task"]["data"] == stored
    assert capsys.readouterr().err == ""
