"""Pretrained word vectors from text files: GloVe, word2vec, fastText, and the character n-grams of charNgram.

A file is read once, from its first line to its last, and only rows that are asked for are kept, so that a table of
millions of words costs no more memory than the vocabulary does. Files may be compressed with gzip.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional, Union

import numpy as np
import torch
from torch import Tensor

from muse_plugin.files.lines import iterate_bytes

LONGEST_NGRAM = 4
WIDEST = 10_000  # numbers of a row; a file that claims more must not fill the memory
BEGIN, END = "#BEGIN#", "#END#"
_SAMPLED = 10_000  # pairs of rows
_ALIKE = 0.3  # a cosine
_SHOWN = 40  # characters of a number in messages
_COUNT_AND_WIDTH = re.compile(rb"\d{1,15} \d{1,15}")


logger = logging.getLogger(__name__)


class WidthError(ValueError):
    """Vectors are not as wide as they must be."""


class WordVectors(NamedTuple):
    """Vectors by the index of their word.

    Attributes:
        vectors: float32, shape (rows, width); a row without a vector is zero.
        found: bool, shape (rows,), true where the file has the vector.
    """

    vectors: Tensor
    found: Tensor


def read_word_vectors(path: Union[str, Path], words: Mapping[str, int], width: Optional[int] = None) -> WordVectors:
    """Reads the vectors of some words.

    A row is the word and its numbers, separated by spaces; the last ``width`` fields are the numbers, since a few
    words of GloVe contain spaces. A first line with two whole numbers is the header of word2vec and fastText. The
    first of several rows of a word counts. Words are looked up as they are, never lower-cased.

    Args:
        path: the file, plain or compressed with gzip.
        words: the row of the result for each word; there is a row for every index up to the largest.
        width: numbers per row; taken from the header or the first row if None.

    Returns:
        The vectors, shape (largest index + 1, width), and which were found.

    Raises:
        FileNotFoundError: if there is no such file.
        IsADirectoryError: if it is a folder.
        ValueError: if it has no row, a line is too long to be one, a row has another width or more than ``WIDEST``
            numbers, or a number of a wanted row is malformed or not finite; the sentence names file and line. Numbers
            of other rows are counted, but not read.
    """
    path = Path(path)
    rows = {key.encode("utf-8", errors="surrogatepass"): index for key, index in words.items()}
    num_rows = max(words.values(), default=-1) + 1
    table: Optional[np.ndarray] = None
    found = np.zeros(num_rows, dtype=bool)
    for number, word, numbers in _iterate_rows(path, width):
        if table is None:
            table = np.zeros((num_rows, numbers.count(b" ") + 1), dtype=np.float32)
        index = rows.pop(word, None)
        if index is not None:
            table[index] = _parse_numbers(numbers, path, number)
            found[index] = True
    if table is None:
        raise ValueError(f"a file of word vectors must have at least one row, but {path} has none; copy it again.")
    return WordVectors(torch.from_numpy(table), torch.from_numpy(found))


def average_character_ngrams(
    path: Union[str, Path], words: Mapping[str, int], width: Optional[int] = None
) -> WordVectors:
    """Composes the vectors of words from those of their characters; arguments and errors as of ``read_word_vectors``.

    Source: Hashimoto et al. 2017, arXiv:1611.01587, section 2.1, and the charNgram file released with it: a row is a
    key such as ``2gram-#BEGIN#a`` and its numbers. A word's vector is the mean over its distinct n-grams, n from 1 to
    4, that the file has. N-grams are stretches of ``#BEGIN#``, the characters, ``#END#``; those of one element are
    characters only.

    Returns:
        The vectors, shape (largest index + 1, width); found are words with at least one n-gram.
    """
    keys = {word: list_character_ngrams(word) for word in words}
    ngrams = {key: row for row, key in enumerate(dict.fromkeys(chain.from_iterable(keys.values())))}
    table, has_vector = read_word_vectors(path, ngrams, width)
    num_rows = max(words.values(), default=-1) + 1
    vectors = torch.zeros(num_rows, table.shape[1])
    found = torch.zeros(num_rows, dtype=torch.bool)
    for word, index in words.items():
        rows = torch.tensor([ngrams[key] for key in keys[word]], dtype=torch.long)
        rows = rows[has_vector[rows]]
        if len(rows):
            vectors[index] = table[rows].mean(dim=0)
            found[index] = True
    return WordVectors(vectors, found)


def list_character_ngrams(word: str) -> list[str]:
    """Returns the distinct keys of a word's n-grams, as ``average_character_ngrams`` looks them up."""
    elements = [BEGIN, *word, END]
    keys = [f"1gram-{character}" for character in word]
    for n in range(2, LONGEST_NGRAM + 1):
        keys += [f"{n}gram-{''.join(elements[i : i + n])}" for i in range(len(elements) - n + 1)]
    return list(dict.fromkeys(keys))


