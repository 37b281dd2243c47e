"""Dictionaries of words and characters, and fairseq's binary files made with them.

Dictionaries and files are those of ``fairseq-preprocess --only-source``, to the byte: sorted by frequency, then by code
points, filled up to a multiple of eight.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

import torch
from fairseq.data import Dictionary, indexed_dataset

from muse_plugin.files.limits import LARGEST_VOCABULARY, check_size
from muse_plugin.preparation.split_files import iterate_tokens

_SHOWN = 200  # characters of fairseq's message, which may hold a whole line of the file


def build_dictionary(
    counts: Mapping[str, int], threshold: int = 0, max_words: int = 0, kept: Collection[str] = ()
) -> Dictionary:
    """Makes the dictionary of the most frequent tokens.

    Args:
        counts: how often each token occurs.
        threshold: a token seen less often is unknown, unless it is ``kept``.
        max_words: the most tokens to keep, special symbols and fillers not counted; all if 0.
        kept: tokens that are known without having been seen often, since they have a pretrained vector.
    """
    dictionary = Dictionary()
    for token, count in counts.items():
        if count >= threshold or token in kept:
            dictionary.add_symbol(token, n=count)
    size = max_words + dictionary.nspecial if max_words else -1
    dictionary.finalize(nwords=size, padding_factor=8)
    return dictionary


def build_piece_dictionary(pieces: Iterable[str]) -> Dictionary:
    """Makes the dictionary of a whole vocabulary in its order: the id of entry ``i`` is ``i + 4``."""
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    return dictionary


def load_dictionary(path: Path, flag: str = "--dict-from") -> Dictionary:
    """Reads a dictionary that fairseq or ``prepare-text`` wrote.

    Args:
        path: the file.
        flag: ``--dictionary`` if it names the file, ``--dict-from`` if it names its data.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged.
    """
    if not path.is_file() and flag == "--dictionary":
        raise FileNotFoundError(f"--dictionary must name a dictionary of fairseq, but there is no file {path}.")
    if not path.is_file():
        raise FileNotFoundError(
            f"--dict-from must name a folder that prepare-text made, but {path} does not exist; check the folder, or "
            "leave out the flag that needs this dictionary."
        )
    check_size(path, LARGEST_VOCABULARY, "name a dictionary of fairseq")
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq raises a plain Exception for a wrong encoding
        raise ValueError(
            f"{path} must be a dictionary of fairseq, but reading it gave {str(error)[:_SHOWN]!r}."
        ) from error


def list_words(dictionary: Dictionary) -> list[str]:
    """Returns the words of a dictionary without special symbols and fillers, in its order."""
    return [word for word in dictionary.symbols[dictionary.nspecial :] if dictionary.count[dictionary.index(word)] > 0]


def binarise(text: Path, dictionary: Dictionary, prefix: Path, find: Optional[Callable[[str], int]] = None) -> None:
    """Writes ``PREFIX.bin`` and ``PREFIX.idx``: the ids of each line of a text, and the end-of-sentence symbol.

    Args:
        text: tokens separated by spaces, a sentence a line.
        dictionary: ids of the tokens; what it lacks is unknown.
        prefix: the files without their endings.
        find: gives the id of a token; the dictionary's own if None.
    """
    builder = indexed_dataset.make_builder(
        indexed_dataset.data_file_path(str(prefix)), impl="mmap", vocab_size=len(dictionary)
    )
    find = find or dictionary.index
    for tokens in iterate_tokens(text):
        # Much faster than Dictionary.encode_line, which stores one element of a tensor after the other.
        ids = [*map(find, tokens), dictionary.eos()]
        builder.add_item(torch.tensor(ids, dtype=torch.int))
    builder.finalize(indexed_dataset.index_file_path(str(prefix)))


class Share(NamedTuple):
    """Which part of a text something holds for, both in [0, 1].

    Attributes:
        distinct: of the different words.
        running: of all words, each as often as it occurs.
    """

    distinct: float
    running: float


def measure_share(words: "Counter[str]", holds: Callable[[str], bool]) -> Share:
    """Measures for which words something holds.

    Args:
        words: how often each word occurs; at least one.
        holds: says so for a word.
    """
    those = [word for word in words if holds(word)]
    return Share(len(those) / len(words), sum(words[word] for word in those) / sum(words.values()))
