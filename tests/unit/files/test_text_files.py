import gzip
import re

import pytest

from muse_plugin.files import text_files
from muse_plugin.files.text_files import iterate_lines, read_lines


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
    monkeypatch.setattr(text_files, "BIG_FILE", 5)
    list(iterate_lines(path, "--train"))
    assert "corpus.txt" in capsys.readouterr().err
