"""Flags that all sentence models share: embeddings, pooling, pairs, classifier. Read ``sentence_model.py`` next."""

import logging
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from muse_plugin.contracts.flag import flag, flag_name, rate, size
from muse_plugin.modules.character_encoder import CHARACTER_ENCODERS
from muse_plugin.modules.classifier import ACTIVATIONS
from muse_plugin.modules.low_rank_attention import CONTEXTS
from muse_plugin.modules.pair_features import PAIR_FEATURES
from muse_plugin.modules.sentence_pooling import POOLINGS
from muse_plugin.modules.word_features import WORD_FEATURES

logger = logging.getLogger(__name__)


@dataclass
class SentenceModelConfig(FairseqDataclass):
    """Flags of the trunk: embed -> encoder -> pool -> (pair features) -> classifier."""

    word_embed_dim: int = size(300, "width of a word's vector")
    word_vectors: Optional[str] = flag(
        None,
        "file of pretrained vectors (GloVe, fastText or word2vec text, also .gz) of --word-embed-dim numbers, for "
        "training; a checkpoint holds them itself",
    )
    freeze_word_vectors: bool = flag(False, "do not train word vectors, neither those of the file nor the others")
    character_ngram_vectors: Optional[str] = flag(
        None, "file of vectors of character n-grams (charNgram): a second, fixed table next to the words'"
    )
    character_ngram_dim: int = size(100, "width of the vectors in --character-ngram-vectors")
    character_encoder: ChoiceEnum(list(CHARACTER_ENCODERS)) = flag(
        "none", "a vector of each word from its characters, learned with the task"
    )
    character_embed_dim: int = size(30, "width of a character's vector")
    character_features: int = size(50, "width of what --character-encoder makes of a word")
    word_features: str = flag(
        "none",
        f"vectors of what words look like, learned with the task: none, or some of {', '.join(WORD_FEATURES)} with "
        "commas between them; they need the characters of the words, not --character-encoder",
    )
    word_feature_dim: int = size(20, "width of each vector of --word-features: case and shape have one, affixes three")
    word_dropout: float = rate(
        0.0, "probability of reading a word as unknown, but for its characters and features, in training"
    )
    input_projection: ChoiceEnum(["always", "needed"]) = flag(
        "always", "a linear map from the embedded words to --encoder-embed-dim: always, or where widths differ (needed)"
    )
    embedding_dropout: float = rate(0.3, "probability of dropping a channel of the embedded words")
    encoder_embed_dim: int = size(300, "width of what the encoder reads, and of a Transformer's states")
    dropout: float = rate(0.1, "probability of dropping a channel within the encoder")
    pooling: ChoiceEnum(list(POOLINGS)) = flag(
        "max",
        "from states to one vector: max, mean, cls (the state of a classification token, which comes first and is "
        "otherwise an ordinary word), cls_max (the mean of both), cls_max_concat (side by side), source_to_token "
        "(attention with a weight per word and channel), source_to_token_max (that and max side by side), "
        "low_rank_attention (heads with a weight per word, of low rank; see --pooling-heads and what follows), "
        "structured_attention (heads that score words by a network of two layers)",
    )
    projection_norms: ChoiceEnum(["none", "all"]) = flag(
        "none",
        "layer norms on the linear maps of --pooling source_to_token, and of distance_attention_network's attention "
        "and gates: none or all",
    )
    pooling_heads: int = size(15, "number of heads of --pooling low_rank_attention and structured_attention")
    pooling_rank: int = size(1, "rank of the matrix of each head of --pooling low_rank_attention")
    pooling_context: ChoiceEnum(list(CONTEXTS)) = flag(
        "learned", "what --pooling low_rank_attention compares words with: learned, or mean of the embedded words"
    )
    pooling_norm: ChoiceEnum(["l2", "none"]) = flag(
        "l2",
        "divide the scores that the heads of --pooling low_rank_attention give a word by their norm: l2 or none; "
        "with one head and l2, weights cannot be learned",
    )
    pooling_norm_epsilon: float = flag(1e-6, "smallest divisor of --pooling-norm l2")
    pooling_hidden_dim: int = size(350, "hidden width of --pooling structured_attention")
    pair_features: ChoiceEnum(list(PAIR_FEATURES)) = flag(
        "product",
        "what the classifier sees of a pair: product is [u; v; |u-v|; u*v], difference_twice [u; v; |u-v|; u-v], "
        "signed_product [u; v; u-v; u*v]",
    )
    classifier_hidden_dim: int = flag(600, "hidden width of the classifier; 0 for a single linear layer")
    classifier_activation: ChoiceEnum(list(ACTIVATIONS)) = flag(
        "leaky_relu", "activation of the classifier's hidden layer"
    )
    classifier_dropout: float = rate(0.3, "probability of dropping a channel before each layer of the classifier")
    classifier_input_dropout: Optional[float] = rate(
        None, "probability of dropping a channel of the classifier's input (default: as --classifier-dropout)"
    )
    crf: bool = flag(False, "tags depend on each other: a conditional random field on top (needs pytorch-crf)")


