"""How raw text became the words of a data set, stored beside it as ``text.json`` and applied again to new text.

The steps for a line: clean it (white space of every kind is a space, control characters are, too, invisible format
characters vanish), split it at spaces or tokenise it with Moses' rules, lower-case it on request, and make harmless
what would read as a special symbol of a dictionary. The rule for the last: ``<s>``, ``</s>``, ``<pad>`` and ``<mask>``
in a text are written ``&lt;s&gt;`` and so on, ordinary words; ``<unk>`` stays and is what it says, an unknown word.
Word pieces are a way of their own: BERT's (see ``word_pieces.py``), with the vocabulary beside ``text.json``. Byte-pair
encoding comes last, with the codes beside ``text.json``; Moses' words are then those of translation, escaped.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Optional, Union

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.json_objects import check_faults, find_faults, read_settings
from muse_plugin.files.limits import LARGEST_VOCABULARY, check_size
from muse_plugin.files.lines import clean_line
from muse_plugin.text.byte_pair_encoding import CODES_NAME, BytePairEncoding
from muse_plugin.text.moses_words import HARMLESS, MosesWords
from muse_plugin.text.word_pieces import UNKNOWN_PIECE, VOCABULARY_NAME, PieceRules, WordPieces

FILE_NAME = "text.json"
TOKENIZERS = ("none", "moses", "wordpiece")
# Version 2 adds word pieces, version 3 byte-pair encoding; a file is of the lowest that can say what it has to.
FORMAT_VERSIONS = {1: ("none", "moses"), 2: TOKENIZERS, 3: TOKENIZERS}
SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WORD_BOUNDARY = "\u2581"  # stands between the characters of one word and those of the next

_SPLIT_FIELDS: dict[str, type] = {"sentences": int, "words": int, "file": str}
_PIECE_FIELDS = ("strip_accents", "split_chinese")
_NOT_STORED = {  # by version
    1: ("vocabulary_folder", *_PIECE_FIELDS, "bpe"),
    2: ("vocabulary_folder", "bpe"),
    3: ("vocabulary_folder",),
}
_VOCABULARY_FIELDS: dict[str, type] = {"threshold": int, "size": int, "from": str}
_WAY_OUT = "copy it again or prepare the data again"


@functools.cache
def _load_moses(language: str, for_translation: bool) -> Callable[[str], list[str]]:
    try:
        from sacremoses import MosesTokenizer
    except ImportError as error:
        raise ImportError(
            "--tokenizer moses needs the package sacremoses, which is missing; run 'pip install sacremoses'."
        ) from error
    if for_translation:
        return MosesWords(language, lower_case=False)
    # Unescaped, "'s" and "&" stay what they are in tables of pretrained vectors.
    return functools.partial(MosesTokenizer(lang=language).tokenize, escape=False)


def split_characters(words: Iterable[str]) -> list[str]:
    """Spells words: their characters, with a token U+2581 between words; ``ab c`` gives ``a b U+2581 c``.

    A U+2581 within a word becomes ``_``.
    """
    characters: list[str] = []
    for i, word in enumerate(words):
        if i:
            characters.append(WORD_BOUNDARY)
        characters.extend(word.replace(WORD_BOUNDARY, "_"))
    return characters


@dataclass(frozen=True)
class TextSettings:
    """The settings of one prepared data set.

    Attributes:
        lower_case: whether words are lower-cased.
        tokenizer: ``none`` (split at white space), ``moses`` or ``wordpiece``.
        language: two-letter code that selects Moses' rules.
        numbers: whether labels are numbers in ``label/SPLIT.label``.
        tags: whether each word has a label.
        pair: whether there is a second text, ``input1``.
        characters: whether there are ``characters0`` and, for pairs, ``characters1``.
        format: the value of ``--format``.
        splits: for each split its ``sentences`` and ``words`` (of both texts) and the name of the ``file`` it is from.
        vocabulary: ``threshold``, ``size`` of the dictionary with its special symbols, and what it was counted
            ``from``: ``train``, ``all``, ``earlier`` (taken from an earlier data set), ``vocab.txt`` (word pieces)
            or the name of ``--dictionary``.
        arguments: all flags that the result depends on, as they were given.
        strip_accents: whether accents are taken off before a text is cut into word pieces.
        split_chinese: whether each Chinese character is a word before a text is cut into word pieces.
        bpe: whether words are cut into sub-words by byte-pair encoding.
        vocabulary_folder: where ``vocab.txt`` (word pieces) or ``bpe.codes`` lies; the folder that the settings were
            loaded from.

    Raises:
        ValueError: if ``tokenizer`` is unknown.
    """

    lower_case: bool
    tokenizer: str
    language: str
    numbers: bool = False
    tags: bool = False
    pair: bool = False
    characters: bool = False
    format: str = "label-tab-text"
    splits: Mapping[str, Mapping[str, Union[int, str]]] = field(default_factory=dict)
    vocabulary: Mapping[str, Union[int, str]] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    strip_accents: bool = False
    split_chinese: bool = True
    bpe: bool = False
    vocabulary_folder: Optional[Path] = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(
                f"the tokenizer must be one of {', '.join(TOKENIZERS)}, but got {self.tokenizer!r}; choose one."
            )

    @property
    def unknown_piece(self) -> Optional[str]:
        """What an unknown word is cut into: a word of the dictionary; None if there are no word pieces."""
        return UNKNOWN_PIECE if self.tokenizer == "wordpiece" else None

    @functools.cached_property
    def _word_pieces(self) -> WordPieces:
        rules = PieceRules(self.lower_case, self.strip_accents, self.split_chinese)
        return WordPieces(self._locate("word pieces", VOCABULARY_NAME), rules)

    @functools.cached_property
    def _byte_pair_encoding(self) -> BytePairEncoding:
        return read_codes(self._locate("sub-words", CODES_NAME))

    def _locate(self, what: str, name: str) -> Path:
        if self.vocabulary_folder is None:
            raise ValueError(
                f"{what} need the folder of {name}, but these settings have none; load them from the folder of the "
                "data, or give vocabulary_folder."
            )
        return self.vocabulary_folder / name

    def split_words(self, line: str) -> list[str]:
        """Returns the words of a raw text as the data set has them; an empty list if there is nothing but space.

        Raises:
            ImportError: if a package is missing: of the tokenizer ``moses`` or ``wordpiece``, of byte-pair encoding.
            FileNotFoundError: if the vocabulary of word pieces or the codes of byte-pair encoding are missing.
            ValueError: if either is damaged.
        """
        if self.tokenizer == "wordpiece":
            return self._word_pieces.split(line)
        line = clean_line(line)
        if self.tokenizer == "moses":
            # Once more, in case the tokeniser's output has white space within a token.
            line = clean_line(" ".join(_load_moses(self.language, self.bpe)(line)))
        words = [self._finish(word) for word in line.split()]
        return self._byte_pair_encoding.split(words) if self.bpe else words

    def clean_words(self, words: Iterable[str]) -> list[str]:
        """Returns as many words as given, for text whose words are given one by one, as those with tags are.

        White space within a word becomes ``_``; a word of nothing but white space and invisible characters becomes
        U+FFFD. Nothing is tokenised.
        """
        return [self._finish(clean_line(word).replace(" ", "_") or "\N{REPLACEMENT CHARACTER}") for word in words]

    def _finish(self, word: str) -> str:
        if self.lower_case:
            word = word.lower()
        return HARMLESS.get(word, word)


def read_codes(path: Path) -> BytePairEncoding:
    """Reads the codes of byte-pair encoding.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if the package subword-nmt is missing.
        ValueError: if it is no codes file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"sub-words need the codes of byte-pair encoding, but {path} does not exist; name the file by --bpe-codes, "
            f"or copy {CODES_NAME} from the folder of the training data."
        )
    check_size(path, LARGEST_VOCABULARY, f"copy {CODES_NAME} from the folder of the training data again")
    try:
        return BytePairEncoding(path.read_bytes().decode("utf-8", errors="replace"), str(path))
    except ImportError as error:
        raise ImportError(
            "byte-pair encoding needs the package subword-nmt, which is missing; run 'pip install subword-nmt'."
        ) from error


