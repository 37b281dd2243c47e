"""The choice in several processes; for what is chosen, see tests/reliability/test_checkpoint_damage.py."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from support.helpers import save_checkpoint

from muse_plugin.fairseq_repairs.resuming import _choose_together


@pytest.fixture
def folder(tmp_path):
    """Three updates are whole, of the last checkpoint there is half."""
    save_checkpoint(tmp_path / "checkpoint_1_3.pt", {"weight": torch.ones(9)}, num_updates=3)
    last = save_checkpoint(tmp_path / "checkpoint_last.pt", {"weight": torch.ones(9)}, num_updates=5)
    last.write_bytes(last.read_bytes()[:700])
    return tmp_path


def trainer(folder, rank=0, processes=1, suffix="", restore_file="checkpoint_last.pt"):
    return SimpleNamespace(
        cfg=SimpleNamespace(checkpoint=SimpleNamespace(save_dir=str(folder), restore_file=restore_file)),
        checkpoint_suffix=suffix,
        data_parallel_rank=rank,
        data_parallel_world_size=processes,
        data_parallel_process_group="group",
        device=torch.device("cpu"),
        tpu=False,
    )


@pytest.fixture
def sent(monkeypatch):
    """What the first process sent to the others, instead of sending it; others receive it."""
    messages = []

    def broadcast(obj, src_rank, group, dist_device):
        assert (src_rank, group) == (0, "group")
        if obj != ("", ""):
            messages.append(obj)
        return messages[0]

    monkeypatch.setattr(distributed_utils, "broadcast_object", broadcast)
    return messages


def test_first_process_chooses_for_all(folder, sent):
    last, whole = str(folder / "checkpoint_last.pt"), str(folder / "checkpoint_1_3.pt")
    assert _choose_together(trainer(folder, rank=0, processes=2), last) == whole
    (folder / "checkpoint_1_3.pt").unlink()  # the second would choose otherwise
    assert _choose_together(trainer(folder, rank=1, processes=2), last) == whole
    assert sent == [(whole, "")]


def test_error_of_the_first_process_ends_all(folder, sent):
    (folder / "checkpoint_1_3.pt").unlink()
    for rank in (0, 1):
        with pytest.raises(ValueError, match=r"training cannot resume from \S+checkpoint_last.pt, which is damaged"):
            _choose_together(trainer(folder, rank=rank, processes=2), str(folder / "checkpoint_last.pt"))
    assert len(sent) == 1


def test_one_process_sends_nothing(folder, sent):
    assert _choose_together(trainer(folder), str(folder / "checkpoint_last.pt")).endswith("checkpoint_1_3.pt")
    assert sent == []


def test_files_that_belong_together_are_not_replaced_by_one_of_another_update(folder, sent):
    path = folder / "checkpoint_last-shard1.pt"
    path.write_bytes(b"PK")
    with pytest.raises(
        ValueError,
        match=r"training cannot resume from \S+-shard1.pt, which is damaged: it is cut short\. Each process has a file "
        r"of its own, and all must be of the same update; name those of an earlier one by --restore-file\.",
    ):
        _choose_together(trainer(folder, rank=1, processes=2, suffix="-shard1"), str(path))
    assert sent == []


def test_file_that_is_no_disks_is_left_to_fairseq(folder, monkeypatch):
    monkeypatch.setattr(PathManager, "path_requires_pathmanager", staticmethod(lambda path: path.startswith("s3://")))
    assert _choose_together(trainer(folder), "s3://bucket/checkpoint_last.pt") == "s3://bucket/checkpoint_last.pt"


def test_name_stays_as_it_was_given(folder):
    (folder / "whole.pt").write_bytes((folder / "checkpoint_1_3.pt").read_bytes())
    name = f"{folder}//whole.pt"
    assert _choose_together(trainer(folder, restore_file=name), name) == name