def write_word_vectors(file: BinaryIO, words: Iterable[str], vectors: Tensor) -> None:
    """Writes a row for each word, in a form that ``read_word_vectors`` gives back exactly.

    Args:
        file: where to, open for writing bytes.
        words: one for each row.
        vectors: shape (rows, width); written as float32.
    """
    for word, row in zip(words, vectors.detach().cpu().numpy().astype(np.float32), strict=True):
        file.write(f"{word} {' '.join(map(str, row))}\n".encode("utf-8", errors="surrogatepass"))


def measure_likeness(vectors: Tensor) -> float:
    """The mean cosine of random pairs of rows, shape (rows, width), always the same ones; 0 where there are no two."""
    if len(vectors) < 2:
        return 0.0
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(len(vectors), (_SAMPLED,), generator=generator)
    others = (first + torch.randint(1, len(vectors), (_SAMPLED,), generator=generator)) % len(vectors)
    return float(torch.cosine_similarity(vectors[first].float(), vectors[others].float()).mean())


def warn_of_likeness(cosine: float, where: str) -> None:
    """Warns of vectors that say little, since all of them point the same way, by the cosine of ``measure_likeness``."""
    if cosine > _ALIKE:
        logger.warning(
            "%s: the mean cosine of two random words is %.3f, so what all vectors have in common hides their "
            "differences; centre them, as examples/recipe/vectors.sh does.",
            *(where, cosine),
        )


def _iterate_rows(path: Path, width: Optional[int]) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields (line from 1, word, its numbers with a space between them, all rows equally many)."""
    for number, line in iterate_bytes(path, "the path of word vectors"):
        line = line.rstrip(b" \t\r\n").replace(b"\t", b" ")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
            if _COUNT_AND_WIDTH.fullmatch(line):
                width = _check_header(int(line.split()[1]), width, path)
                continue
        if not line:
            continue
        if b"  " in line:
            line = re.sub(b" +", b" ", line)
        spaces = line.count(b" ")
        if width is None:
            width = _check_width(spaces, number, path)
        word, _, numbers = line.partition(b" ")
        if spaces > width > 0:  # a word with spaces, or a row with more numbers
            word, *fields = line.rsplit(b" ", width)
            numbers = b" ".join(fields)
        is_wider = spaces > width and all(map(_is_number, word.split(b" ")[1:]))
        if spaces < max(width, 1) or is_wider:
            raise WidthError(
                f"the width of all rows must be {width or 'at least 1'}, but line {number} of {path} has width "
                f"{spaces}; copy the file again or give its own width."
            )
        yield number, word, numbers


def _check_header(in_file: int, asked: Optional[int], path: Path) -> int:
    if asked not in (None, in_file) or not in_file:
        raise WidthError(
            f"the width of all rows must be {asked or 'at least 1'}, but line 1 of {path} says that it is {in_file}; "
            "choose another file or width."
        )
    return _check_width(in_file, 1, path)


def _check_width(width: int, line: int, path: Path) -> int:
    if width > WIDEST:
        raise WidthError(
            f"the width of all rows must be at most {WIDEST:,}, but by line {line} of {path} it is {width:,}; check "
            "how the file was made."
        )
    return width


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _parse_numbers(text: bytes, path: Path, line: int) -> np.ndarray:
    numbers = text.split(b" ")
    try:
        values = np.array([float(field) for field in numbers])
    except ValueError as error:
        bad_field = next(field for field in numbers if not _is_number(field))
        raise ValueError(
            f"the last {len(numbers)} fields of each row must be numbers, but line {line} of {path} has "
            f"{bad_field.decode('utf-8', errors='replace')[:_SHOWN]!r}; copy the file again."
        ) from error
    bad = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(bad):
        raise ValueError(
            f"numbers of word vectors must be finite in float32, but line {line} of {path} has "
            f"{numbers[bad[0]].decode()[:_SHOWN]}; remove the row or copy the file again."
        )
    return values.astype(np.float32)
