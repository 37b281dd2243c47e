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
from muse_plugin.files.lines import clean_line
from muse_plugin.text.byte_pair_encoding import BPE_MARKER, CODES_NAME, BytePairEncoding, learn_codes
from muse_plugin.text.moses_words import MosesWords
from muse_plugin.text.sentence_pieces import MODEL_NAME, SentencePieces, join_pieces, learn_pieces

FILE_NAME = "text_pipeline.json"
FORMAT_VERSION = 2
TOKENIZERS = ("none", "moses")
SUBWORDS = ("none", "subword-nmt", "sentencepiece")
LEARNABLE = ("none", "bpe", "sentencepiece", "sentencepiece:unigram", "sentencepiece:bpe")

# Larger files are none of ours: a model of SentencePiece has a few megabytes.
_LARGEST_SETTINGS = 1 << 20  # bytes
_LARGEST_SUBWORDS = 1 << 28
_FILE_NAMES = {"subword-nmt": CODES_NAME, "sentencepiece": MODEL_NAME}
_FILE_KINDS = {"subword-nmt": "BPE codes", "sentencepiece": "SentencePiece pieces"}

# The detokeniser writes the time of day "2 : 30" as "2: 30".
_CLOCK_TIME = re.compile(r"\b(\d{1,2}): (\d\d)\b")

_VERSION_1: dict[str, type] = {
    "format_version": int,
    "source_lang": str,
    "target_lang": str,
    "lower_case": bool,
    "bpe_codes": str,
    "bpe_codes_sha256": str,
    "bpe_merges": int,
}
_VERSION_2: dict[str, type] = {"format_version": int, "source": dict, "target": dict}


class TextPipelineError(ValueError):
    """A text pipeline on disk is missing, incomplete, damaged or of another version."""


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
        TextPipelineError: if a setting is none of these.
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
                raise TextPipelineError(
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
            TextPipelineError: if ``content`` is none of its kind.
        """
        try:
            if self.subwords == "subword-nmt":
                return BytePairEncoding(content.decode("utf-8", errors="replace"), where)
            return SentencePieces(content, where) if self.subwords == "sentencepiece" else None
        except ValueError as error:
            raise TextPipelineError(str(error)) from error


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
        TextPipelineError: if a content is none of its kind.
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
            TextPipelineError: if one is damaged, incomplete or of another format version.
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
    content = _read_bounded(place, _LARGEST_SUBWORDS)
    digest = hashlib.sha256(content).hexdigest()
    if digest != side["sha256"]:
        raise TextPipelineError(
            f"the {kind} {place} must be those the model was trained with (sha256 {side['sha256'][:12]}...), but got "
            f"sha256 {digest[:12]}... ({len(content)} bytes); copy the file again from the folder of the training data."
        )
    return content


def _read_bounded(path: Path, most: int) -> bytes:
    size = path.stat().st_size
    if size > most:
        raise TextPipelineError(f"{path} must have at most {most} bytes, but has {size}; copy the file again.")
    return path.read_bytes()


def _read_settings(path: Path) -> dict[str, Any]:
    """The content of a settings file in the form of version 2."""
    content = _read_bounded(path, _LARGEST_SETTINGS)
    try:
        stored = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TextPipelineError(
            f"{path} must be a JSON file, but reading it gave '{error}'; copy it again from the folder of the training "
            "data."
        ) from error
    if not isinstance(stored, dict):
        raise TextPipelineError(f"{path} must hold a JSON object, but got a {type(stored).__name__}; copy it again.")
    version = stored.get("format_version")
    if type(version) is not int or version not in (1, FORMAT_VERSION):
        raise TextPipelineError(
            f"{path} must have format_version 1 or {FORMAT_VERSION}, but got {version!r}; make it again with this "
            "version of muse_plugin, or use the version that wrote it."
        )
    if version == 1:
        wanted = _VERSION_1
        faults = _find_faults(stored, wanted, "", "bpe_codes")
    else:
        wanted = {**_VERSION_2, **{entry.name: type(entry.default) for entry in fields(LanguageSettings)[1:]}}
        faults = _find_faults(stored, _VERSION_2, "", None)
        for name in ("source", "target"):
            side = stored.get(name)
            if isinstance(side, dict):
                faults += _find_side_faults(side, f"{name}.")
    if faults:
        raise TextPipelineError(
            f"{path} must hold exactly {', '.join(wanted)}, but {'; '.join(faults)}; copy it again from the folder "
            "of the training data."
        )
    if version == 1:
        joint = {"file": stored["bpe_codes"], "sha256": stored["bpe_codes_sha256"]}
        source, target = (
            asdict(LanguageSettings(stored[name], lower_case=stored["lower_case"])) | joint
            for name in ("source_lang", "target_lang")
        )
        return {"source": source, "target": target}
    return stored


def _find_side_faults(side: dict[str, Any], prefix: str) -> list[str]:
    kinds: dict[str, type] = {"lang": str}
    kinds |= {entry.name: type(entry.default) for entry in fields(LanguageSettings)[1:]}
    if side.get("subwords") != "none":
        kinds |= {"file": str, "sha256": str}
    faults = _find_faults(side, kinds, prefix, "file")
    for name, choices in (("tokenizer", TOKENIZERS), ("subwords", SUBWORDS)):
        if isinstance(side.get(name), str) and side[name] not in choices:
            faults.append(f"'{prefix}{name}' must be one of {', '.join(choices)} but is {side[name]!r}")
    return faults


def _find_faults(stored: dict[str, Any], kinds: Mapping[str, type], prefix: str, file: Optional[str]) -> list[str]:
    """Says what is missing, unknown or of a wrong kind, and whether the entry ``file`` names something elsewhere."""
    faults = [f"'{prefix}{name}' is missing" for name in kinds if name not in stored]
    faults += [f"'{prefix}{name}' is unknown" for name in stored if name not in kinds]
    faults += [
        f"'{prefix}{name}' must be {kind.__name__} but is {stored[name]!r}"
        for name, kind in kinds.items()
        if name in stored and type(stored[name]) is not kind
    ]
    name = stored.get(file) if file is not None else None
    if isinstance(name, str) and (not name or name != Path(name).name or "\0" in name):
        faults.append(f"'{prefix}{file}' must be a file name without folders but is {name!r}")
    return faults
