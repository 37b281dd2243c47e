"""Files next to a checkpoint that were made to do harm: text, settings, binarised data, caches to continue."""

import gzip
import struct

import pytest
import torch
from fairseq.data import Dictionary
from support.helpers import REPOSITORY
from support.memory_limit import limited_memory
from support.pickled_call import Call
from support.sentence_models import write_data

from muse_plugin.checkpoints.whole_checkpoints import find_newest_whole
from muse_plugin.fairseq_repairs import checkpoint_bombs
from muse_plugin.files.lines import iterate_lines, read_lines
from muse_plugin.matching.cache_writer import check_folder
from muse_plugin.tasks.sentences.columns import load_column
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import load_text_settings

BOMB = 150 << 20


@pytest.fixture(scope="module")
def packed_line():
    """A line without end, which takes a thousandth of its length on disk."""
    return gzip.compress(b"a" * BOMB, 1)


def test_labelled_text_without_line_ends_does_not_fill_the_memory(tmp_path, packed_line):
    (tmp_path / "a.gz").write_bytes(packed_line)
    with (
        limited_memory(),
        pytest.raises(ValueError, match=r"at most 4,194,304 bytes, but line 1 of .*a\.gz has"),
    ):
        next(iterate_lines(tmp_path / "a.gz", "--train"))


def test_text_to_score_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("muse_plugin.files.lines.LONGEST_TEXT", 100)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\n" * 50))
    assert len(read_lines(tmp_path / "a.gz", "--references")) == 50
    for content in (b"a\n" * 51, b"a" * 101):
        (tmp_path / "a.gz").write_bytes(gzip.compress(content))
        with pytest.raises(ValueError, match=r"at most 100 characters, but .*a\.gz has more when unpacked"):
            read_lines(tmp_path / "a.gz", "--references")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\xff", b"[]"]
)
def test_hostile_settings_give_one_sentence(tmp_path, content):
    fault = "hold a JSON object, but got a list" if content == b"[]" else "be a JSON file, but reading it gave"
    loads = (
        ("text.json", load_text_settings),
        ("text_pipeline.json", load_text_settings),
        ("text_pipeline.json", TextPipeline.load),
    )
    for name, load in loads:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} must {fault}"):
            load(tmp_path)


def attack(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "sentences":
        content[18:26] = struct.pack("<Q", 1 << 60)  # after the magic number, the version and the type of numbers
    elif kind == "type":
        content[17] = 99
    elif kind == "version":
        content[9:17] = struct.pack("<Q", 7)
    elif kind == "cut":
        content = content[:20]
    else:
        content = b"TNTIDX\0\0" + struct.pack("<QQQQ", 1, 4, 1 << 60, 1 << 60)  # fairseq's older format
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["sentences", "type", "version", "cut", "older"])
def test_a_hostile_index_of_binarised_data_gives_one_sentence(tmp_path, kind):
    write_data(tmp_path, {"train": [("a b", "x")]})
    dictionary = Dictionary.load(str(tmp_path / "input0" / "dict.txt"))
    assert len(load_column(tmp_path / "input0", "train", dictionary)) == 1
    attack(tmp_path / "input0" / "train.idx", kind)
    with limited_memory(), pytest.raises(ValueError, match=r"the data must be as prepare-text wrote them, but reading"):
        load_column(tmp_path / "input0", "train", dictionary)


@pytest.mark.parametrize("name", ["vectors.bin", "ids", "lock", "meta.json"])
def test_a_link_in_a_cache_is_not_written_through(tmp_path, name):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError, match=rf"{name} in .*cache leads elsewhere; remove it"):
        check_folder(tmp_path / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "link")


def test_fairseqs_own_reading_of_a_checkpoint_has_a_limit(tmp_path):
    from fairseq import checkpoint_utils

    assert not checkpoint_bombs.REPAIR.is_needed()
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 3}]
    progress = {"optimizer_history": history, "extra_state": {"train_iterator": {"epoch": 1}}, "task_state": {}}
    torch.save({"model": {}, **progress, "x": Call(bytearray, BOMB)}, tmp_path / "checkpoint_1_3.pt")
    with limited_memory(), pytest.raises(ValueError, match="use the Python object bytearray"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_1_3.pt"))
    with limited_memory():
        assert find_newest_whole(tmp_path).path is None
    torch.save({"model": {"w": torch.zeros(1).expand(9, 9)}, "args": None, **progress}, tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"w has the shape \(9, 9\), but not all of its numbers are in the file"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "b.pt"))


def test_every_address_of_every_recipe_is_https():
    manifests = sorted((REPOSITORY / "examples").rglob("downloads.tsv"))
    assert len(manifests) == 14
    for path in manifests:
        for line in path.read_text().splitlines():
            urls = [] if line.startswith("#") or not line else line.split("\t")[3].split()
            assert all(url.startswith("https://") or url == "-" for url in urls), (path, line)
