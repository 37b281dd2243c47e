"""The text of a translation model: raw source and target lines to tokens, and hypotheses to plain text.

``muse-plugin translate`` uses this on both sides of a model, the recipes in ``examples/`` write it, and the quickstart
makes its training data with it. The one promise that everything rests on: a line in gives exactly one line out,
whatever the line holds.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Union

from muse_plugin.text.byte_pair_encoding import learn_codes
from muse_plugin.text.sentence_pieces import learn_pieces
from muse_plugin.text.text_settings import FILE_NAME, TextSettings, load_texts, save_texts
from muse_plugin.text.tokenizer import Tokenizer

LEARNABLE = ("none", "bpe", "sentencepiece", "sentencepiece:unigram", "sentencepiece:bpe")


class TextPipeline(NamedTuple):
    """Encodes raw source and target lines as subword tokens and decodes hypotheses to plain text.

    Attributes:
        source: of the source language.
        target: of the target language.
    """

    source: Tokenizer
    target: Tokenizer

    @property
    def source_lang(self) -> str:
        """Two-letter code of the source language."""
        return self.source.settings.lang

    @property
    def target_lang(self) -> str:
        """Two-letter code of the target language."""
        return self.target.settings.lang

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
            TextSettings(
                lang,
                normalize=moses,
                tokenizer=tokenizer,
                lower_case=lower_case,
                detokenize=moses,
                subwords=kind_of(subwords),
            )
            for lang in (source_lang, target_lang)
        )
        texts = ((make_word_splitter(source), source_lines), (make_word_splitter(target), target_lines))
        words = (splitter.split(line) for splitter, lines in texts for line in lines)
        content = learn_subwords(subwords, words, size)
        return cls(Tokenizer(source, content), Tokenizer(target, content))

    def encode_source(self, line: str) -> str:
        """Raw source text to space-separated tokens on one line; an empty or blank line gives an empty string."""
        return " ".join(self.source.split(line))

    def encode_target(self, line: str) -> str:
        """Raw target text to space-separated tokens on one line; an empty or blank line gives an empty string."""
        return " ".join(self.target.split(line))

    def decode(self, tokens: str) -> str:
        """Space-separated tokens of the target language to plain text on one line."""
        return self.target.join(tokens)

    def save(self, folder: Union[str, Path]) -> None:
        """Writes ``text_pipeline.json`` and the files of its subwords into a folder, which is made if missing."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        sides = self._asdict().items()
        save_texts(folder, {name: (tokenizer.settings, tokenizer.content) for name, tokenizer in sides})

    @classmethod
    def load(cls, folder: Union[str, Path]) -> "TextPipeline":
        """Reads what ``save`` wrote; the folder may have been moved.

        Raises:
            FileNotFoundError: if ``text_pipeline.json`` or a file of subwords that it names is missing.
            ValueError: if one is damaged, incomplete, of another format version, or of a sentence model.
        """
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(
                f"the text pipeline {path} does not exist; copy {FILE_NAME} and the file of its subwords from the "
                "folder of the training data, or name that folder by --data; if it has none, 'muse-plugin "
                "text-pipeline' makes one from the BPE codes or the SentencePiece model that cut the training text."
            )
        texts, _ = load_texts(path, cls._fields)
        return cls(**{name: Tokenizer.load(text) for name, text in texts.items()})


def make_word_splitter(settings: TextSettings) -> Tokenizer:
    """What splits text into the words that are then cut into subwords."""
    return Tokenizer(replace(settings, subwords="none"))


def kind_of(subwords: str) -> str:
    """The setting ``subwords`` of a text whose subwords were learned as ``learn_subwords`` was told.

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
