"""Only a line feed ends a line, and a cleaned line is one line."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.files.text_streams import clean_line, iterate_lines


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
@given(content=st.binary(max_size=80))
def test_iterate_lines_breaks_at_line_feeds_only(content):
    lines = list(iterate_lines(io.BytesIO(content)))
    assert len(lines) == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))


def test_iterate_lines_reports_invalid_bytes_and_drops_carriage_returns():
    content = "eins\r\nzwei\u2028drei\n".encode() + b"vier \xff\n\nende"
    lines = list(iterate_lines(io.BytesIO(content)))
    assert lines == [("eins", True), ("zwei\u2028drei", True), ("vier \ufffd", False), ("", True), ("ende", True)]
