"""What a checkpoint file may contain, what is said when it may not be read, and how one is written."""

import argparse
import contextlib
import os
import pickle
import stat
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters
from omegaconf import OmegaConf
from support.pickled_call import Call
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals

from muse_plugin.checkpoints import safe_loading
from muse_plugin.checkpoints.safe_loading import load_checkpoint, save_atomically


@pytest.fixture(autouse=True)
def _restore_the_list_of_torch():
    before = get_safe_globals()
    yield
    clear_safe_globals()
    add_safe_globals(before)


def save_with_names(obj, path, renamed=()):
    """Writes a file of torch's older format, with names in the pickle replaced, as another version would write them."""
    torch.save(obj, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    for new, old in renamed:
        assert new in content
        content = content.replace(new, old)
    path.write_bytes(content)


def write_samples(folder: Path) -> list[Path]:
    """One file of each kind that fairseq writes or has written."""
    weights = {"weight": torch.arange(6.0).reshape(2, 3)}

    current = folder / "fairseq_train.pt"
    statistics = {"count": np.array([3, 2]), "best": np.float64(27.5), "flags": np.array([True])}
    cfg = {"model": argparse.Namespace(arch="transformer", dropout=0.3), "task": {"_name": "translation"}}
    torch.save({"args": None, "cfg": cfg, "model": weights, "extra_state": statistics}, current)

    numpy_1 = folder / "numpy_1.pt"
    save_with_names({"model": weights, "extra_state": statistics}, numpy_1, [(b"numpy._core.", b"numpy.core.")])

    nodes = folder / "hydra.pt"
    settings = {"a": 1, "b": [1, 2.0, "x", None], "c": {"d": "${a}"}, "model": argparse.Namespace(x=1)}
    torch.save({"model": weights, "cfg": OmegaConf.create(settings, flags={"allow_objects": True})}, nodes)

    early = folder / "fairseq_0_6.pt"
    kinds = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
    extra_state = {"train_meters": OrderedDict((kind.__name__, kind()) for kind in kinds), "val_loss": 4.2}
    save_with_names(
        {"args": argparse.Namespace(arch="transformer"), "model": weights, "extra_state": extra_state},
        early,
        [(b"fairseq.logging.meters", b"fairseq.meters")],
    )

    sent = folder / "sent_to_other_processes.pt"
    parts = distributed_utils._split_tensors_from_obj({"model": weights}, [])
    torch.save(parts, sent)
    return [current, numpy_1, nodes, early, sent]


def test_files_of_every_kind_load_with_their_content(tmp_path):
    current, numpy_1, nodes, early, sent = map(load_checkpoint, write_samples(tmp_path))

    torch.testing.assert_close(current["model"]["weight"], torch.arange(6.0).reshape(2, 3))
    assert current["cfg"]["model"].arch == "transformer"
    for state in (current, numpy_1):
        np.testing.assert_array_equal(state["extra_state"]["count"], [3, 2])
        assert state["extra_state"]["count"].dtype == np.int64
        assert state["extra_state"]["best"] == 27.5
        assert type(state["extra_state"]["best"]) is np.float64
        assert state["extra_state"]["flags"].dtype == bool
    assert nodes["cfg"].c.d == 1
    assert nodes["cfg"].model.x == 1
    assert early["args"].arch == "transformer"
    assert isinstance(early["extra_state"]["train_meters"]["TimeMeter"], meters.TimeMeter)
    assert isinstance(sent["model"]["weight"], distributed_utils._TensorPlaceholder)


@pytest.mark.parametrize("name", safe_loading.ALLOWED)
def test_no_entry_of_the_list_can_be_spared(tmp_path, name, monkeypatch):
    samples = write_samples(tmp_path)
    clear_safe_globals()
    add_safe_globals([(target, other) for other, target in safe_loading.ALLOWED.items() if other != name])
    monkeypatch.setattr(safe_loading, "register", lambda: None)
    refused = []
    for path in samples:
        try:
            load_checkpoint(path)
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert all(name.removeprefix("builtins.") in sentence for sentence in refused)


def test_entries_for_older_torch_load_the_same_files(tmp_path, monkeypatch):
    clear_safe_globals()
    monkeypatch.setattr(safe_loading, "_takes_names", lambda: False)
    safe_loading.register()
    assert not any(isinstance(entry, tuple) for entry in get_safe_globals())
    test_files_of_every_kind_load_with_their_content(tmp_path)


@pytest.mark.parametrize("takes_names", [True, False])
def test_registering_again_changes_nothing(monkeypatch, takes_names):
    monkeypatch.setattr(safe_loading, "_takes_names", lambda: takes_names)
    safe_loading.register()
    before = set(get_safe_globals())
    safe_loading.register()
    assert set(get_safe_globals()) == before


def test_arrays_from_a_checkpoint_are_written_again_as_plain_numpy(tmp_path):
    path = tmp_path / "a.pt"
    array = np.array([[1.5, 2.5]], dtype=">f4", order="F")
    torch.save({"model": {}, "array": array, "dtype": np.dtype("f4")}, path)
    state = load_checkpoint(path)
    for protocol in (2, 4, 5):
        written = pickle.dumps(state, protocol=protocol)
        assert b"muse_plugin" not in written
        again = pickle.loads(written)
        assert type(again["array"]) is np.ndarray
        assert again["dtype"] == np.dtype("f4")
        np.testing.assert_array_equal(again["array"], array)


# ---- files that would run code ---------------------------------------------------------------------------------------


def test_the_refused_name_is_in_the_message(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": {}, "x": Call(os.system, "true")}, path)
    with pytest.raises(ValueError, match=r"would use the Python object posix\.system, which could run code"):
        load_checkpoint(path)
    torch.save({"model": {}, "x": Call(eval, "1")}, path)
    with pytest.raises(ValueError, match=r"would use the Python object eval, which could run code"):
        load_checkpoint(path)


def save_numpy_call(path, function_name, arguments, state=None):
    """Writes a file that calls one of numpy's functions, with arguments that numpy itself would never write."""
    functions = {"scalar": np._core.multiarray.scalar, "reconstruct": np._core.multiarray._reconstruct}
    torch.save({"model": {}, "x": Call(functions[function_name], *arguments, state=state)}, path)


FLOATS = np.dtype("f8")


@pytest.mark.parametrize(
    ("function", "arguments", "state"),
    [
        ("scalar", (np.dtype("O"), b"\0" * 8), None),
        ("scalar", (np.dtype("U4"), b"\0" * 16), None),
        ("scalar", (np.dtype("M8[s]"), b"\0" * 8), None),
        ("scalar", (np.dtype([("a", "f4")]), b"\0" * 4), None),
        ("scalar", (FLOATS, b"\0" * 7), None),
        ("scalar", ("f8", b"\0" * 8), None),
        ("scalar", (FLOATS, [1]), None),
        ("reconstruct", (dict, (0,), b"b"), None),
        ("reconstruct", (np.ndarray, (0,), b"b"), (1, (1,), np.dtype("O"), False, [[]])),
        ("reconstruct", (np.ndarray, (0,), b"b"), (1, (1,), "f8", False, b"\0" * 8)),
        ("reconstruct", (np.ndarray, (0,), b"b"), [1]),
    ],
)
def test_numpy_data_other_than_plain_numbers_is_refused(tmp_path, function, arguments, state):
    path = tmp_path / "a.pt"
    save_numpy_call(path, function, arguments, state)
    with pytest.raises(ValueError, match=r"a\.pt is refused: .*numpy.*; nothing was run\."):
        load_checkpoint(path)


# ---- files that are no checkpoints -----------------------------------------------------------------------------------


def test_missing_file_raises_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .*absent\.pt; check the path\."):
        load_checkpoint(tmp_path / "absent.pt")


def test_folder_raises_error(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder, not a checkpoint; name a file in it"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file_raises_error(tmp_path, share, new_format):
    path = tmp_path / "cut.pt"
    state = {"model": {"weight": torch.randn(100, 10)}, "args": argparse.Namespace(arch="transformer")}
    torch.save(state, path, _use_new_zipfile_serialization=new_format)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"cut\.pt is cut short or damaged; copy or download it again"):
        load_checkpoint(path)


@pytest.mark.parametrize("seed", range(20))
def test_file_with_changed_bytes_raises_error_or_loads(tmp_path, seed):
    path = tmp_path / "changed.pt"
    torch.save({"model": {"weight": torch.zeros(3)}, "args": argparse.Namespace(arch="a")}, path)
    content = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for place in random.integers(2, len(content), size=20):
        content[place] = random.integers(256)
    path.write_bytes(content)
    with contextlib.suppress(ValueError):  # and nothing else
        load_checkpoint(path)


def test_torchscript_file_raises_error(tmp_path):
    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "version"):
            archive.writestr(f"script/{name}", "3")
    with pytest.raises(ValueError, match=r"script\.pt is not a checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [b"hello, this is text\n", b"\n", b"\x00" * 300, b"(0.9, 0.98)", "grüße".encode(), pickle.dumps({"model": {}})],
)
def test_other_file_raises_error(tmp_path, content):
    path = tmp_path / "other.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.pt is not a checkpoint: it was not written by torch\.save"):
        load_checkpoint(path)


