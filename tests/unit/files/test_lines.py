"""Only a line feed ends a line, what is damaged is named, and a cleaned line is one line."""

import gzip
import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.files.lines import clean_line, iterate_lines, iterate_stream, read_lines


def test_only_a_line_feed_ends_a_line_and_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa\u2028b\x85c\rd\r\n\n\ufeffx \t\nlast".encode())
    assert read_lines(path, "--references") == ["a\u2028b\x85c\rd", "", "\ufeffx \t", "last"]
    assert list(iterate_lines(path, "--references"))[2:] == [(3, "\ufeffx \t"), (4, "last")]


@pytest.mark.parametrize("name", ["a.gz", "without_ending"])
def test_gzip_is_found_by_content(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress("ä\nb\n".encode()))
    assert read_lines(path, "--references") == ["ä", "b"]


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"--versus must name a file, but {tmp_path / 'no'} does not")
    ):
        read_lines(tmp_path / "no", "--versus")
    with pytest.raises(IsADirectoryError, match=re.escape(f"--versus must name a file, but {tmp_path} is a folder")):
        read_lines(tmp_path, "--versus")


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0)])
def test_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "empty"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"but {path} is empty")):
        read_lines(path, "--references")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_invalid_utf8_is_named_by_line(tmp_path, pack):
    path = tmp_path / "latin1"
    path.write_bytes(pack(b"one\ntwo\nf\xfcnf\n"))
    with pytest.raises(ValueError, match=re.escape(f"line 3 of {path} has the byte 0xfc at position 2")):
        read_lines(path, "--references")


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:12] + b"\xff\xff" + data[14:]])
def test_damaged_gzip_is_refused(tmp_path, damage):
    path = tmp_path / "a.gz"
    path.write_bytes(damage(gzip.compress(b"some text\n" * 50)))
    with pytest.raises(ValueError, match="cannot be decompressed"):
        read_lines(path, "--references")


def test_only_big_files_have_a_progress_bar(tmp_path, monkeypatch, capsys):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"a\n" * 5)
    list(iterate_lines(path, "--train"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("muse_plugin.files.lines.BIG_FILE", 5)
    list(iterate_lines(path, "--train"))
    assert "corpus.txt" in capsys.readouterr().err


def test_a_line_without_end_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("muse_plugin.files.lines.LONGEST_LINE", 8)
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345678\n123456789\n")
    lines = iterate_lines(path, "--train")
    assert next(lines) == (1, "12345678")
    with pytest.raises(ValueError, match=re.escape(f"must have at most 8 bytes, but line 2 of {path} has more; check")):
        next(lines)
    with pytest.raises(ValueError, match="line 1 of /dev/zero has more"):
        next(iterate_lines(Path("/dev/zero"), "--train"))


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("a\u2028b\x85c\rd\te\u00a0f", "a b c d e f"),
        ("\ufeffsoft\u00adhyphen\u200b", "softhyphen"),
        ("null\x00bell\x07", "null bell"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("  ", ""),
    ],
)
def test_clean_line_leaves_printable_characters_and_single_spaces(line, cleaned):
    assert clean_line(line) == cleaned


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=80).filter(lambda content: not content.startswith(b"\x1f\x8b")))
def test_iterate_lines_breaks_at_line_feeds_only(content):
    lines = list(iterate_stream(io.BytesIO(content)))
    assert len(lines) == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))


def test_iterate_lines_reports_invalid_bytes_and_drops_carriage_returns():
    content = "eins\r\nzwei\u2028drei\n".encode() + b"vier \xff\n\nende"
    lines = list(iterate_stream(io.BytesIO(content)))
    assert lines == [("eins", True), ("zwei\u2028drei", True), ("vier \ufffd", False), ("", True), ("ende", True)]


@pytest.mark.parametrize("is_raw", [True, False])
def test_a_compressed_stream_is_refused(is_raw):
    content = io.BytesIO(gzip.compress(b"a\nb\n"))
    stream = content if is_raw else io.BufferedReader(content)
    with pytest.raises(ValueError, match=r"^lines are read from plain text, but the input starts as a gzip file"):
        list(iterate_stream(stream))
    assert [text for text, _ in iterate_stream(io.BytesIO(b"\x1f\x8b"), first_line=2)] == ["\x1f\ufffd"]