def save_text_settings(settings: TextSettings, folder: Union[str, Path]) -> None:
    """Writes ``text.json`` into an existing folder."""
    known = [version for version, tokenizers in FORMAT_VERSIONS.items() if settings.tokenizer in tokenizers]
    version = next(version for version in known if not (settings.bpe and "bpe" in _NOT_STORED[version]))
    stored = {name: value for name, value in asdict(settings).items() if name not in _NOT_STORED[version]}
    content = {"format_version": version, **stored}
    with open_atomically(Path(folder) / FILE_NAME) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode("utf-8"))


def load_text_settings(folder: Union[str, Path]) -> TextSettings:
    """Reads the settings of a prepared data set.

    Args:
        folder: the data set; it may have been moved.

    Raises:
        FileNotFoundError: if it has no ``text.json``.
        ValueError: if the file is damaged, incomplete or of another format version.
    """
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"the settings of a data set are in {path}, but there is no such file; make the data with 'muse-plugin "
            f"prepare-text', or copy {FILE_NAME} from the folder of the training data."
        )
    version, content = read_settings(path, FORMAT_VERSIONS, _WAY_OUT)
    kinds: dict[str, Any] = {
        entry.name: entry.type if entry.type in (bool, str) else dict
        for entry in fields(TextSettings)
        if entry.name not in _NOT_STORED[version]
    }
    faults = find_faults(content, {**kinds, "tokenizer": FORMAT_VERSIONS[version]})
    if not faults:
        for name, split in content["splits"].items():
            faults += find_faults(split, _SPLIT_FIELDS, f"splits.{name}.")
        faults += find_faults(content["vocabulary"], _VOCABULARY_FIELDS, "vocabulary.")
    check_faults(path, faults, _WAY_OUT)
    return TextSettings(**content, vocabulary_folder=Path(folder))
