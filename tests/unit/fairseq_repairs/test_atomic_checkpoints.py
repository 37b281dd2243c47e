import errno
import fcntl
import os
import shutil
import types

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from muse_plugin.fairseq_repairs import atomic_checkpoints

STATE = {"model": {"weight": torch.arange(20000.0)}}


class FullDisk:
    """A file on a disk with room for ``room`` bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if len(data) > self.room:
            self.file.write(bytes(data)[: self.room])
            self.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.fixture
def full_disk(monkeypatch):
    """Lets checkpoints be written up to a number of bytes."""

    def limit(room):
        save, copy = torch.save, shutil.copyfileobj
        monkeypatch.setattr(torch, "save", lambda obj, file: save(obj, FullDisk(file, room)))
        monkeypatch.setattr(shutil, "copyfileobj", lambda source, to, *rest: copy(source, FullDisk(to, room), *rest))

    return limit


def test_checkpoint_is_written_and_copied_whole(tmp_path):
    first, last = str(tmp_path / "checkpoint1.pt"), str(tmp_path / "checkpoint_last.pt")
    checkpoint_utils.torch_persistent_save(STATE, first)
    assert PathManager.copy(first, last, overwrite=True)
    assert torch.equal(torch.load(last)["model"]["weight"], STATE["model"]["weight"])
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_copy_takes_the_name_only_when_it_is_whole(tmp_path, monkeypatch):
    first, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    first.write_bytes(b"new")
    last.write_bytes(b"old")
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append((a.read_bytes(), last.read_bytes())), replace(a, b)))
    PathManager.copy(str(first), str(last), overwrite=True)
    assert seen == [(b"new", b"old")]
    assert last.read_bytes() == b"new"


def test_copy_over_a_link_leaves_the_file_that_it_points_to(tmp_path):
    first, last, other = (tmp_path / name for name in ("checkpoint1.pt", "checkpoint_last.pt", "pretrained.pt"))
    first.write_bytes(b"new")
    other.write_bytes(b"old")
    last.symlink_to(other)
    PathManager.copy(str(first), str(last), overwrite=True)
    assert (last.read_bytes(), other.read_bytes()) == (b"new", b"old")


@pytest.mark.parametrize("room", [0, 1, 100, 3000, 60000])
def test_full_disk_leaves_the_earlier_file_and_is_named_in_one_sentence(room, tmp_path, full_disk):
    full_disk(room)
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"old" * 50000)
    (tmp_path / "checkpoint1.pt").write_bytes(b"new" * 50000)
    sentence = (
        r"the checkpoint \S+checkpoint_last.pt could not be written: No space left on device\. Earlier checkpoints are "
        r"as they were; make room in \S+, where [\d,]+ MiB are free, then start the same command again: training "
        r"continues from the last checkpoint\."
    )
    for write in (
        lambda: checkpoint_utils.torch_persistent_save(STATE, str(path)),
        lambda: PathManager.copy(str(tmp_path / "checkpoint1.pt"), str(path), overwrite=True),
    ):
        with pytest.raises(OSError, match=sentence) as caught:
            write()
        assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == b"old" * 50000
        assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_an_error_that_is_not_the_systems_stays_what_it_is(tmp_path):
    with pytest.raises(Exception, match="pickle") as caught:
        checkpoint_utils.torch_persistent_save({"module": types}, str(tmp_path / "checkpoint_last.pt"))
    assert not isinstance(caught.value, OSError)
    assert os.listdir(tmp_path) == []


LEFT = [
    ".checkpoint_last.pt.0123abcd.tmp",
    ".checkpoint12.pt.0123abcd.tmp",
    ".checkpoint_3_12.pt.0123abcd.tmp",
    ".checkpoint.best_loss_2.10.pt.0123abcd.tmp",
    ".checkpoint_best-shard0.pt.0123abcd.tmp",
    "checkpoint_3_12.pt.tmp",
]
KEPT = [
    ".checkpoint_avg.pt.0123abcd.tmp",
    ".notes.pt.0123abcd.tmp",
    "checkpoint_last.pt",
    "checkpoint_last.pt.bak",
    "my.tmp",
]


def test_start_removes_what_killed_processes_left_and_nothing_else(tmp_path, caplog):
    for name in [*LEFT, *KEPT]:
        (tmp_path / name).write_bytes(b"half")
    with caplog.at_level("INFO"):
        checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(KEPT)
    assert all(name in caplog.text for name in LEFT)
    caplog.clear()
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    assert "killed" not in caplog.text


def test_start_leaves_the_file_that_another_process_is_writing(tmp_path):
    with atomic_checkpoints._open_for_checkpoint(str(tmp_path / "checkpoint_last.pt")) as file:
        file.write(b"whole")
        (name,) = os.listdir(tmp_path)
        assert atomic_checkpoints.remove_leftovers(tmp_path) == []
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == b"whole"
    with (tmp_path / name).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert atomic_checkpoints.remove_leftovers(tmp_path) == []
    assert atomic_checkpoints.remove_leftovers(tmp_path) == [name]
    assert atomic_checkpoints.remove_leftovers(tmp_path / "absent") == []


def test_places_that_are_no_disk_are_left_to_fairseq(monkeypatch, tmp_path):
    monkeypatch.setattr(PathManager, "path_requires_pathmanager", staticmethod(lambda path: path.startswith("s3://")))
    monkeypatch.setattr(PathManager, "supports_rename", staticmethod(lambda path: not path.startswith("s3://")))
    opened = []

    def record(path, mode):
        opened.append((path, mode))
        return (tmp_path / "remote").open(mode)

    monkeypatch.setattr(PathManager, "open", staticmethod(record))
    checkpoint_utils.torch_persistent_save(STATE, "s3://bucket/checkpoint_last.pt")
    assert opened == [("s3://bucket/checkpoint_last.pt", "wb")]
