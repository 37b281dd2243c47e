"""BERT's word pieces: reads a vocabulary, finds out how text was treated for it, and cuts text into its entries.

The pieces are those of BERT's own tokeniser, by the package ``tokenizers``, with one difference that is meant: names of
special entries in a text, such as ``[SEP]``, are not special. Brackets are punctuation, so they fall apart like any
other text.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from muse_plugin.files.json_objects import read_json_object
from muse_plugin.files.limits import LARGEST_VOCABULARY
from muse_plugin.text import SPECIAL_SYMBOLS
from muse_plugin.text.subword_file import read_subword_file

VOCABULARY_NAME = "vocab.txt"
UNKNOWN_PIECE = "[UNK]"
NEEDED_PIECES = (UNKNOWN_PIECE, "[CLS]", "[SEP]")
LONGEST_WORD = 100  # characters; BERT takes a longer word for unknown

_SHOWN = 60  # characters of what a damaged file holds
_RESERVED = frozenset(SPECIAL_SYMBOLS) - {"<mask>"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STATED = {  # where the files of a BERT folder say so: rule -> key in tokenizer_config.json, key in tokenizer.json
    "lower_case": ("do_lower_case", "lowercase"),
    "strip_accents": ("strip_accents", "strip_accents"),
    "split_chinese": ("tokenize_chinese_chars", "handle_chinese_chars"),
}


class PieceRules(NamedTuple):
    """What happens to a text before it is cut.

    Attributes:
        lower_case: whether it is lower-cased.
        strip_accents: whether accents are taken off letters.
        split_chinese: whether each Chinese character is a word.
    """

    lower_case: bool
    strip_accents: bool
    split_chinese: bool


class WordPieces:
    """Cuts text into word pieces.

    Args:
        vocabulary: the entries.
        rules: how its text was treated.

    Raises:
        ImportError: if the package tokenizers is missing.
    """

    def __init__(self, vocabulary: Sequence[str], rules: PieceRules) -> None:
        try:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        except ImportError as error:
            raise ImportError(
                "--tokenizer wordpiece needs the package tokenizers, which is missing; run 'pip install tokenizers'."
            ) from error
        ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._tokenizer = Tokenizer(
            models.WordPiece(ids, unk_token=UNKNOWN_PIECE, max_input_chars_per_word=LONGEST_WORD)
        )
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=rules.split_chinese,
            strip_accents=rules.strip_accents,
            lowercase=rules.lower_case,
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def split(self, line: str) -> list[str]:
        """Returns the pieces of a raw text; an empty list if there is nothing that can be seen."""
        return self._tokenizer.encode(_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", line)).tokens


def read_vocabulary(path: Path) -> list[str]:
    """Reads the entries of a vocabulary; entry ``i`` has BERT's id ``i``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: as ``parse_vocabulary``.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"word pieces need BERT's vocabulary, but {path} does not exist; name the folder that holds "
            f"{VOCABULARY_NAME} by --bert-dir, or copy the file from there."
        )
    return parse_vocabulary(read_subword_file(path, "copy it again"), str(path))


def parse_vocabulary(content: bytes, where: str) -> list[str]:
    """Returns the entries of a vocabulary.

    Args:
        content: of the file, with an entry a line.
        where: what to call it in messages.

    Raises:
        ValueError: if it is not UTF-8, has an entry that is empty, twice there or reserved by fairseq, or lacks one
            that BERT needs; the sentence has the number of the line.
    """
    try:
        pieces = [line.removesuffix("\r") for line in content.decode("utf-8").removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} must be a UTF-8 file, but reading it gave '{error}'; copy it again.") from error
    lines: dict[str, int] = {}
    for number, piece in enumerate(pieces, start=1):
        fault = "is empty" if not piece else ""
        if piece in lines:
            fault = f"has {piece[:_SHOWN]!r} as line {lines[piece]} has"
        if piece in _RESERVED or "\r" in piece:
            fault = f"has {piece[:_SHOWN]!r}, which fairseq's dictionaries reserve"
        if fault:
            raise ValueError(
                f"a vocabulary of word pieces must hold one entry a line, each once and none of fairseq's symbols, but "
                f"line {number} of {where} {fault}; copy the file again or take that of a BERT model."
            )
        lines[piece] = number
    missing = [piece for piece in NEEDED_PIECES if piece not in lines]
    if missing:
        raise ValueError(
            f"a vocabulary of word pieces must hold {', '.join(NEEDED_PIECES)}, but {where} lacks "
            f"{', '.join(missing)}; take that of a BERT model."
        )
    return pieces


def choose_rules(folder: Path, lower_case: Optional[bool] = None) -> tuple[PieceRules, str]:
    """Finds out how text is treated before it is cut.

    Args:
        folder: of a BERT model, with ``vocab.txt`` and perhaps ``tokenizer_config.json`` and ``tokenizer.json``.
        lower_case: None for what the files state (the first of them that does), or what the vocabulary shows where
            none does: with an entry ``A`` it is cased. Accents are taken off where letters are lower-cased, unless
            the files say otherwise, and each Chinese character is a word.

    Returns:
        The rules, and what says that text is cased or not.

    Raises:
        FileNotFoundError: if there is no vocabulary.
        ValueError: if one of the files is damaged.
    """
    stated = _read_stated(folder)
    pieces = read_vocabulary(folder / VOCABULARY_NAME)
    lower, source = stated.get("lower_case", ("A" not in pieces, f"the entries of {VOCABULARY_NAME}"))
    if lower_case is not None:
        lower, source = lower_case, "the command line"
    strip_accents, _ = stated.get("strip_accents", (lower, ""))
    split_chinese, _ = stated.get("split_chinese", (True, ""))
    return PieceRules(lower, strip_accents, split_chinese), source


def _read_stated(folder: Path) -> dict[str, tuple[bool, str]]:
    """The rules that the files of a BERT folder state, each with the name of the first file that does.

    ``tokenizer.json`` states them in its normaliser, if that is BERT's.
    """
    stated: dict[str, tuple[bool, str]] = {}
    for position, name in enumerate(("tokenizer_config.json", "tokenizer.json")):
        path = folder / name
        content: Any = read_json_object(path, "copy it again", LARGEST_VOCABULARY) if path.is_file() else {}
        if position == 1:
            content = content.get("normalizer")
            if not isinstance(content, dict) or content.get("type") != "BertNormalizer":
                continue
        for rule, keys in _STATED.items():
            value = content.get(keys[position])
            if value is not None and not isinstance(value, bool):
                raise ValueError(
                    f"{keys[position]!r} in {folder / name} must be true, false or null, but is "
                    f"{repr(value)[:_SHOWN]}; copy the file again."
                )
            if value is not None:
                stated.setdefault(rule, (value, name))
    return stated
