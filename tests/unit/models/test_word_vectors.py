"""Vectors of the words asked for are read from every usual text form, and a damaged row is named."""

import gzip
import io
import re

import numpy
import pytest
import torch
from support.helpers import assert_close

from muse_plugin.pretrained.word_vectors import (
    average_character_ngrams,
    list_character_ngrams,
    measure_likeness,
    read_word_vectors,
    warn_of_likeness,
    write_word_vectors,
)

GLOVE = "the 0.5 -1 2e-1\ncat 1 2 3\n. . 4 5 6\nthe 9 9 9\n"


@pytest.fixture
def write(tmp_path):
    def run(text, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return path

    return run


def test_rows_of_wanted_words_are_put_at_their_index(write):
    result = read_word_vectors(write(GLOVE), {"the": 3, "dog": 1, "cat": 0})
    assert result.vectors.dtype == torch.float32
    assert_close(result.vectors, torch.tensor([[1, 2, 3], [0, 0, 0], [0, 0, 0], [0.5, -1, 0.2]]))
    assert result.found.tolist() == [True, False, False, True]


def test_more_spaces_between_words_and_numbers_make_no_difference(write):
    result = read_word_vectors(write("the  1 2\ncat 3   4\n"), {"the": 0, "cat": 1}, 2)
    assert result.found.all()
    assert_close(result.vectors, torch.tensor([[1.0, 2], [3, 4]]))


def test_words_may_contain_spaces(write):
    result = read_word_vectors(write(GLOVE), {". .": 0, ".": 1})
    assert result.vectors.tolist() == [[4, 5, 6], [0, 0, 0]]
    assert result.found.tolist() == [True, False]
    first = read_word_vectors(write(". . 4 5 6\ncat 1 2 3\n"), {". .": 0}, width=3)
    assert first.vectors.tolist() == [[4, 5, 6]]


def test_words_are_looked_up_as_they_are(write):
    result = read_word_vectors(write("the 1 2\nä\u00a0b 3 4\n"), {"The": 0, "ä\u00a0b": 1})
    assert result.found.tolist() == [False, True]


@pytest.mark.parametrize(
    "text",
    ["2 3\nthe 1 2 3\ncat 4 5 6\n", "2 3 \r\nthe 1 2 3 \r\ncat 4 5 6 ", "\ufeff2 3\nthe\t1\t2\t3\n\ncat 4 5 6\n\n"],
)
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode(), mtime=0)])
def test_header_line_ends_and_compression_make_no_difference(write, text, pack):
    result = read_word_vectors(write(pack(text)), {"the": 0, "cat": 1, "2": 2}, width=3)
    assert result.vectors.tolist() == [[1, 2, 3], [4, 5, 6], [0, 0, 0]]
    assert result.found.tolist() == [True, True, False]


def test_two_words_may_share_a_row_and_no_words_are_no_rows(write):
    path = write(GLOVE)
    assert read_word_vectors(path, {"cat": 1, "dog": 1}).vectors.tolist() == [[0, 0, 0], [1, 2, 3]]
    assert read_word_vectors(path, {}).vectors.shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "width", "message"),
    [
        ("a 1 2\nb 1\n", None, "must be 2, but line 2 of PATH has width 1; copy the file again or give its own width"),
        ("a 1 2\nb 1 2 3\n", None, "must be 2, but line 2 of PATH has width 3"),
        ("a 1 2\n", 3, "must be 3, but line 1 of PATH has width 2"),
        ("a 1 2 3 4\n", 3, "must be 3, but line 1 of PATH has width 4"),
        ("a\n", None, "must be at least 1, but line 1 of PATH has width 0"),
        ("7 2\na 1 2\nb 1 2 3\n", None, "must be 2, but line 3 of PATH has width 3"),
        ("7 2\na 1 2\n", 3, "must be 3, but line 1 of PATH says that it is 2"),
        ("7 0\n", None, "must be at least 1, but line 1 of PATH says that it is 0"),
        ("b 1 2\na 1 x\n", None, "the last 2 fields of each row must be numbers, but line 2 of PATH has 'x'"),
        ("b 1 2\na 1 nan\n", None, "must be finite in float32, but line 2 of PATH has nan"),
        ("b 1 2\na -inf 1\n", None, "must be finite in float32, but line 2 of PATH has -inf"),
        ("b 1 2\na 1 1e39\n", None, "must be finite in float32, but line 2 of PATH has 1e39"),
        ("", None, "must have at least one row, but PATH has none"),
        ("3 2\n", None, "must have at least one row, but PATH has none"),
        (
            gzip.compress(GLOVE.encode() * 50, mtime=0)[:-9],
            None,
            "PATH starts as a gzip file but cannot be decompressed",
        ),
    ],
)
def test_bad_files_are_named(write, text, width, message):
    path = write(text)
    with pytest.raises(ValueError, match=re.escape(message.replace("PATH", str(path)))):
        read_word_vectors(path, {"a": 0}, width)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the path of word vectors must name a file, but .*no does not exist"):
        read_word_vectors(tmp_path / "no", {"a": 0})
    with pytest.raises(IsADirectoryError, match=r"the path of word vectors must name a file, but .* is a folder"):
        read_word_vectors(tmp_path, {"a": 0})


