"""From the flags of sentence models to their word embeddings: word vectors, those of n-grams, characters."""

import logging
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from muse_plugin.contracts.flag import naming
from muse_plugin.contracts.sentences import TaskOfSentences
from muse_plugin.modules.character_encoder import CharacterEncoder
from muse_plugin.modules.word_embedder import WordEmbedder
from muse_plugin.modules.word_features import WordFeatures
from muse_plugin.pretrained.word_vectors import WidthError, WordVectors, average_character_ngrams, read_word_vectors

logger = logging.getLogger(__name__)

_LEARNED_DEVIATION = 0.1  # at the start, of words' vectors that are learned with the task
_UNKNOWN_RANGE = 0.05  # words without a pretrained vector start within this distance of zero


def build_embedder(cfg: Namespace, task: TaskOfSentences) -> nn.Module:
    """A ``WordEmbedder``, which starts with the vectors of the files that flags name; a linear map of given vectors.

    Args:
        cfg: flags of ``SentenceModelConfig``.
        task: has the dictionaries of words and characters; where it loads a checkpoint, no file of vectors is read.

    Raises:
        FileNotFoundError: if a file of vectors does not exist.
        ValueError: if it is damaged, of another width or has none of the words, or the data have no characters.
    """
    if task.vector_size:
        return nn.Linear(task.vector_size, cfg.encoder_embed_dim)
    dictionary = task.source_dictionary
    # A checkpoint brings its vectors: the files need not be there any more.
    reads = not task.loads_checkpoint
    words = nn.Embedding(len(dictionary), cfg.word_embed_dim, dictionary.pad())
    nn.init.normal_(words.weight, std=_LEARNED_DEVIATION)
    if cfg.word_vectors is not None:
        nn.init.uniform_(words.weight, -_UNKNOWN_RANGE, _UNKNOWN_RANGE)
        if reads:
            _fill(words, read_word_vectors, cfg.word_vectors, dictionary, "--word-vectors", "--word-embed-dim")
    with torch.no_grad():
        words.weight[dictionary.pad()].zero_()
    words.weight.requires_grad_(not cfg.freeze_word_vectors)
    extra = None
    if cfg.character_ngram_vectors is not None:
        extra = nn.Embedding(len(dictionary), cfg.character_ngram_dim, dictionary.pad())
        nn.init.zeros_(extra.weight)
        if reads:
            path, flags = cfg.character_ngram_vectors, ("--character-ngram-vectors", "--character-ngram-dim")
            _fill(extra, average_character_ngrams, path, dictionary, *flags)
        extra.weight.requires_grad_(False)
    characters = features = None
    kinds = [] if str(cfg.word_features) == "none" else str(cfg.word_features).split(",")
    if task.character_dictionary is None and (kinds or str(cfg.character_encoder) != "none"):
        flag = "--word-features" if kinds else "--character-encoder"
        raise ValueError(
            f"{flag} reads the characters of every word, but the data have none; prepare them with "
            f"muse-plugin prepare-text --characters, or train with {flag} none."
        )
    if kinds:
        symbols = task.character_dictionary.symbols
        with naming("--word-features"):
            features = WordFeatures(kinds, symbols, task.character_dictionary.pad(), cfg.word_feature_dim)
    if str(cfg.character_encoder) != "none":
        characters = CharacterEncoder(
            str(cfg.character_encoder),
            len(task.character_dictionary),
            task.character_dictionary.pad(),
            cfg.character_embed_dim,
            cfg.character_features,
            cfg.embedding_dropout,
        )
    return WordEmbedder(
        words,
        cfg.encoder_embed_dim,
        extra,
        characters,
        cfg.embedding_dropout,
        always_project=str(cfg.input_projection) == "always",
        features=features,
        word_dropout=cfg.word_dropout,
        unknown_idx=task.unknown_index,
    )


def _fill(
    table: nn.Embedding,
    read_vectors: Callable[..., WordVectors],
    path: str,
    dictionary: Any,
    flag: str,
    width_flag: str,
) -> None:
    """Copies the vectors that a file has of the dictionary's words, and says of how many."""
    first = dictionary.nspecial  # before it are fairseq's symbols, behind the words those that fill the dictionary up
    words = {w: index for w, index in dictionary.indices.items() if index >= first and not w.startswith("madeupword")}
    flag = f"{flag} {path}"
    try:
        read = read_vectors(path, words, table.embedding_dim)
    except WidthError as error:
        raise ValueError(f"{flag} must be as wide as {width_flag} {table.embedding_dim}: {error}") from error
    found = read.found.tolist()
    missing = [word for word, index in words.items() if not found[index]]
    if len(missing) == len(words):
        raise ValueError(
            f"{flag} must have vectors of words of the data, but has none of their {len(words):,} words, such as "
            f"{' '.join(missing[:5])}; is its language, case and tokenisation that of the data?"
        )
    logger.info(
        f"{flag}: vectors for {len(words) - len(missing):,} of {len(words):,} words; missing are "
        f"{' '.join(missing[:10]) or 'none'}"
    )
    with torch.no_grad():
        rows = read.found.nonzero().squeeze(1)
        table.weight[rows] = read.vectors[rows].to(table.weight.dtype)
