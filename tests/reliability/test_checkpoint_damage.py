"""Checkpoints that are cut short, empty, overwritten or changed, and what fairseq-train does when it is to resume."""

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import zipfile

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_cli.train import should_stop_early
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fairseq_commands import SMALL, train
from support.helpers import assert_close, save_checkpoint

from muse_plugin import fairseq_repairs
from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.checkpoints.whole_checkpoints import find_damage, find_newest_whole
from muse_plugin_command import cli

fairseq_repairs.apply()

FLAGS = [*SMALL, "--max-tokens", 60, "--dropout", 0.1, "--save-interval-updates", 2]


def fit(data, folder, *arguments):
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    vars(should_stop_early).clear()
    train(data, folder, "muse_tiny", *FLAGS, *arguments)
    return load_checkpoint(folder / "checkpoint_last.pt")


@pytest.fixture(scope="module")
def begun(data, tmp_path_factory):
    """A folder of a training of five updates: checkpoint_1_2.pt, checkpoint_1_4.pt, best and last; and its data."""
    folder = tmp_path_factory.mktemp("begun")
    fit(data, folder, "--max-update", 5)
    assert {"checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_last.pt"} <= set(os.listdir(folder))
    return folder


@pytest.fixture(scope="module")
def expected(data, begun, tmp_path_factory):
    """What the training becomes after seven updates."""
    folder = tmp_path_factory.mktemp("expected") / "run"
    shutil.copytree(begun, folder)
    return fit(data, folder, "--max-update", 7)


@pytest.fixture
def folder(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "run")


@pytest.fixture(autouse=True)
def log(caplog):
    with caplog.at_level("INFO"):
        yield


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def overwrite(path):
    path.write_text("this is no checkpoint\n" * 100)


def zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # among the numbers
    path.write_bytes(content)


def archive_of_something_else(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("letter.txt", "Dear reader")


DAMAGES = {
    "cut_short": (cut_short, "it is cut short"),
    "empty": (empty, "it is empty"),
    "overwritten": (overwrite, "it is no checkpoint, or the beginning of one"),
    "zeros": (zeros, "it is no checkpoint, or the beginning of one"),
    "changed": (change_a_byte, r"its part \S+ does not have the bytes that were written"),
    "other_archive": (archive_of_something_else, "it is an archive of something else"),
}


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if "fairseq_repairs.resuming" in record.name]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_last_checkpoint_is_named_and_the_newest_whole_one_used(kind, data, folder, expected, caplog):
    damage, reason = DAMAGES[kind]
    damage(folder / "checkpoint_last.pt")
    (folder / "checkpoint_best.pt").unlink()
    state = fit(data, folder, "--max-update", 7)
    (warning,) = warnings(caplog)
    assert re.fullmatch(
        rf"\S+checkpoint_last.pt is damaged: {reason}. Training continues from \S+checkpoint_1_4.pt, the newest whole "
        "checkpoint, after 4 updates; what came after is trained again. The damaged file stays until the next "
        "checkpoint takes its name.",
        warning,
    )
    assert state["optimizer_history"][-1]["num_updates"] == 7
    for name, tensor in expected["model"].items():
        assert_close(state["model"][name], tensor, atol=0, rtol=0, why=name)


def test_damaged_ones_among_the_others_are_passed_over_and_named(data, folder, caplog):
    for name in ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint_1_4.pt"):
        cut_short(folder / name)
    change_a_byte(folder / "checkpoint_best.pt")
    state = fit(data, folder, "--max-update", 6)
    (warning,) = warnings(caplog)
    assert "Training continues from" in warning
    assert "checkpoint_1_2.pt, the newest whole checkpoint, after 2 updates (also damaged: " in warning
    assert "checkpoint_1_4.pt: it is cut short" in warning
    assert state["optimizer_history"][-1]["num_updates"] == 6


