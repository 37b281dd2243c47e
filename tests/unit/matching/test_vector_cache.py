"""A cache holds what its description says, wherever its writer died; everything else is refused in a sentence."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.dying import Killed, die_at
from support.helpers import assert_close

from muse_plugin.matching import cache_writer, vector_cache
from muse_plugin.matching.cache_writer import CacheWriter
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.vector_cache import CacheMeta, VectorCache, read_meta

ROWS, WIDTH, STEP = 10, 3, 4


def describe(**changes):
    meta = CacheMeta(
        fingerprint="f" * 64,
        text_sha256="5" * 64,
        with_ids=True,
        sentences=ROWS,
        width=WIDTH,
        dtype="float32",
        max_words=9,
        versions={"torch": "1"},
    )
    return replace(meta, **changes)


def make_vectors(rows=ROWS):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(4))


NAMES = [f"name {i} é" for i in range(ROWS)]


def write(folder, vectors=None, **changes):
    """Writes what is missing, in steps."""
    vectors = make_vectors() if vectors is None else vectors
    with CacheWriter(folder, describe(**changes)) as writer:
        for start in range(writer.meta.done, ROWS, STEP):
            stop = min(start + STEP, ROWS)
            writer.append(vectors[start:stop], NAMES[start:stop], truncated=1)
        writer.finish()
    return folder


def read_files(folder):
    return {name: (folder / name).read_bytes() for name in ("vectors.bin", "ids", "meta.json")}


def test_rows_and_ids_come_back_in_any_order(tmp_path):
    cache = VectorCache(write(tmp_path / "c"))
    vectors = make_vectors()
    assert (len(cache), cache.width, cache.meta.truncated) == (ROWS, WIDTH, 3)
    assert_close(cache.read(0, ROWS + 5), vectors, atol=0, rtol=0)
    assert_close(cache.read(3, 5), vectors[3:5], atol=0, rtol=0)
    rows = torch.tensor([9, 0, 0, 4])
    assert_close(cache.gather(rows), vectors[rows], atol=0, rtol=0)
    assert [(start, len(block)) for start, block in cache.blocks(4)] == [(0, 4), (4, 4), (8, 2)]
    assert cache.gather(torch.empty(0, dtype=torch.int64)).shape == (0, WIDTH)
    assert cache.names([9, 0, 3]) == [NAMES[9], NAMES[0], NAMES[3]]
    assert cache.find([NAMES[7], "nobody", NAMES[2]]) == {NAMES[2]: 2, NAMES[7]: 7}


def test_what_is_read_can_be_changed_without_changing_the_cache(tmp_path):
    cache = VectorCache(write(tmp_path / "c"))
    cache.read(0, 2).zero_()
    cache.gather(torch.tensor([1])).zero_()
    assert_close(cache.read(0, 2), make_vectors()[:2], atol=0, rtol=0)


def test_half_precision_takes_half_the_room(tmp_path):
    folder = write(tmp_path / "c", dtype="float16")
    assert (folder / "vectors.bin").stat().st_size == 2 * ROWS * WIDTH
    assert_close(VectorCache(folder).read(0, ROWS), make_vectors().half().float(), atol=0, rtol=0)


DISK = ((os, "fsync"), (os, "replace"), (cache_writer, "write_meta"), (cache_writer, "_open_at"))


def test_a_writer_that_dies_at_any_step_goes_on_to_the_same_bytes(tmp_path):
    whole = read_files(write(tmp_path / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        count = die_at(patch, -1, *DISK)
        write(tmp_path / "counted")
    steps = count[0]
    assert steps > 25
    for step in range(1, steps + 1):
        folder = tmp_path / f"died_{step}"
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, step, *DISK)
            with pytest.raises(Killed):
                write(folder)
        meta = read_meta(folder)
        if meta is None or not meta.whole:  # the last step comes after the rename that makes it whole
            with pytest.raises(ValueError, match="a cache must"):
                VectorCache(folder)
        elif step < steps:
            assert read_files(folder) == whole
        write(folder)
        assert read_files(folder) == whole, f"died at step {step}"


def test_bytes_beyond_what_was_recorded_are_cut_off(tmp_path):
    folder = tmp_path / "c"
    with CacheWriter(folder, describe()) as writer:
        writer.append(make_vectors()[:STEP], NAMES[:STEP], truncated=1)
    for name in ("vectors.bin", "ids"):
        with (folder / name).open("ab") as file:
            file.write(b"half a line, and more than all that is still to come " * 9)
    (folder / ".meta.json.0123abcd.tmp").write_bytes(b"{")
    write(folder)
    assert read_files(folder) == read_files(write(tmp_path / "whole"))


def test_a_cache_that_is_not_whole_is_not_read(tmp_path):
    folder = tmp_path / "c"
    with CacheWriter(folder, describe()) as writer:
        writer.append(make_vectors()[:STEP], NAMES[:STEP])
        with pytest.raises(ValueError, match=r"a whole cache has 10 sentences, but .* has 4"):
            writer.finish()
    with pytest.raises(ValueError, match=r"must be whole, but .* has 4 of 10 sentences; run the same"):
        VectorCache(folder)


def test_a_whole_cache_is_left_as_it_is(tmp_path):
    folder = write(tmp_path / "c")
    before = read_files(folder)
    with CacheWriter(folder, describe()) as writer:
        assert writer.meta.whole
        writer.finish()
    assert read_files(folder) == before


@pytest.mark.parametrize("name", ["vectors.bin", "ids"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "removed"])
def test_a_damaged_cache_is_not_taken_for_whole(tmp_path, name, damage):
    folder = write(tmp_path / "c")
    path = folder / name
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"")
    error = FileNotFoundError if damage == "removed" else ValueError
    for open_it in (lambda: CacheWriter(folder, describe()), lambda: VectorCache(folder)):
        with pytest.raises(error, match=rf"{name}.*remove the folder and encode again"):
            open_it()
    assert path.exists() == (damage != "removed")


def test_one_writer_at_a_time(tmp_path):
    folder = tmp_path / "c"
    said = pytest.raises(ValueError, match=r"one program at a time may write to .*c, but another is doing so")
    with CacheWriter(folder, describe()), said:
        CacheWriter(folder, describe())
    write(folder)  # the lock was released


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text_sha256": "6" * 64}, "another text"),
        ({"fingerprint": "e" * 64}, "another model, dictionary or treatment of text"),
        ({"dtype": "float16"}, "another --dtype .dtype float32, now float16."),
        ({"max_words": 8}, "another --max-words .max_words 9, now 8."),
        ({"with_ids": False}, "--ids given or left out"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_cache_of_something_else_is_not_continued(tmp_path, changes, words):
    folder = tmp_path / "c"
    with CacheWriter(folder, describe()) as writer:
        writer.append(make_vectors()[:STEP], NAMES[:STEP])
    before = read_files(folder)
    with pytest.raises(FileExistsError, match=f"was made with {words}.*; name another folder"):
        CacheWriter(folder, describe(**changes))
    assert read_files(folder) == before


def test_other_folders_are_not_touched(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match=r"foreign also holds thesis\.tex; name another folder"):
        CacheWriter(foreign, describe())
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]
    with pytest.raises(NotADirectoryError, match=r"must name a folder, but .* is a file"):
        CacheWriter(foreign / "thesis.tex", describe())
    with pytest.raises(FileNotFoundError, match=r"must be in an existing folder, but .*nowhere does not exist"):
        CacheWriter(tmp_path / "nowhere" / "c", describe())
    orphan = tmp_path / "orphan"
    orphan.mkdir()
    (orphan / "vectors.bin").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"holds vectors\.bin but no meta\.json"):
        CacheWriter(orphan, describe())
    assert (orphan / "vectors.bin").read_bytes() == b"precious"


def test_vectors_that_do_not_fit_are_refused_and_leave_no_trace(tmp_path):
    folder = tmp_path / "c"
    with CacheWriter(folder, describe(dtype="float16")) as writer:
        with pytest.raises(ValueError, match=r"width 3 is needed for each of 2 ids, but got .* shape \(2, 4\)"):
            writer.append(torch.zeros(2, 4), NAMES[:2])
        with pytest.raises(ValueError, match=r"width 3 is needed for each of 1 ids, but got .* shape \(2, 3\)"):
            writer.append(torch.zeros(2, 3), NAMES[:1])
        with pytest.raises(ValueError, match="is of 10 sentences, but got 11"):
            writer.append(torch.zeros(11, 3), ["x"] * 11)
        bad = torch.zeros(2, 3)
        bad[1, 2] = float("nan")
        with pytest.raises(ValueError, match="that of sentence name 1 é is not in float16; check the model"):
            writer.append(bad, NAMES[:2])
        bad[1, 2] = 1e5
        with pytest.raises(ValueError, match="that of sentence name 1 é is not in float16; use --dtype float32"):
            writer.append(bad, NAMES[:2])
    assert (folder / "vectors.bin").stat().st_size == 0
    assert (folder / "ids").stat().st_size == 0


def test_damaged_files_are_named(tmp_path):
    folder = write(tmp_path / "c")
    content = (folder / "vectors.bin").read_bytes()
    (folder / "vectors.bin").write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"vectors\.bin must have 120 bytes, but it has 119; it was cut short"):
        VectorCache(folder)
    (folder / "vectors.bin").write_bytes(content[:-4] + b"\x00\x00\xc0\x7f")
    cache = VectorCache(folder)
    assert_close(cache.read(0, 9), make_vectors()[:9], atol=0, rtol=0)
    for read in (lambda: cache.read(8, 10), lambda: cache.gather(torch.tensor([2, 9]))):
        with pytest.raises(ValueError, match=r"must be finite, but that of sentence name 9 é in .*c is not"):
            read()
    (folder / "vectors.bin").write_bytes(content[:-1])  # after it was opened
    for read in (lambda: cache.read(8, 10), lambda: cache.gather(torch.tensor([2, 9]))):
        with pytest.raises(ValueError, match=r"vectors\.bin was cut short while it was read; encode again"):
            read()
    (folder / "vectors.bin").write_bytes(content)
    names = (folder / "ids").read_bytes()
    (folder / "ids").write_bytes(names.replace(b"\n", b" ", 1))
    with pytest.raises(ValueError, match="ids must have a line for each of 10 sentences, but it has not"):
        VectorCache(folder).names([0])
    (folder / "ids").write_bytes(names[:-1].replace(b"\n", b"\n\n", 1))
    with pytest.raises(ValueError, match="ids must have a line for each of 10 sentences, but it has not"):
        VectorCache(folder).names([0])
    (folder / "ids").unlink()
    with pytest.raises(FileNotFoundError, match=r"a cache must hold .*ids, but it is not there"):
        VectorCache(folder)


def test_a_file_shorter_than_recorded_is_not_continued(tmp_path):
    folder = tmp_path / "c"
    with CacheWriter(folder, describe()) as writer:
        writer.append(make_vectors()[:STEP], NAMES[:STEP])
    (folder / "vectors.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"vectors\.bin must have at least the 48 bytes .*, but it has 5; remove"):
        CacheWriter(folder, describe())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(format_version=2), "must have format_version 1, but got 2; make it again"),
        (lambda content: content.pop("format_version"), "must have format_version 1, but got None"),
        (lambda content: content.pop("width"), "'width' is missing"),
        (lambda content: content.update(extra=1), "'extra' is unknown"),
        (lambda content: content.update(width="3"), "'width' must be int but is '3'"),
        (lambda content: content.update(done=True), "'done' must be int but is True"),
        (lambda content: content.update(width=0), "'width' must be at least 1 but is 0"),
        (lambda content: content.update(width=1 << 63), "'width' must be at most 1,048,576 but is 9223372036854775808"),
        (lambda content: content.update(id_bytes=-1), "'id_bytes' must be at least 0 but is -1"),
        (lambda content: content.update(dtype="float8"), "'dtype' must be one of float32, float16 but is 'float8'"),
        (lambda content: content.update(done=11), "11 of 10 sentences cannot be done"),
        (lambda content: content.update(done=9), "9 of 10 sentences cannot be done"),
    ],
    ids=[
        "version",
        "none",
        "missing",
        "unknown",
        "kind",
        "bool",
        "width",
        "wide",
        "negative",
        "dtype",
        "more",
        "fewer",
    ],
)
def test_a_description_that_is_not_ours_is_refused(tmp_path, change, words):
    folder = write(tmp_path / "c")
    content = json.loads((folder / "meta.json").read_text())
    change(content)
    (folder / "meta.json").write_text(json.dumps(content))
    for use in (VectorCache, lambda path: CacheWriter(path, describe())):
        with pytest.raises(ValueError, match=words):
            use(folder)


def test_what_is_no_cache_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no cache .*none; make it with muse-plugin match encode"):
        VectorCache(tmp_path / "none")
    with pytest.raises(ValueError, match=r"a cache must hold meta\.json, but .* does not"):
        VectorCache(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match=r"a cache is a folder, but .*file is a file"):
        VectorCache(tmp_path / "file")
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(ValueError, match="must be a JSON file, but reading it gave"):
        VectorCache(tmp_path)


def test_vectors_of_another_model_are_refused_by_name(tmp_path):
    folder = write(tmp_path / "c")

    def open_cache(fingerprint, width):
        PairModel.open_cache(SimpleNamespace(fingerprint=lambda max_words: fingerprint, width=width), folder)

    open_cache("f" * 64, WIDTH)
    with pytest.raises(ValueError, match=f"was made by the encoder {'f' * 16} and --path is {'a' * 16}; name the"):
        open_cache("a" * 64, WIDTH)
    with pytest.raises(ValueError, match=r"this model's vectors have width 4, but those of .*c have 3"):
        open_cache("f" * 64, 4)


def test_the_description_names_the_programs(tmp_path):
    folder = tmp_path / "c"
    meta = CacheMeta("f", "5", False, 1, 2, "float32", 3)
    with CacheWriter(folder, meta):
        pass
    assert json.loads((folder / "meta.json").read_text())["versions"] == {
        "muse_plugin": vector_cache.__version__,
        "torch": str(torch.__version__),
    }
