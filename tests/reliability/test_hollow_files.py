"""Sparse files take no room on a disk: whatever length they claim, they cost neither memory nor minutes."""

import json
import os
import re
import struct
import time

import pytest
import torch
from fairseq.data import Dictionary, data_utils, indexed_dataset
from support.memory_limit import budget
from support.sentence_models import write_data

from muse_plugin.fairseq_repairs import hollow_data
from muse_plugin.matching.cache_writer import CacheWriter
from muse_plugin.matching.vector_cache import CacheMeta, VectorCache
from muse_plugin.tasks.bpe_dropout.training_text import read_codes
from muse_plugin_command import cli

TERABYTE = 10**12


@pytest.fixture
def column(tmp_path):
    """Binarised text of two lines."""
    write_data(tmp_path, {"train": [("a b", "x"), ("b a b", "y")]})
    return tmp_path / "input0"


def load(column, impl=None):
    dictionary = Dictionary.load(str(column / "dict.txt"))
    return data_utils.load_indexed_dataset(str(column / "train"), dictionary, impl)


MMAP = struct.Struct("<9sQBQ")


def claim(path, sentences):
    content = bytearray(path.read_bytes())
    MMAP.pack_into(content, 0, b"MMIDIDX\0\0", 1, MMAP.unpack_from(content)[2], sentences)
    path.write_bytes(content)


def test_an_index_with_holes_is_refused(column):
    sentences = TERABYTE // 12
    claim(column / "train.idx", sentences)
    os.truncate(column / "train.idx", MMAP.size + 12 * sentences)
    with budget(), pytest.raises(ValueError, match=r"train\.idx is empty from byte 1,048,576 on; binarise the text"):
        load(column)


def test_an_index_of_fairseqs_older_format_with_holes_is_refused(column):
    sentences = TERABYTE // 24
    head = struct.pack("<8sQQQQQ", b"TNTIDX\0\0", 1, 4, 4, sentences, sentences)
    (column / "train.idx").write_bytes(head)
    with budget(), pytest.raises(ValueError, match=r"has 48 bytes, but 41,666,666,666 sentences need 1,000,0"):
        load(column, "cached")
    os.truncate(column / "train.idx", len(head) + 8 * (3 * sentences + 2))
    with budget(), pytest.raises(ValueError, match="is empty from byte 1,048,576 on"):
        load(column, "cached")


def test_an_index_that_claims_more_sentences_or_tokens_than_there_are_is_refused(column):
    index, kept = column / "train.idx", (column / "train.idx").read_bytes()
    claim(index, 3)
    with pytest.raises(ValueError, match=r"has 50 bytes, but 3 sentences need 62"):
        load(column)
    for length, sentence in ((7, "describes 11 tokens, the shortest sentence has 4"), (-7, "the shortest .* -7")):
        index.write_bytes(kept[: MMAP.size] + struct.pack("<i", length) + kept[MMAP.size + 4 :])
        with pytest.raises(ValueError, match=sentence):
            load(column)


@pytest.mark.parametrize("impl", ["mmap", "lazy", "cached"])
def test_what_fairseq_writes_is_read(tmp_path, impl):
    builder = indexed_dataset.make_builder(str(tmp_path / "train.bin"), impl, vocab_size=9)
    for ids in ([4, 5], [], [6]):
        builder.add_item(torch.tensor(ids, dtype=torch.int32))
    builder.finalize(str(tmp_path / "train.idx"))
    dataset = data_utils.load_indexed_dataset(str(tmp_path / "train"), dataset_impl=impl)
    if impl == "cached":
        dataset.prefetch(range(3))
    assert [dataset[i].tolist() for i in range(3)] == [[4, 5], [], [6]]


def test_data_with_holes_are_not_read_from_end_to_end(column):
    os.truncate(column / "train.bin", TERABYTE)
    assert hollow_data.is_hollow(column / "train.bin")
    start = time.process_time()
    assert len(load(column)[0]) == 3
    assert time.process_time() - start < 5
    os.truncate(column / "train.bin", 10)
    assert not hollow_data.is_hollow(column / "train.bin")


@pytest.mark.parametrize("last", [b"", b"\n"], ids=["no_line", "one_line"])
def test_a_cache_of_vectors_with_holes_is_refused(tmp_path, last):
    meta = CacheMeta("f" * 64, "5" * 64, with_ids=True, sentences=1, width=4, dtype="float32", max_words=9)
    with CacheWriter(tmp_path / "cache", meta) as writer:
        writer.append(torch.ones(1, 4), ["first"])
        writer.finish()
    path = tmp_path / "cache" / "meta.json"
    changes = {"sentences": TERABYTE, "done": TERABYTE, "id_bytes": 2 * TERABYTE}
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    os.truncate(tmp_path / "cache" / "vectors.bin", TERABYTE * 16)
    with (tmp_path / "cache" / "ids").open("r+b") as file:
        file.truncate(2 * TERABYTE)
        file.seek(2 * TERABYTE - len(last))
        file.write(last)
    with budget(), pytest.raises(ValueError, match=r"an id must have at most 1,048,576 bytes, but .*ids has one of"):
        VectorCache(tmp_path / "cache")


@pytest.mark.parametrize("name", ["bpe.codes", "sentencepiece.model"])
def test_subwords_of_a_terabyte_are_refused_before_they_are_read(tmp_path, capsys, name):
    path = tmp_path / name
    path.touch()
    os.truncate(path, TERABYTE)
    sentence = r"must have at most 268,435,456 bytes, but has 1,000,000,000,000; name the file that the subwords"
    with budget(), pytest.raises(ValueError, match=sentence):
        read_codes(path)
    (tmp_path / "train.tsv").write_text("a b,x\n")
    flag = "--bpe-codes" if name == "bpe.codes" else "--sentencepiece-model"
    flags = [flag, str(path), "--train", str(tmp_path / "train.tsv"), "--format", "csv"]
    with budget():
        assert cli.main(["prepare-text", *flags, "--output", str(tmp_path / "data")]) == 2
    assert re.search(sentence, capsys.readouterr().err)