def test_without_a_whole_checkpoint_nothing_is_trained(data, folder):
    for path in folder.iterdir():
        cut_short(path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(
        ValueError,
        match=r"training cannot resume from \S+checkpoint_last.pt, which is damaged: it is cut short; and there is no "
        r"whole checkpoint in \S+ \(also damaged: .*checkpoint_1_2.pt: it is cut short.*\)\. To train from the "
        r"beginning, remove the damaged files or name another --save-dir; to continue from another checkpoint, name it "
        r"by --restore-file\.",
    ):
        fit(data, folder, "--max-update", 6)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_a_damaged_checkpoint_that_was_named_is_an_error(flag, data, folder, tmp_path):
    named = shutil.copy(folder / "checkpoint_1_4.pt", tmp_path / "named.pt")
    change_a_byte(named)
    if flag == "--finetune-from-model":
        (folder / "checkpoint_last.pt").unlink()
    with pytest.raises(
        ValueError,
        match=r"training cannot start from \S+named.pt, which is damaged: its part \S+ does not .*\. It was asked for "
        "by name, so no other is taken; name a whole checkpoint, or copy this one again",
    ):
        fit(data, folder, "--max-update", 6, flag, named)


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_a_folder_in_place_of_a_checkpoint_is_an_error(flag, data, folder, tmp_path):
    with pytest.raises(ValueError, match=rf"a file, but {re.escape(str(folder))} is a folder; name a file in it\.$"):
        fit(data, tmp_path / "new", "--max-update", 1, flag, folder)


def test_an_average_that_only_half_continues_is_named(data, folder, tmp_path, caplog):
    average = tmp_path / "average.pt"
    assert cli.main(["average", "--inputs", str(folder / "checkpoint_1_4.pt"), "--output", str(average)]) == 0
    caplog.clear()
    fit(data, tmp_path / "new", "--max-update", 1, "--restore-file", average)
    (warning,) = warnings(caplog)
    assert warning.startswith(f"{average} has no state of the optimizer: epochs are counted on, but updates, ")
    assert "although 4 updates were made" in warning


def test_flags_that_reset_and_finetuning_work_as_before(data, folder, tmp_path, caplog):
    cut_short(folder / "checkpoint_last.pt")
    resets = ["--reset-optimizer", "--reset-dataloader", "--reset-lr-scheduler", "--reset-meters"]
    state = fit(data, folder, "--max-update", 2, *resets)
    assert len(warnings(caplog)) == 1
    assert state["optimizer_history"][-1]["num_updates"] == 2  # counted again
    caplog.clear()
    state = fit(data, tmp_path / "tuned", "--max-update", 1, "--finetune-from-model", folder / "checkpoint_1_4.pt")
    assert warnings(caplog) == []
    assert "loading pretrained model from" in caplog.text
    assert state["optimizer_history"][-1]["num_updates"] == 1
    state = fit(data, tmp_path / "tuned", "--max-update", 3, "--finetune-from-model", folder / "checkpoint_1_4.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_a_start_from_the_beginning_beside_checkpoints_is_not_silent(data, folder, tmp_path, caplog):
    (folder / "checkpoint_last.pt").unlink()
    fit(data, folder, "--max-update", 1)
    (warning,) = warnings(caplog)
    assert "so training starts from the beginning, and will replace" in warning
    assert warning.endswith(".pt.")
    assert "--restore-file" in warning
    caplog.clear()
    fit(data, tmp_path / "new", "--max-update", 1)
    assert warnings(caplog) == []
    fit(data, tmp_path / "newer", "--max-update", 1, "--restore-file", tmp_path / "absent.pt")
    sentence = f"--restore-file: there is no file {tmp_path}/absent.pt; training starts from the beginning."
    assert warnings(caplog) == [sentence]


@pytest.mark.parametrize("room", [5_000, 30_000])
def test_full_disk_ends_training_in_one_sentence_and_resuming_makes_up_for_it(
    room, data, folder, expected, monkeypatch
):
    before = (folder / "checkpoint_last.pt").read_bytes()
    assert len(before) > room
    save = torch.save

    def save_with_little_room(obj, file):
        with limited_files(room):
            save(obj, file)

    sentence = r"checkpoint1.pt could not be written: File too large\. Earlier checkpoints are as they were; make room"
    monkeypatch.setattr(torch, "save", save_with_little_room)
    with pytest.raises(OSError, match=sentence):
        fit(data, folder, "--max-update", 7)
    monkeypatch.setattr(torch, "save", save)
    assert (folder / "checkpoint_last.pt").read_bytes() == before
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp") or name == "checkpoint1.pt"]
    state = fit(data, folder, "--max-update", 7)
    for name, tensor in expected["model"].items():
        assert_close(state["model"][name], tensor, atol=0, rtol=0, why=name)


@contextlib.contextmanager
def limited_files(size):
    """Lets no file of this process grow beyond ``size`` bytes: the write that would is short, the next one fails."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


# ---- what counts as whole --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    path = save_checkpoint(folder / "checkpoint_last.pt", {"weight": torch.arange(300.0)}, num_updates=3)
    return path, path.read_bytes()


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_what_counts_as_whole_is_read_as_it_was_written(small, data):
    path, content = small
    if data.draw(st.booleans(), label="cut"):
        damaged = content[: data.draw(st.integers(0, len(content) - 1), label="length")]
    else:
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        damaged = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    changed = path.with_name("changed.pt")
    changed.write_bytes(damaged)
    if find_damage(changed) is None:  # padding and time stamps matter to nobody
        assert_close(load_checkpoint(changed)["model"]["weight"], torch.arange(300.0), atol=0, rtol=0)


def test_no_byte_of_the_directory_makes_the_search_stumble(small):
    path, content = small
    changed, found = path.with_name("changed.pt"), set()
    for place in range(content.index(b"PK\x01\x02"), len(content)):
        changed.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found.add(find_damage(changed))
    assert {"it is cut short", "it is an archive of something else"} < found
    if sys.version_info < (3, 14):  # which itself finds a part that would begin before the file does
        assert "its list of parts is damaged" in found


def test_files_of_old_torch_are_whole_or_not(tmp_path):
    state = {"model": {"weight": torch.ones(99)}, "optimizer_history": [{"num_updates": 8}]}
    old = tmp_path / "checkpoint8.pt"
    torch.save(state, old, _use_new_zipfile_serialization=False)
    assert find_damage(old) is None
    assert find_newest_whole(tmp_path)[:2] == (old, 8)
    cut_short(old)
    assert find_damage(old) == "it is no checkpoint, or the beginning of one"
    assert find_newest_whole(tmp_path).path is None


def test_newest_is_by_updates_and_not_what_training_did_not_write(tmp_path):
    updates = {"checkpoint9.pt": 5, "checkpoint_2_40.pt": 40, "checkpoint_best.pt": 40, "checkpoint3.pt": 30}
    others = {"checkpoint_avg.pt": 99, "checkpoint_last.pt": 99, "model.pt": 99, "checkpoint_last.pt.bak": 99}
    for name, number in {**updates, **others}.items():
        save_checkpoint(tmp_path / name, {"weight": torch.ones(3)}, num_updates=number)
    torch.save({"model": {}}, tmp_path / "checkpoint77.pt")
    newest = find_newest_whole(tmp_path)
    assert newest[:2] == (tmp_path / "checkpoint_2_40.pt", 40)
    assert newest.damaged == {tmp_path / "checkpoint77.pt": "it is no checkpoint of fairseq-train"}
    (tmp_path / "checkpoint_2_40.pt").unlink()
    assert find_newest_whole(tmp_path).path == tmp_path / "checkpoint_best.pt"
