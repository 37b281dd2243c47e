"""Strategies of hypothesis for files that are nearly as they should be, and for others that are not at all."""

import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

LARGEST = 2 << 20  # bytes
ODD_BYTES = [
    *(b"\0", b"\xff", b"\xff" * 9, b"\n", b"\r", b"\t", b" ", b"\x1b[2J", b'"', b"'", b"\\", b"{", b"}", b"[", b"]"),
    *(text.encode("utf-8") for text in ("\ufeff", "\u2028", "\x85", "\xa0", "\u200b", "\u202e", "\U0001f600", "İ")),
    b"\xed\xa0\x80",  # half of a surrogate pair
    b"\xc3",  # half of a character
    b"\x1f\x8b",
    b"PK\3\4",
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"x" * 100_000,
    b" " * 100_000,
    b"\n" * 100_000,
    b"a b\n" * 20_000,
]
NUMBERS = [
    *("0", "-0", "-1", "1", "2", "00", "1.5", "1e3", "1e999", "-1e999", "nan", "NaN", "inf", "Infinity", "0x10", "1_0"),
    *(str(number) for number in (2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**9, 10**12, 10**18)),
    *(str(-(2**31)), str(-(2**63)), "9" * 400, "9" * 5000, "0" * 5000, "٣", "½", "true", "null", ""),
]
ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp1252", "utf-7")

_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
Draw = Callable[[st.SearchStrategy], Any]


def _draw_piece(draw: Draw, content: bytes) -> tuple[int, int]:
    begin = draw(st.integers(0, len(content)))
    length = draw(st.one_of(st.integers(0, 16), st.integers(0, len(content))))
    return begin, min(begin + length, len(content))