def test_only_big_files_have_a_progress_bar(write, monkeypatch, capsys):
    path = write(GLOVE)
    read_word_vectors(path, {})
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("muse_plugin.files.lines.BIG_FILE", 5)
    read_word_vectors(path, {})
    assert "vectors.txt" in capsys.readouterr().err


def test_ngrams_are_stretches_of_characters_between_begin_and_end():
    assert list_character_ngrams("aa") == [
        "1gram-a",
        "2gram-#BEGIN#a",
        "2gram-aa",
        "2gram-a#END#",
        "3gram-#BEGIN#aa",
        "3gram-aa#END#",
        "4gram-#BEGIN#aa#END#",
    ]
    keys = list_character_ngrams("Cat")
    assert [sum(key.startswith(f"{n}gram-") for key in keys) for n in (1, 2, 3, 4)] == [3, 4, 3, 2]
    assert "4gram-#BEGIN#Cat" in keys


def test_a_word_is_the_mean_of_its_distinct_ngrams(write):
    path = write("1gram-a 1 2\n2gram-#BEGIN#a 3 -4\n3gram-aa#END# 5 5\n1gram-b 100 100\n5gram-#BEGIN#aa#END# 7 7\n")
    result = average_character_ngrams(path, {"aa": 2, "x": 0, "ab": 1})
    # aa has "a" twice, but it counts once; ab has a, b and the begin of a
    assert_close(result.vectors, torch.tensor([[0, 0], [104 / 3, 98 / 3], [3, 1]]))
    assert result.found.tolist() == [False, True, True]


def test_ngram_files_are_checked_like_others(write):
    path = write("1gram-a 1 2\n1gram-b 3\n")
    with pytest.raises(ValueError, match=r"must be 2, but line 2 of .*vectors\.txt has width 1"):
        average_character_ngrams(path, {"a": 0})
    with pytest.raises(ValueError, match=r"must be 5, but line 1 of .*vectors\.txt has width 2"):
        average_character_ngrams(path, {"a": 0}, width=5)


def test_what_is_written_is_read_back_exactly(write):
    words = ["the", ". .", "ä\u00a0", "5"]
    vectors = torch.randn(4, 3) * torch.tensor([1e-30, 1.0, 1e30])
    file = io.BytesIO()
    write_word_vectors(file, words, vectors)
    result = read_word_vectors(write(file.getvalue()), {word: i for i, word in enumerate(words)})
    assert result.found.all()
    assert numpy.array_equal(result.vectors.numpy(), vectors.numpy())


def test_writing_needs_as_many_words_as_rows():
    with pytest.raises(ValueError, match="longer than argument 1"):
        write_word_vectors(io.BytesIO(), ["a"], torch.zeros(2, 3))


def test_vectors_that_all_point_the_same_way_are_warned_of(caplog):
    generator = torch.Generator().manual_seed(1)
    apart = torch.randn(300, 50, generator=generator)
    together = apart + 5
    assert abs(measure_likeness(apart)) < 0.02
    assert measure_likeness(together) > 0.9
    assert measure_likeness(together) == measure_likeness(together)
    assert measure_likeness(apart[:1]) == 0
    warn_of_likeness(measure_likeness(apart), "here")
    assert caplog.text == ""
    warn_of_likeness(measure_likeness(together), "FILE")
    assert "FILE: the mean cosine of two random words is 0.9" in caplog.text
    assert "centre them" in caplog.text