def find_undivided_heads(cfg: Any) -> list[str]:
    """Says in one sentence if attention heads do not divide the encoder's width."""
    width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
    if heads < 1 or width % heads == 0:
        return []
    return [
        f"--encoder-embed-dim must be divisible by --encoder-attention-heads, but got {width} and {heads}; change one "
        "of them."
    ]


def find_without_effect(cfg: Any, config_class: Any, names: Iterable[str], where: str) -> list[str]:
    """One sentence for each flag that was given although it does nothing.

    Args:
        cfg: flags by name.
        config_class: has their defaults.
        names: of flags that do nothing.
        where: for the sentence: "with ..." or "on ...".
    """
    return [
        f"{flag_name(name)} has no effect {where}, but got {getattr(cfg, name)}; drop it."
        for name in names
        if str(getattr(cfg, name)) != str(config_class.__dataclass_fields__[name].default)
    ]


def warn_without_effect(cfg: Any, config_class: Any, names: Iterable[str], where: str) -> None:
    """Warns of what ``find_without_effect`` finds, where that is no reason to end."""
    for sentence in find_without_effect(cfg, config_class, names, where):
        logger.warning(sentence)


# The poolings that read a flag.
_POOLING_FLAGS = {
    "projection_norms": ("source_to_token", "source_to_token_max"),
    "pooling_heads": ("low_rank_attention", "structured_attention"),
    "pooling_rank": ("low_rank_attention",),
    "pooling_context": ("low_rank_attention",),
    "pooling_norm": ("low_rank_attention",),
    "pooling_norm_epsilon": ("low_rank_attention",),
    "pooling_hidden_dim": ("structured_attention",),
}
_OF_CLASSES = ("pooling", "classifier_hidden_dim", "classifier_activation", "classifier_input_dropout")
# The flags without which another one does nothing.
_PARENTS = {
    "character_ngram_dim": "character_ngram_vectors",
    "character_embed_dim": "character_encoder",
    "character_features": "character_encoder",
    "word_feature_dim": "word_features",
    "classifier_activation": "classifier_hidden_dim",
}


def warn_of_idle_flags(cfg: Any, config_class: Any, tags: bool, pairs: bool, encoder_flags: Container[str]) -> None:
    """Warns of flags of the trunk that were given although the task or other flags leave them nothing to do.

    Args:
        cfg: flags by name.
        config_class: has their defaults.
        tags: the task predicts a tag for each word.
        pairs: the task is on pairs of sentences.
        encoder_flags: flags of the pooling that the encoder reads, too.
    """
    of_pooling = {name: poolings for name, poolings in _POOLING_FLAGS.items() if name not in encoder_flags}
    if tags:
        warn_without_effect(cfg, config_class, [*of_pooling, *_OF_CLASSES], "on a tagger, which does not pool")
    else:
        idle = [name for name, poolings in of_pooling.items() if str(cfg.pooling) not in poolings]
        warn_without_effect(cfg, config_class, idle, f"with --pooling {cfg.pooling}")
    if not pairs:
        warn_without_effect(cfg, config_class, ["pair_features"], "on single sentences")
    for name, parent in _PARENTS.items():
        if str(getattr(cfg, parent)) in ("None", "none", "0"):
            warn_without_effect(cfg, config_class, [name], f"without {flag_name(parent)}")