def _flip_bit(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    if not content:
        return content
    place = draw(st.integers(0, len(content) - 1))
    return content[:place] + bytes([content[place] ^ 1 << draw(st.integers(0, 7))]) + content[place + 1 :]


def _cut(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    return content[: draw(st.integers(0, len(content)))]


def _remove_piece(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    begin, end = _draw_piece(draw, content)
    return content[:begin] + content[end:]


def _repeat_piece(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    begin, end = _draw_piece(draw, content)
    times = min(draw(st.sampled_from((2, 3, 100, 50_000))), LARGEST // max(end - begin, 1))
    return content[:begin] + content[begin:end] * times + content[end:]


def _swap_pieces(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    a, b, c = sorted(draw(st.integers(0, len(content))) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def _insert(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    begin, end = _draw_piece(draw, content)
    end = draw(st.sampled_from((begin, end)))
    return content[:begin] + draw(st.sampled_from(odd)) + content[end:]


def _change_number(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(content))[:1000]
    if not found:
        return content
    begin, end = draw(st.sampled_from(found)).span()
    return content[:begin] + draw(st.sampled_from(NUMBERS)).encode("utf-8") + content[end:]


def _recode(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    return content.decode("utf-8", errors="replace").encode(draw(st.sampled_from(ENCODINGS)), errors="replace")


def _compress(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    return compress(content)


def _replace(draw: Draw, content: bytes, odd: Sequence[bytes]) -> bytes:
    return draw(st.binary(max_size=200))


_CHANGES = (
    *(_flip_bit, _cut, _remove_piece, _repeat_piece, _swap_pieces, _insert, _insert, _insert),
    *(_change_number, _change_number, _change_number, _recode, _compress, _replace),
)


@st.composite
def damaged_bytes(draw: Draw, content: bytes, odd: Sequence[bytes] = (), largest: int = LARGEST) -> bytes:
    """Content with one to four changes.

    Args:
        draw: of hypothesis.
        content: of a valid file.
        odd: what is inserted besides ``ODD_BYTES``: words of the format.
        largest: bytes; what is longer is cut.
    """
    for change in draw(st.lists(st.sampled_from(_CHANGES), min_size=1, max_size=4)):
        content = change(draw, content, (*ODD_BYTES, *odd))[:largest]
    return content


_ODD_OF_TYPE: dict[type, st.SearchStrategy] = {
    bool: st.booleans(),
    int: st.sampled_from(
        [0, -1, 1, 2, 2**31, 2**32, 2**62, 2**63, 2**64, -(2**63), 10**9, 10**18, 10**400, -(10**4000)]
    ),
    str: st.one_of(
        st.sampled_from(["", ".", "..", "/", "../x", "a\0b", "\n", "\x1b[2J", "\ud800", "x" * 300, "x" * 100_000]),
        st.sampled_from(["none", "moses", "subword-nmt", "sentencepiece", "wordpiece", "float16", "zh", "cs"]),
        st.text(max_size=5),
    ),
}
ODD_VALUES = st.recursive(
    st.one_of(st.sampled_from([None, 1.5, float("nan"), float("inf")]), *_ODD_OF_TYPE.values()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def damaged_json(draw: Draw, content: bytes) -> bytes:
    """A JSON file with one to three values changed, taken away or added; or with other damage."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged_bytes(content))
    whole = {"": json.loads(content)}
    for _ in range(draw(st.integers(1, 3))):
        places = list(_list_places(whole))
        owner, key = draw(st.sampled_from(places))
        kind = draw(st.sampled_from(("keep type", "keep type", "change", "remove", "add", "rename")))
        if kind == "keep type" and type(owner[key]) in _ODD_OF_TYPE:
            owner[key] = draw(_ODD_OF_TYPE[type(owner[key])])
        elif kind in ("keep type", "change") or key == "" or isinstance(owner, list):
            owner[key] = draw(ODD_VALUES)
        elif kind == "add":
            owner[draw(st.one_of(st.text(max_size=5), st.sampled_from(_ODD_KEYS)))] = draw(ODD_VALUES)
        else:
            value = owner.pop(key)
            if kind == "rename":
                owner[draw(st.sampled_from((*_ODD_KEYS, *(name for _, name in places if isinstance(name, str)))))] = (
                    value
                )
    return json.dumps(whole[""]).encode("utf-8")[:LARGEST] if "" in whole else b""


_ODD_KEYS = ["", "text", "source", "target", "a\nb", "\x1b[2J", "\ud800", "x" * 100_000]


def _list_places(value: Any) -> Any:
    """Yields (dict or list, key or position) of every value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _list_places(inner)


@st.composite
def damaged_zip(draw: Draw, content: bytes, part: str, odd: Sequence[bytes] = (), largest: int = LARGEST) -> bytes:
    """A zip archive in which one part is damaged and its checksum is right; or with other damage.

    Args:
        draw: of hypothesis.
        content: of a valid archive.
        part: how the name of that part ends.
        odd: as for ``damaged_bytes``.
        largest: as for ``damaged_bytes``.
    """
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged_bytes(content, odd, largest))
    packing = draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
    return repack(content, part, lambda inner: draw(damaged_bytes(inner, odd, largest)), packing)


def repack(content: bytes, part: str, change: Callable[[bytes], bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive written again with one part changed.

    Args:
        content: the archive.
        part: how the name of that part ends.
        change: what is done to its content.
        packing: one of the ways of ``zipfile``.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", packing) as new:
        for name in old.namelist():
            inner = old.read(name)
            entry = zipfile.ZipInfo(name)  # of the same time, always
            new.writestr(entry, change(inner) if name.endswith(part) else inner, packing)
    return buffer.getvalue()


@st.composite
def damaged_gzip(draw: Draw, content: bytes, odd: Sequence[bytes] = ()) -> bytes:
    """A gzip file whose content is damaged and its checksum right; or with other damage."""
    if draw(st.booleans()):
        return draw(damaged_bytes(content, odd))
    return compress(draw(damaged_bytes(gzip.decompress(content), odd)))


def compress(content: bytes) -> bytes:
    """Content in gzip; the same at any time."""
    return gzip.compress(content, 1, mtime=0)


@st.composite
def damaged_file(draw: Draw, files: Mapping[str, st.SearchStrategy]) -> tuple[str, bytes]:
    """The name of one of several files, and the content that it gets instead of its own.

    Args:
        draw: of hypothesis.
        files: the contents that each may get.
    """
    name = draw(st.sampled_from(sorted(files)))
    return name, draw(files[name])
