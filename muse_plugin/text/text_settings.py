"""How raw text became tokens, kept next to data and checkpoints: the settings of each text, and their file.

``text_pipeline.json`` of version 4 holds ``texts``, which are the ``source`` and the ``target`` of translation or the
one ``text`` of sentence models. Each has the fields of ``TextSettings`` and, if there are subwords, their ``file`` with
its ``sha256``. Sentence models' data have their record in ``data``.

Earlier versions are still read: ``text_pipeline.json`` of version 1 (joint byte-pair encoding, and the case as the only
setting) and 2 (translation), ``text.json`` of versions 1 to 3 (sentence models).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.json_objects import FileName, Kind, check_faults, find_faults, read_settings
from muse_plugin.text.byte_pair_encoding import CODES_NAME
from muse_plugin.text.data_record import RECORD_KINDS, DataRecord, find_inner_faults
from muse_plugin.text.sentence_pieces import MODEL_NAME
from muse_plugin.text.subword_file import read_subword_file
from muse_plugin.text.word_pieces import UNKNOWN_PIECE, VOCABULARY_NAME

FILE_NAME = "text_pipeline.json"
EARLIER_NAME = "text.json"
FORMAT_VERSION = 4  # above that of either file before they became one
TOKENIZERS = ("none", "moses")
SUBWORD_FILES = {"subword-nmt": CODES_NAME, "sentencepiece": MODEL_NAME, "wordpiece": VOCABULARY_NAME}
SUBWORDS = ("none", *SUBWORD_FILES)

_FILE_KINDS = {"subword-nmt": "BPE codes", "sentencepiece": "SentencePiece pieces", "wordpiece": "word pieces"}
_JOINT_KINDS: dict[str, Kind] = {  # of version 1
    **{"source_lang": str, "target_lang": str, "lower_case": bool},
    **{"bpe_codes": FileName, "bpe_codes_sha256": str, "bpe_merges": int},
}
_WAY_OUT = "copy it again from the folder of the training data"


@dataclass(frozen=True)
class TextSettings:
    """What is done to a text. Word pieces follow rules of BERT's own: only the case and the last two settings count.

    Attributes:
        lang: two-letter code; it selects Moses' rules, e.g. its abbreviations.
        normalize: whether Moses' punctuation normalisation comes first.
        tokenizer: ``moses``, or ``none`` for text that is split at spaces: tokenised already, or for SentencePiece.
        aggressive_hyphens: whether Moses splits words at hyphens (``@-@``).
        lower_case: whether the words are lower-cased; the case is not restored.
        detokenize: whether decoded words are joined by Moses' rules, or by spaces.
        subwords: ``none``, ``subword-nmt``, ``sentencepiece`` or ``wordpiece``.
        escape: whether Moses writes ``&amp;`` for ``&`` and so on.
        strip_accents: whether accents are taken off before a text is cut into word pieces.
        split_chinese: whether each Chinese character is a word before a text is cut into word pieces.

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
    escape: bool = True  # the fields of version 2 end before this one
    strip_accents: bool = False
    split_chinese: bool = True

    def __post_init__(self) -> None:
        for name, choices in (("tokenizer", TOKENIZERS), ("subwords", SUBWORDS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"the setting '{name}' of a text pipeline must be one of {', '.join(choices)}, but got "
                    f"{getattr(self, name)!r}; choose one."
                )

    @property
    def unknown_piece(self) -> Optional[str]:
        """What an unknown word is cut into: a word of the dictionary; None if there are no word pieces."""
        return UNKNOWN_PIECE if self.subwords == "wordpiece" else None


_FIELDS = tuple(entry.name for entry in fields(TextSettings))
_TEXT_KINDS: dict[str, Any] = {
    **{entry.name: type(entry.default) for entry in fields(TextSettings)},
    **{"lang": str, "tokenizer": TOKENIZERS, "subwords": SUBWORDS},
}


def make_sentence_settings(lang: str, tokenizer: str, subwords: str, **others: bool) -> TextSettings:
    """The settings of a text for sentence models.

    Moses' words are as in translation if subwords follow. They are neither normalised nor escaped otherwise, so that
    ``'s`` and ``&`` stay what they are in tables of pretrained vectors.
    """
    moses = tokenizer == "moses"
    as_in_translation = moses and subwords != "none"
    return TextSettings(
        lang,
        normalize=as_in_translation,
        tokenizer=tokenizer,
        escape=as_in_translation,
        detokenize=moses,
        subwords=subwords,
        **others,
    )


class StoredText(NamedTuple):
    """A text as a file describes it.

    Attributes:
        settings: what is done to it.
        path: the file.
        file: name of the file of the subwords, in the same folder; nothing without subwords.
        sha256: of that file; nothing if an earlier version did not keep it.
    """

    settings: TextSettings
    path: Path = Path()
    file: str = ""
    sha256: str = ""

    @property
    def place(self) -> Path:
        """The file of the subwords; the file of the settings without subwords."""
        return self.path.with_name(self.file) if self.file else self.path

    def read_subwords(self) -> bytes:
        """Reads the file of the subwords; nothing without subwords.

        Raises:
            FileNotFoundError: if it is missing.
            ValueError: if it is another file, or too large.
        """
        if not self.file:
            return b""
        place, kind = self.place, _FILE_KINDS[self.settings.subwords]
        if not place.is_file():
            raise FileNotFoundError(
                f"the {kind} {place}, which {self.path} names, do not exist; copy the file from the folder of the "
                "training data."
            )
        content = read_subword_file(place, _WAY_OUT)
        digest = hashlib.sha256(content).hexdigest()
        if self.sha256 and digest != self.sha256:
            wanted = ascii(self.sha256[:12])[1:-1]  # whatever the file says, on one line
            raise ValueError(
                f"the {kind} {place} must be those the model was trained with (sha256 {wanted}...), but got "
                f"sha256 {digest[:12]}... ({len(content)} bytes); copy the file again from the folder of the training "
                "data."
            )
        return content


def save_texts(
    folder: Union[str, Path], texts: Mapping[str, tuple[TextSettings, bytes]], record: Optional[DataRecord] = None
) -> None:
    """Writes ``text_pipeline.json`` and, before it, the files of the subwords into an existing folder.

    Args:
        folder: where to.
        texts: settings and content of the file of subwords of ``source`` and ``target``, or of ``text``.
        record: of the data set; None for translation.
    """
    is_joint = len({(settings.subwords, content) for settings, content in texts.values()}) == 1
    described: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for name, (settings, content) in texts.items():
        described[name] = asdict(settings)
        if settings.subwords != "none":
            whole = Path(SUBWORD_FILES[settings.subwords])
            file = whole.name if is_joint else f"{whole.stem}.{name}{whole.suffix}"
            files[file] = content
            described[name] |= {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
    stored = {"format_version": FORMAT_VERSION, "texts": described, **({"data": asdict(record)} if record else {})}
    files[FILE_NAME] = (json.dumps(stored, indent=2) + "\n").encode("utf-8")
    for file, content in files.items():
        with open_atomically(Path(folder) / file) as stream:
            stream.write(content)


def load_text_settings(folder: Union[str, Path]) -> tuple[StoredText, DataRecord]:
    """Reads how a data set of sentences was made; the folder may have been moved.

    Raises:
        FileNotFoundError: if it has neither ``text_pipeline.json`` nor, of an earlier version, ``text.json``.
        ValueError: if the file is damaged, incomplete, of another format version, or of a translation model.
    """
    path = find_sentence_settings(folder)
    if not path.is_file():
        raise FileNotFoundError(
            f"the settings of a data set are in {path}, but there is no such file; make the data with 'muse-plugin "
            f"prepare-text', or copy {FILE_NAME} from the folder of the training data."
        )
    texts, record = load_texts(path, ("text",))
    assert record is not None
    return texts["text"], record


def find_sentence_settings(folder: Union[str, Path]) -> Path:
    """The file with the settings of a data set of sentences, or where it must be if there is none."""
    path, earlier = Path(folder) / FILE_NAME, Path(folder) / EARLIER_NAME
    return earlier if earlier.is_file() and not path.is_file() else path


def load_texts(path: Path, names: tuple[str, ...]) -> tuple[dict[str, StoredText], Optional[DataRecord]]:
    """Reads a file of any version.

    Args:
        path: the file; its name decides what its version means.
        names: of the texts that it must have.

    Returns:
        The texts by name, and the record if they are of a data set of sentences.

    Raises:
        ValueError: if the file is damaged, incomplete, of another format version, or has other texts.
    """
    known, prefix = _FIELDS, "texts."
    if path.name == EARLIER_NAME:
        content = _upgrade_sentence_data(path)
    else:
        version, content = read_settings(path, (1, 2, FORMAT_VERSION), _WAY_OUT)
        if version == 1:
            content = _upgrade_joint(path, content)
        elif version == 2:
            known, prefix, content = _FIELDS[: _FIELDS.index("escape")], "", {"texts": content}
    texts = content.get("texts")
    is_of_sentences = isinstance(texts, dict) and "text" in texts
    check_faults(path, find_faults(content, {"texts": dict, **({"data": dict} if is_of_sentences else {})}), _WAY_OUT)
    check_faults(path, _find_text_faults(content["texts"], is_of_sentences, known, prefix), _WAY_OUT)
    if is_of_sentences:
        faults = find_faults(content["data"], RECORD_KINDS, "data.")
        check_faults(path, faults or find_inner_faults(content["data"], "data."), _WAY_OUT)
    if {*content["texts"]} != {*names}:
        raise ValueError(
            f"{path} must have the settings of {' and '.join(names)}, but has those of {' and '.join(texts)}; name the "
            f"folder of the model's own data, or use muse-plugin {'predict' if is_of_sentences else 'translate'}."
        )
    stored = {
        name: StoredText(
            TextSettings(**{field: text[field] for field in known}), path, text.get("file", ""), text.get("sha256", "")
        )
        for name, text in content["texts"].items()
    }
    return stored, DataRecord(**content["data"]) if is_of_sentences else None


def _find_text_faults(texts: dict[str, Any], is_of_sentences: bool, known: tuple[str, ...], prefix: str) -> list[str]:
    names = ("text",) if is_of_sentences else ("source", "target")
    faults = find_faults(texts, dict.fromkeys(names, dict), prefix)
    for name in names:
        if isinstance(text := texts.get(name), dict):
            kinds = {field: _TEXT_KINDS[field] for field in known}
            kinds |= {} if text.get("subwords") == "none" else {"file": FileName, "sha256": str}
            faults += find_faults(text, kinds, f"{prefix}{name}.")
    return faults


def _upgrade_joint(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content of ``text_pipeline.json`` of version 1 in the form of now."""
    check_faults(path, find_faults(content, _JOINT_KINDS), _WAY_OUT)
    subwords = {"file": content["bpe_codes"], "sha256": content["bpe_codes_sha256"]}
    sides = {
        name: TextSettings(content[f"{name}_lang"], lower_case=content["lower_case"]) for name in ("source", "target")
    }
    return {"texts": {name: asdict(settings) | subwords for name, settings in sides.items()}}


def _upgrade_sentence_data(path: Path) -> dict[str, Any]:
    """The content of ``text.json`` in the form of now, but for the hash of the subwords, which it did not have."""
    version, content = read_settings(path, (1, 2, 3), _WAY_OUT)
    kinds: dict[str, Kind] = {"lower_case": bool, "tokenizer": TOKENIZERS, "language": str, **RECORD_KINDS}
    if version > 1:
        kinds |= {"tokenizer": (*TOKENIZERS, "wordpiece"), "strip_accents": bool, "split_chinese": bool}
    if version > 2:
        kinds["bpe"] = bool
    check_faults(path, find_faults(content, kinds) or find_inner_faults(content, ""), _WAY_OUT)
    tokenizer, subwords = content["tokenizer"], "subword-nmt" if content.get("bpe") else "none"
    if tokenizer == "wordpiece":
        tokenizer, subwords = "none", "wordpiece"
    own = {name: content[name] for name in ("lower_case", "strip_accents", "split_chinese") if name in content}
    text = asdict(make_sentence_settings(content["language"], tokenizer, subwords, **own))
    text |= {} if subwords == "none" else {"file": SUBWORD_FILES[subwords], "sha256": ""}
    return {"texts": {"text": text}, "data": {name: content[name] for name in RECORD_KINDS}}