def test_other_archive_raises_error(tmp_path):
    path = tmp_path / "book.docx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    with pytest.raises(ValueError, match=r"book\.docx is not a checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"state_dict": {}}, r"holds a dict with \['state_dict'\]"),
        ({"model": torch.zeros(2)}, r"holds a dict with \['model'\]"),
        (torch.zeros(2), "holds a Tensor"),
    ],
)
def test_torch_file_without_a_model_raises_error(tmp_path, content, found):
    path = tmp_path / "a.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"is not a checkpoint: a checkpoint is a dict whose 'model' .*" + found):
        load_checkpoint(path)


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_saved_file_loads_again_and_has_ordinary_mode_bits(tmp_path):
    path = tmp_path / "a.pt"
    before = os.umask(0o027)
    try:
        save_atomically({"model": {"weight": torch.ones(2)}}, path)
    finally:
        os.umask(before)
    torch.testing.assert_close(load_checkpoint(path)["model"]["weight"], torch.ones(2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("where", ["torch.save", "os.replace", "os.fsync"])
def test_failed_save_keeps_the_old_file_and_leaves_nothing_else(tmp_path, monkeypatch, where):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(where, fail)
    with pytest.raises(OSError, match="no space left"):
        save_atomically({"model": {}}, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.pt"]


def test_save_into_missing_folder_raises_error(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"cannot write .*a\.pt: there is no folder .*absent; create it first\."
    ):
        save_atomically({}, tmp_path / "absent" / "a.pt")
