"""Word vectors learned from the data's own text by gensim: word2vec (Mikolov et al. 2013, arXiv:1310.4546), fastText.

The same text and seed give the same numbers: gensim gets one worker.
"""

import argparse
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from muse_plugin_command.flags.prepare_text import LONGEST_TEXT, SETTINGS, flag_of

_WIDEST = 10_000
_UNKNOWN = "<unk>"


def choose_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The value of each of ``SETTINGS``.

    Args:
        args: flags of ``muse-plugin prepare-text``, those that are not given None.

    Raises:
        ValueError: if one is out of range, or ``--word2vec`` is.
    """
    if not 1 <= args.word2vec <= _WIDEST:
        raise ValueError(f"--word2vec must be at least 1 and at most {_WIDEST:,}, but got {args.word2vec}.")
    settings = {}
    for name, setting in SETTINGS.items():
        given = getattr(args, f"word2vec_{name}")
        value = settings[name] = setting.default if given is None else given
        if not isinstance(value, str) and not setting.least <= value < setting.below:
            raise ValueError(
                f"{flag_of(name)} must be at least {setting.least} and less than {setting.below:,}, but got {value}."
            )
    return settings


def import_gensim() -> Any:
    """Imports gensim's models.

    Raises:
        ImportError: if gensim is missing.
    """
    try:
        import gensim.models
    except ImportError as error:
        raise ImportError(
            "learning word vectors needs the package gensim, which is missing; run 'pip install gensim' (up to Python "
            "3.13)."
        ) from error
    return gensim.models


def train_word_vectors(
    iterate_texts: Callable[[], Iterable[list[str]]], width: int, settings: dict[str, Any], buckets: int = 0
) -> Any:
    """Learns vectors.

    Args:
        iterate_texts: gives the words of each text, from the start at every call; ``<unk>`` in them is left out.
        width: DIM, numbers in a vector.
        settings: a value for each key of ``SETTINGS``.
        buckets: rows for the n-grams of words (fastText, Bojanowski et al. 2017, arXiv:1607.04606); 0 for words alone.

    Returns:
        gensim's model: words with a vector are ``wv.index_to_key``, the most frequent first, their vectors
        ``wv.vectors``, float32, shape (words, DIM); ``corpus_total_words`` of the texts were read.

    Raises:
        ImportError: if gensim is missing.
        ValueError: if no word is frequent enough.
    """
    models, texts = import_gensim(), _Texts(iterate_texts)
    options = {name: value for name, value in settings.items() if name != "algorithm"}
    options |= {"sg": int(settings["algorithm"] == "skip-gram"), "workers": 1}
    with _silence_gensim():
        if buckets > 0:
            model = models.FastText(vector_size=width, bucket=buckets, **options)
        else:
            model = models.Word2Vec(vector_size=width, **options)
        model.build_vocab(texts)
        if len(model.wv) == 0:
            raise ValueError(
                f"vectors are learned for words that occur at least {settings['min_count']} times, but the "
                f"{model.corpus_total_words} words of the text have none; lower --word2vec-min-count (of the recipes' "
                "vectors.sh: MIN_COUNT) or give more text, such as --word2vec-text."
            )
        model.train(texts, total_examples=model.corpus_count, epochs=model.epochs)
    return model


class _Texts:
    """Texts that can be read again, see ``iterate_pieces``."""

    def __init__(self, iterate_texts: Callable[[], Iterable[list[str]]]) -> None:
        self._iterate_texts = iterate_texts

    def __iter__(self) -> Iterator[list[str]]:
        return iterate_pieces(self._iterate_texts())


def iterate_pieces(texts: Iterable[list[str]]) -> Iterator[list[str]]:
    """The words of texts but for ``<unk>``, in pieces that gensim reads whole."""
    for text in texts:
        words = [word for word in text if word != _UNKNOWN]
        for start in range(0, len(words), LONGEST_TEXT):
            yield words[start : start + LONGEST_TEXT]


@contextlib.contextmanager
def _silence_gensim() -> Iterator[None]:
    """Keeps gensim from logging what our report says."""
    logger = logging.getLogger("gensim")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
