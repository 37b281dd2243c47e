"""Raw sentences to subword tokens and back, with everything needed stored next to the model.

The steps are the usual ones of machine translation, each of them a setting of its language: clean the line, Moses
punctuation normalisation and tokenisation (sacremoses), lower-casing, and subwords by subword-nmt or SentencePiece.
``muse-plugin translate`` uses this on both sides of a model, the recipes in ``examples/`` write it, and the quickstart
makes its training data with it. The one promise that everything rests on: a line in gives exactly one line out,
whatever the line holds.

``text_pipeline.json`` of version 2 holds ``source`` and ``target``, each with the fields of ``LanguageSettings`` and,
if there are subwords, the ``file`` with its ``sha256``. Version 1 had joint byte-pair encoding and one setting, the
case; it is still read.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Optional, Union

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.json_objects import FileName, check_faults, find_faults, read_settings
from muse_plugin.files.lines import clean_line
from muse_plugin.text.byte_pair_encoding import BPE_MARKER, CODES_NAME, BytePairEncoding, learn_codes
from muse_plugin.text.moses_words import MosesWords
from muse_plugin.text.sentence_pieces import MODEL_NAME, SentencePieces, join_pieces, learn_pieces

FILE_NAME = "text_pipeline.json"
FORMAT_VERSION = 2
TOKENIZERS = ("none", "moses")
SUBWORDS = ("none", "subword-nmt", "sentencepiece")
LEARNABLE = ("none", "bpe", "sentencepiece", "sentencepiece:unigram", "sentencepiece:bpe")

_LARGEST_SUBWORDS = 1 << 28  # bytes; larger files are none of ours: a model of SentencePiece has a few megabytes
_FILE_NAMES = {"subword-nmt": CODES_NAME, "sentencepiece": MODEL_NAME}
_FILE_KINDS = {"subword-nmt": "BPE codes", "sentencepiece": "SentencePiece pieces"}

# The detokeniser writes the time of day "2 : 30" as "2: 30".
_CLOCK_TIME = re.compile(r"\b(\d{1,2}): (\d\d)\b")

_VERSION_1: dict[str, type] = {
    "source_lang": str,
    "target_lang": str,
    "lower_case": bool,
    "bpe_codes": FileName,
    "bpe_codes_sha256": str,
    "bpe_merges": int,
}
_WAY_OUT = "copy it again from the folder of the training data"


@dataclass(frozen=True)
class LanguageSettings:
    """What is done to the text of one language.

    Attributes:
        lang: two-letter code; it selects Moses' rules, e.g. its abbreviations.
        normalize: whether Moses' punctuation normalisation comes first.
        tokenizer: ``moses``, or ``none`` for text that is split at spaces: tokenised already, or for SentencePiece.
        aggressive_hyphens: whether Moses splits words at hyphens (``@-@``).
        lower_case: whether the words are lower-cased; the case is not restored.
        detokenize: whether decoded words are joined by Moses' rules, or by spaces.
        subwords: ``none``, ``subword-nmt`` or ``sentencepiece``.

    Raises:
        ValueError: if a setting is none of these.
    """

    lang: str
    normalize: bool = True
    tokenizer: str = "moses"
    aggressive_hyphens: bool = False
    lower_case: bool = False
    detokenize: bool = True
    subwords: str = "subword-nmt"

    def __post_init__(self) -> None:
        for name, choices in (("tokenizer", TOKENIZERS), ("subwords", SUBWORDS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"the setting '{name}' of a text pipeline must be one of {', '.join(choices)}, but got "
                    f"{getattr(self, name)!r}; choose one."
                )

    def make_words(self) -> MosesWords:
        """Returns what turns a raw line into words."""
        tokenize = self.tokenizer == "moses"
        return MosesWords(self.lang, self.lower_case, self.normalize, tokenize, self.aggressive_hyphens)

    def make_pieces(self, content: bytes, where: str) -> Union[BytePairEncoding, SentencePieces, None]:
        """Returns what cuts words into subwords; None if nothing does.

        Args:
            content: of the file of the subwords.
            where: what to call it in messages.

        Raises:
            ValueError: if ``content`` is none of its kind.
        """
        if self.subwords == "subword-nmt":
            return BytePairEncoding(content.decode("utf-8", errors="replace"), where)
        return SentencePieces(content, where) if self.subwords == "sentencepiece" else None


class _Language:
    """Encodes and decodes text of one language."""

    def __init__(self, settings: LanguageSettings, content: bytes, where: str) -> None:
        self._subwords = settings.subwords
        self._words = settings.make_words()
        self._pieces = settings.make_pieces(content, where)
        self._detokenizer = None
        if settings.detokenize:
            from sacremoses import MosesDetokenizer

            self._detokenizer = MosesDetokenizer(lang=settings.lang)

    def encode(self, line: str) -> str:
        words = self._words(line)
        return " ".join(self._pieces.split(words) if self._pieces is not None else words)

    def decode(self, tokens: str) -> str:
        if self._subwords == "sentencepiece":
            text = join_pieces(tokens.split())
        else:
            text = tokens.strip()
            if self._subwords == "subword-nmt":
                text = (text + " ").replace(BPE_MARKER + " ", "")
        words = text.split()
        if not words or self._detokenizer is None:
            return clean_line(" ".join(words))
        return _CLOCK_TIME.sub(r"\1:\2", clean_line(self._detokenizer.detokenize(words)))


class TextPipeline:
    """Encodes raw source and target lines as subword tokens and decodes hypotheses to plain text.

    Args:
        source: settings of the source language.
        target: settings of the target language.
        source_content: content of the file of its subwords: a subword-nmt codes file, starting with its ``#version:``
            line, or a SentencePiece ``.model``; empty without subwords.
        target_content: the same of the target language; that of the source language (joint subwords) if None.
        where: what to call the two contents in messages.

    Attributes:
        source: settings of the source language.
        target: settings of the target language.
        source_content: content of the file of the source language's subwords.
        target_content: content of the file of the target language's subwords.

    Raises:
        ValueError: if a content is none of its kind.
    """

    def __init__(
        self,
        source: LanguageSettings,
        target: LanguageSettings,
        source_content: bytes = b"",
        target_content: Optional[bytes] = None,
        where: tuple[str, str] = ("the given source subwords", "the given target subwords"),
    ) -> None:
        self.source = source
        self.target = target
        self.source_content = source_content
        self.target_content = source_content if target_content is None else target_content
        self._source = _Language(source, self.source_content, where[0])
        self._target = _Language(target, self.target_content, where[1])

    @property
    def source_lang(self) -> str:
        """Two-letter code of the source language."""
        return self.source.lang

    @property
    def target_lang(self) -> str:
        """Two-letter code of the target language."""
        return self.target.lang

    @classmethod
    def learn(
        cls,
        source_lang: str,
        target_lang: str,
        source_lines: Iterable[str],
        target_lines: Iterable[str],
        size: int,
        lower_case: bool = False,
        subwords: str = "bpe",
        tokenizer: str = "moses",
    ) -> "TextPipeline":
        """Learns joint subwords on raw training text of both languages.

        Args:
            source_lang: two-letter code of the source language.
            target_lang: two-letter code of the target language.
            source_lines: raw training sentences, one line each.
            target_lines: raw training sentences of the other side.
            size: merges of byte-pair encoding or pieces of SentencePiece to learn at most, at least 1; fewer are found
                in a very small text.
            lower_case: whether both languages are lower-cased.
            subwords: see ``learn_subwords``.
            tokenizer: ``moses``, with its normalisation of punctuation, or ``none``, without.

        Raises:
            ValueError: if ``size`` is below 1, a choice is unknown, or the text is too small to learn from.
        """
        moses = tokenizer == "moses"
        source, target = (
            LanguageSettings(lang, moses, tokenizer, False, lower_case, moses, kind_of(subwords))
            for lang in (source_lang, target_lang)
        )
        texts = ((source.make_words(), source_lines), (target.make_words(), target_lines))
        words = (words_of(line) for words_of, lines in texts for line in lines)
        return cls(source, target, learn_subwords(subwords, words, size))

    def encode_source(self, line: str) -> str:
        """Raw source text to space-separated tokens on one line; an empty or blank line gives an empty string."""
        return self._source.encode(line)

    def encode_target(self, line: str) -> str:
        """Raw target text to space-separated tokens on one line; an empty or blank line gives an empty string."""
        return self._target.encode(line)

    def decode(self, tokens: str) -> str:
        """Space-separated tokens of the target language to plain text on one line."""
        return self._target.decode(tokens)

    def save(self, folder: Union[str, Path]) -> None:
        """Writes ``text_pipeline.json`` and the files of its subwords into a folder, which is made if missing."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"source": (self.source, self.source_content), "target": (self.target, self.target_content)}
        is_joint = self.source.subwords == self.target.subwords and self.source_content == self.target_content
        stored: dict[str, Any] = {"format_version": FORMAT_VERSION}
        files: dict[str, bytes] = {}
        for side, (settings, content) in texts.items():
            stored[side] = asdict(settings)
            if settings.subwords != "none":
                name = Path(_FILE_NAMES[settings.subwords])
                file = name.name if is_joint else f"{name.stem}.{side}{name.suffix}"
                files[file] = content
                stored[side] |= {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
        files[FILE_NAME] = (json.dumps(stored, indent=2) + "\n").encode("utf-8")
        for file, content in files.items():
            with open_atomically(folder / file) as stream:
                stream.write(content)

    @classmethod
    def load(cls, folder: Union[str, Path]) -> "TextPipeline":
        """Reads what ``save`` wrote; the folder may have been moved.

        Raises:
            FileNotFoundError: if ``text_pipeline.json`` or a file of subwords that it names is missing.
            ValueError: if one is damaged, incomplete or of another format version.
        """
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(
                f"the text pipeline {path} does not exist; copy {FILE_NAME} and {CODES_NAME} from the folder of the "
                "training data, or name that folder by --data; 'muse-plugin prepare-translation' makes both."
            )
        stored = _read_settings(path)
        sides, contents, places = [], [], []
        for side in (stored["source"], stored["target"]):
            sides.append(LanguageSettings(**{entry.name: side[entry.name] for entry in fields(LanguageSettings)}))
            place = path.parent / side["file"] if "file" in side else path
            contents.append(_read_subwords(place, path, side) if "file" in side else b"")
            places.append(str(place))
        return cls(sides[0], sides[1], contents[0], contents[1], (places[0], places[1]))


def kind_of(subwords: str) -> str:
    """The setting ``subwords`` of a language whose subwords were learned as ``learn_subwords`` was told.

    Raises:
        ValueError: if ``subwords`` is none of ``LEARNABLE``.
    """
    if subwords not in LEARNABLE:
        raise ValueError(f"subwords must be one of {', '.join(LEARNABLE)}, but got {subwords!r}; choose one.")
    return "subword-nmt" if subwords == "bpe" else subwords.partition(":")[0]


def learn_subwords(subwords: str, lines: Iterable[list[str]], size: int) -> bytes:
    """Learns subwords on training text.

    Args:
        subwords: ``bpe`` (subword-nmt), ``sentencepiece`` (its unigram model, also ``sentencepiece:unigram``),
            ``sentencepiece:bpe`` or ``none``.
        lines: the words of each line.
        size: merges or pieces at most.

    Returns:
        The content of the file of the subwords; nothing for ``none``.

    Raises:
        ValueError: if ``size`` is below 1, ``subwords`` is unknown, or the text is too small to learn from.
    """
    kind, _, model_type = subwords.partition(":")
    if kind_of(subwords) == "none":
        return b""
    if kind == "bpe":
        return learn_codes(lines, size)
    return learn_pieces((" ".join(words) for words in lines), size, model_type or "unigram")


def _read_subwords(place: Path, path: Path, side: Mapping[str, Any]) -> bytes:
    kind = _FILE_KINDS[side["subwords"]]
    if not place.is_file():
        raise FileNotFoundError(
            f"the {kind} {place}, which {path} names, do not exist; copy the file from the folder of the training data."
        )
    if (size := place.stat().st_size) > _LARGEST_SUBWORDS:
        raise ValueError(f"{place} must have at most {_LARGEST_SUBWORDS:,} bytes, but has {size:,}; {_WAY_OUT}.")
    content = place.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != side["sha256"]:
        raise ValueError(
            f"the {kind} {place} must be those the model was trained with (sha256 {side['sha256'][:12]}...), but got "
            f"sha256 {digest[:12]}... ({len(content)} bytes); copy the file again from the folder of the training data."
        )
    return content


def _read_settings(path: Path) -> dict[str, Any]:
    """The content of a settings file in the form of version 2."""
    version, stored = read_settings(path, (1, FORMAT_VERSION), _WAY_OUT)
    if version == 1:
        check_faults(path, find_faults(stored, _VERSION_1), _WAY_OUT)
        joint = {"file": stored["bpe_codes"], "sha256": stored["bpe_codes_sha256"]}
        return {
            side: asdict(LanguageSettings(stored[f"{side}_lang"], lower_case=stored["lower_case"])) | joint
            for side in ("source", "target")
        }
    faults = find_faults(stored, dict.fromkeys(("source", "target"), dict))
    for name in ("source", "target"):
        if isinstance(side := stored.get(name), dict):
            kinds: dict[str, Any] = {entry.name: type(entry.default) for entry in fields(LanguageSettings)[1:]}
            kinds |= {"lang": str, "tokenizer": TOKENIZERS, "subwords": SUBWORDS}
            kinds |= {} if side.get("subwords") == "none" else {"file": FileName, "sha256": str}
            faults += find_faults(side, kinds, f"{name}.")
    check_faults(path, faults, _WAY_OUT)
    return stored
