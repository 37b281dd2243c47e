"""Raw sentences to subword tokens and back, with everything needed stored beside the model.

The steps are the usual ones of machine translation: clean the line, Moses punctuation normalisation and tokenisation
(sacremoses), optional lower-casing, joint byte-pair encoding (subword-nmt). ``translate.py`` uses this on both sides
of a model; ``examples/quickstart/prepare_data.py`` uses it to make training data. The one promise that everything
rests on: a line in gives exactly one line out, whatever the line holds.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Union

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.text_streams import clean_line
from muse_plugin.text.byte_pair_encoding import BPE_MARKER, CODES_NAME, BytePairEncoding
from muse_plugin.text.moses_words import MosesWords

FILE_NAME = "text_pipeline.json"
FORMAT_VERSION = 1

# The detokeniser writes the time of day "2 : 30" as "2: 30".
_CLOCK_TIME = re.compile(r"\b(\d{1,2}): (\d\d)\b")

_SETTINGS: dict[str, type] = {
    "format_version": int,
    "source_lang": str,
    "target_lang": str,
    "lower_case": bool,
    "bpe_codes": str,
    "bpe_codes_sha256": str,
    "bpe_merges": int,
}


class TextPipelineError(ValueError):
    """A text pipeline on disk is missing, incomplete, damaged or of another version."""


class TextPipeline:
    """Encodes raw source and target lines as BPE tokens and decodes hypotheses to plain text.

    Args:
        source_lang: two-letter code of the source language; it selects Moses' rules, e.g. its abbreviations.
        target_lang: two-letter code of the target language.
        codes: content of a subword-nmt codes file, starting with its ``#version:`` line.
        lower_case: if true, both sides are lower-cased after tokenisation; the case is not restored by ``decode``.
        where: what to call ``codes`` in messages.

    Raises:
        TextPipelineError: if ``codes`` is not the content of a codes file.
    """

    def __init__(
        self,
        source_lang: str,
        target_lang: str,
        codes: str,
        lower_case: bool = False,
        where: str = "the given BPE codes",
    ) -> None:
        from sacremoses import MosesDetokenizer

        self.source_lang = source_lang
        self.target_lang = target_lang
        self.lower_case = lower_case
        self.codes = codes
        try:
            self._bpe = BytePairEncoding(codes, where)
        except ValueError as error:
            raise TextPipelineError(str(error)) from error
        self.num_merges = self._bpe.num_merges
        self._source_words = MosesWords(source_lang, lower_case)
        self._target_words = MosesWords(target_lang, lower_case)
        self._detokenizer = MosesDetokenizer(lang=target_lang)

    @classmethod
    def learn(
        cls,
        source_lang: str,
        target_lang: str,
        source_lines: Iterable[str],
        target_lines: Iterable[str],
        num_merges: int,
        lower_case: bool = False,
    ) -> "TextPipeline":
        """Learns joint BPE merges on raw training text of both languages.

        Args:
            source_lang: two-letter code of the source language.
            target_lang: two-letter code of the target language.
            source_lines: raw training sentences, one line each.
            target_lines: raw training sentences of the other side.
            num_merges: merge operations to learn at most, at least 1; fewer are found in a very small text.
            lower_case: see the class.

        Raises:
            ValueError: if ``num_merges`` is below 1 or the text has no pair of symbols that occurs twice.
        """
        from subword_nmt.learn_bpe import learn_bpe

        if num_merges < 1:
            raise ValueError(f"num_merges must be at least 1, but got {num_merges}; 1000 to 40000 are usual.")
        counts: dict[str, int] = {}
        for lang, lines in ((source_lang, source_lines), (target_lang, target_lines)):
            words_of = MosesWords(lang, lower_case)
            for line in lines:
                for word in words_of(line):
                    counts[word] = counts.get(word, 0) + 1
        if not any(count > 1 and len(word) > 1 for word, count in counts.items()):
            raise ValueError(
                f"learning BPE needs words that occur more than once, but got {len(counts)} distinct words and none "
                "of them repeats; give the whole training text."
            )
        codes = io.StringIO()
        # The order of equally frequent pairs depends on the order of the words: sorted, the result is reproducible.
        vocabulary = [f"{word} {count}" for word, count in sorted(counts.items())]
        learn_bpe(vocabulary, codes, num_merges, is_dict=True)
        return cls(source_lang, target_lang, codes.getvalue(), lower_case)

    def encode_source(self, line: str) -> str:
        """Raw source text to space-separated BPE tokens on one line; an empty or blank line gives an empty string."""
        return " ".join(self._bpe.split(self._source_words(line)))

    def encode_target(self, line: str) -> str:
        """Raw target text to space-separated BPE tokens on one line; an empty or blank line gives an empty string."""
        return " ".join(self._bpe.split(self._target_words(line)))

    def decode(self, tokens: str) -> str:
        """Space-separated BPE tokens of the target language to plain text on one line."""
        text = (tokens.strip() + " ").replace(BPE_MARKER + " ", "").strip()
        words = text.split()
        return _CLOCK_TIME.sub(r"\1:\2", clean_line(self._detokenizer.detokenize(words))) if words else ""

    def save(self, folder: Union[str, Path]) -> None:
        """Writes ``text_pipeline.json`` and ``bpe.codes`` into a folder, which is made if missing."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "lower_case": self.lower_case,
            "bpe_codes": CODES_NAME,
            "bpe_codes_sha256": hashlib.sha256(self.codes.encode("utf-8")).hexdigest(),
            "bpe_merges": self.num_merges,
        }
        for name, text in ((CODES_NAME, self.codes), (FILE_NAME, json.dumps(settings, indent=2) + "\n")):
            with open_atomically(folder / name) as file:
                file.write(text.encode("utf-8"))

    @classmethod
    def load(cls, folder: Union[str, Path]) -> "TextPipeline":
        """Reads what ``save`` wrote; the folder may have been moved.

        Raises:
            FileNotFoundError: if ``text_pipeline.json`` or the codes file it names is missing.
            TextPipelineError: if either is damaged, incomplete or of another format version.
        """
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(
                f"the text pipeline {path} does not exist; copy {FILE_NAME} and {CODES_NAME} from the folder of the "
                "training data, or make both with TextPipeline.learn(...).save(folder)."
            )
        settings = _read_settings(path)
        codes_path = path.parent / settings["bpe_codes"]
        if not codes_path.is_file():
            raise FileNotFoundError(
                f"the BPE codes {codes_path}, which {path} names, do not exist; copy them from the folder of the "
                "training data."
            )
        content = codes_path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != settings["bpe_codes_sha256"]:
            raise TextPipelineError(
                f"the BPE codes {codes_path} must be those the model was trained with (sha256 "
                f"{settings['bpe_codes_sha256'][:12]}...), but got sha256 {digest[:12]}... ({len(content)} bytes); "
                "copy the file again from the folder of the training data."
            )
        codes = content.decode("utf-8", errors="replace")
        return cls(settings["source_lang"], settings["target_lang"], codes, settings["lower_case"], str(codes_path))


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TextPipelineError(
            f"{path} must be a JSON file, but reading it gave '{error}'; copy it again from the folder of the training "
            "data."
        ) from error
    if not isinstance(settings, dict):
        raise TextPipelineError(f"{path} must hold a JSON object, but got a {type(settings).__name__}; copy it again.")
    version = settings.get("format_version")
    if version != FORMAT_VERSION:
        raise TextPipelineError(
            f"{path} must have format_version {FORMAT_VERSION}, but got {version!r}; make it again with this version "
            "of muse_plugin, or use the version that wrote it."
        )
    faults = [f"'{name}' is missing" for name in _SETTINGS if name not in settings]
    faults += [f"'{name}' is unknown" for name in settings if name not in _SETTINGS]
    faults += [
        f"'{name}' must be {kind.__name__} but is {settings[name]!r}"
        for name, kind in _SETTINGS.items()
        if name in settings and type(settings[name]) is not kind
    ]
    name = settings.get("bpe_codes")
    if isinstance(name, str) and (not name or name != Path(name).name):
        faults.append(f"'bpe_codes' must be a file name without folders but is {name!r}")
    if faults:
        raise TextPipelineError(
            f"{path} must hold exactly {', '.join(_SETTINGS)}, but {'; '.join(faults)}; copy it again from the folder "
            "of the training data."
        )
    return settings
