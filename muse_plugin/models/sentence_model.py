"""The trunk of all sentence models: embed -> encoder -> pool -> (pair features) -> classifier, or a tag per word.

A paper's model is a class below this with its own ``build_encoder``; everything else is the same, so that results
differ by the encoder alone. Flags are in ``sentence_config.py``, baselines in ``sentence_baselines.py``.
"""

import math
from argparse import Namespace
from typing import Any, NamedTuple, Optional

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from muse_plugin.contracts.flag import find_wrong_values, naming
from muse_plugin.contracts.sentences import check_sentence_task
from muse_plugin.models.attention_bias_flags import EncoderAttentionBiasFlags, warn_of_idle_bias_flags
from muse_plugin.models.muse_config import flat_flags, read_stages
from muse_plugin.models.muse_faults import warn_of_idle_branch_flags
from muse_plugin.models.sentence_config import warn_of_idle_flags, warn_without_effect
from muse_plugin.models.sentence_embedder import build_embedder
from muse_plugin.modules.attention_heads import Heads
from muse_plugin.modules.classifier import build_classifier
from muse_plugin.modules.disagreement import penalize
from muse_plugin.modules.low_rank_attention import SMALLEST_EPSILON
from muse_plugin.modules.padding_mask import mask_padding
from muse_plugin.modules.pair_features import pair_features
from muse_plugin.modules.sentence_pooling import SentencePooling
from muse_plugin.modules.tag_scores import TagScores


class Prediction(NamedTuple):
    """What a sentence model says of a batch.

    Attributes:
        logits: shape (B, classes or numbers), or (B, T, tags) for a tag per word.
        losses: negative log-likelihood of each sentence's tags in nats, shape (B,), where the model computes it itself
            (a conditional random field) and was given the tags; None otherwise.
        penalty: how alike the heads of the pooling are, shape (B,), of a pair the sum of both; None unless asked for.
    """

    logits: Tensor
    losses: Optional[Tensor] = None
    penalty: Optional[Tensor] = None


class SentenceModel(BaseFairseqModel):
    """A classifier of sentences or pairs, or a tagger of words, around an encoder.

    Args:
        cfg: flags, checked.
        embedder: ids to vectors, see ``WordEmbedder``; or a linear map, for a task whose words are vectors already.
        encoder: called with states (B, T, C), lengths (B,) on the CPU, and a padding mask or None; has ``output_size``.
        outputs: number of classes, numbers or tags.
        tags_words: one output per word instead of one per sentence.
        pairs: the input is two sentences.

    Attributes:
        remembered: settings read from files, which the task stores: a checkpoint needs no files.

    Raises:
        ValueError: if a tagger is given pairs, or a conditional random field has no tags.
    """

    config_class: type  # of ``register``
    unread_flags: tuple[str, ...] = ()  # of the trunk, which this encoder does not read
    encoder_flags: tuple[str, ...] = ()  # of the pooling, which this encoder reads, too

    def __init__(
        self,
        cfg: Any,
        embedder: nn.Module,
        encoder: nn.Module,
        outputs: int,
        tags_words: bool = False,
        pairs: bool = False,
    ) -> None:
        super().__init__()
        self.remembered: dict[str, Any] = {}
        self.embedder = embedder
        self.encoder = encoder
        self.cls: Optional[nn.Parameter] = None
        self.pooling: Optional[SentencePooling] = None
        self.classifier: Optional[nn.Module] = None
        self.tag_scores: Optional[TagScores] = None
        self.build_top(cfg, outputs, tags_words, pairs)

    def build_top(self, cfg: Any, outputs: int, tags_words: bool, pairs: bool) -> None:
        """Builds what is on top of the encoder; arguments and errors as of the class."""
        if tags_words and pairs:
            raise ValueError(
                "a tagger reads single sentences, but the data have pairs (input1); remove that folder or use --task "
                "muse_sentence_classification."
            )
        if cfg.crf and not tags_words:
            raise ValueError(
                "--crf makes tags depend on each other, but this task has one label per sentence; drop the flag or use "
                "--task muse_sequence_tagging."
            )
        self.pair_features = str(cfg.pair_features)
        width: int = self.encoder.output_size
        if tags_words:
            with naming("--crf"):
                self.tag_scores = TagScores(width, outputs, cfg.crf, cfg.classifier_dropout)
            return
        self.pooling = SentencePooling(str(cfg.pooling), width, _pooling_settings(cfg))
        if self.pooling.needs_cls:
            self.cls = nn.Parameter(torch.empty(cfg.encoder_embed_dim).normal_(std=cfg.encoder_embed_dim**-0.5))
        self.classifier = build_classifier(
            self.pooling.output_size * (4 if pairs else 1),
            cfg.classifier_hidden_dim,
            outputs,
            str(cfg.classifier_activation),
            cfg.classifier_dropout,
            cfg.classifier_input_dropout,
        )

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """One sentence for each fault of the flags; models add those of their encoder."""
        faults = find_wrong_values(cfg, cls.config_class)
        if cfg.freeze_word_vectors and cfg.word_vectors is None:
            faults.append(
                "--freeze-word-vectors keeps pretrained vectors as they are, but there is no --word-vectors; give a "
                "file or drop the flag."
            )
        if cfg.classifier_hidden_dim < 0:
            faults.append(
                f"--classifier-hidden-dim must be at least 0, but got {cfg.classifier_hidden_dim}; 0 is a single layer."
            )
        divides = str(cfg.pooling) == "low_rank_attention" and str(cfg.pooling_norm) == "l2"
        if divides and not SMALLEST_EPSILON <= cfg.pooling_norm_epsilon < math.inf:
            faults.append(
                f"--pooling-norm-epsilon must be finite and at least {SMALLEST_EPSILON:g}, but got "
                f"{cfg.pooling_norm_epsilon}; --pooling-norm none switches the norm off."
            )
        if str(cfg.character_encoder) == "bilstm" and cfg.character_features % 2 != 0:
            faults.append(
                "--character-features must be even with --character-encoder bilstm, half for each direction, but got "
                f"{cfg.character_features}."
            )
        return faults

    @classmethod
    def read_flags(cls, cfg: Any) -> Namespace:
        """The flags of the model by name.

        Raises:
            ValueError: if they contradict each other; all faults are reported together.
        """
        flat = flat_flags(cfg, cls.config_class)
        faults = cls.find_faults(flat)
        if faults:
            raise ValueError("\n".join(faults))
        return flat

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> nn.Module:
        """Builds the encoder for states of width ``cfg.encoder_embed_dim``."""
        raise NotImplementedError

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "SentenceModel":
        """Builds the model for a sentence task of this package.

        Raises:
            ValueError: if flags contradict each other (all faults are reported together), or do not fit the task.
        """
        flat = cls.read_flags(cfg)
        task = check_sentence_task(task)
        tags = task.predicts == "tags"
        if not task.loads_checkpoint:
            warn_of_idle_flags(flat, cls.config_class, tags, task.pairs, cls.encoder_flags)
            warn_without_effect(flat, cls.config_class, cls.unread_flags, "with this encoder")
            if issubclass(cls.config_class, EncoderAttentionBiasFlags):
                warn_of_idle_bias_flags(flat, cls.config_class, "encoder")
            if hasattr(flat, "encoder_branches"):
                stages = read_stages(flat, "encoder", "sentence")
                warn_of_idle_branch_flags(flat, cls.config_class, "encoder", stages)
        return cls(flat, build_embedder(flat, task), cls.build_encoder(flat), task.outputs, tags, task.pairs)

    def embed(
        self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None
    ) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """What the encoder reads; arguments as in ``encode``.

        Returns:
            Embedded words (B, T', C), zeros at padding; lengths (B,) on the CPU; the padding mask (B, T') or None.
        """
        x = self.embedder(src_tokens) if src_tokens.dim() == 3 else self.embedder(src_tokens, src_characters)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
            src_lengths = src_lengths + 1
        lengths = src_lengths.cpu()  # the length of a sentence decides how it is computed
        mask = None
        if int(lengths.min()) < x.shape[1]:
            mask = mask_padding(src_lengths, x.shape[1])
            x = x.masked_fill(mask.unsqueeze(-1), 0.0)
        return x, lengths, mask

    def encode(
        self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None
    ) -> tuple[Tensor, Optional[Tensor]]:
        """States of sentences.

        Args:
            src_tokens: ids, shape (B, T), or vectors, shape (B, T, D); padding on the right.
            src_lengths: number of words, shape (B,).
            src_characters: see ``WordEmbedder.forward``.

        Returns:
            States (B, T', C), T' = T + 1 if a classification token comes first, and the padding mask (B, T') or None.
        """
        words, lengths, mask = self.embed(src_tokens, src_lengths, src_characters)
        return self.encoder(words, lengths, mask), mask

    def name_positions(self, words: list[str]) -> list[str]:
        """The token at each position that the encoder reads, for a sentence of these words."""
        return words if self.cls is None else ["[CLS]", *words]

    def represent(self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None) -> Tensor:
        """One vector per sentence, shape (B, R); arguments as in ``encode``."""
        return self._pool(src_tokens, src_lengths, src_characters)[0]

    def attend(self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None) -> Heads:
        """What the heads of the pooling look at, (B, m, T), and their vectors; arguments as in ``encode``.

        Raises:
            ValueError: if the pooling has no heads.
        """
        self._check_heads("the attention of heads")
        return self._pool(src_tokens, src_lengths, src_characters)[1]

    def _pool(
        self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor]
    ) -> tuple[Tensor, Optional[Heads]]:
        assert self.pooling is not None, "a tagger has no sentence vector"
        words, lengths, mask = self.embed(src_tokens, src_lengths, src_characters)
        return self.pooling(self.encoder(words, lengths, mask), mask, words)

    def _check_heads(self, what: str) -> None:
        if not self.has_heads:
            have = "pools otherwise" if self.pooling is None else f"has --pooling {self.pooling.kind}"
            raise ValueError(
                f"{what} needs --pooling low_rank_attention or structured_attention, but this model {have}; train one "
                "with such a pooling."
            )

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        src_characters: Optional[Tensor] = None,
        pair_tokens: Optional[Tensor] = None,
        pair_lengths: Optional[Tensor] = None,
        pair_characters: Optional[Tensor] = None,
        target: Optional[Tensor] = None,
        disagreement: Optional[str] = None,
    ) -> Prediction:
        """Scores classes or tags, or predicts numbers.

        Args:
            src_tokens: see ``encode``.
            src_lengths: see ``encode``.
            src_characters: see ``encode``.
            pair_tokens: the second sentence of each pair; None for single sentences.
            pair_lengths: of the second sentences.
            pair_characters: of the second sentences.
            target: tags, shape (B, T), -1 at padding; only for the losses of a conditional random field.
            disagreement: the penalty to compute, see ``penalize``; None for none.

        Raises:
            ValueError: if a penalty is asked for, but the pooling has no heads or the penalty is unknown.
        """
        if self.tag_scores is not None:
            states, _ = self.encode(src_tokens, src_lengths, src_characters)
            logits = self.tag_scores(states)
            if self.tag_scores.crf is None or target is None:
                return Prediction(logits)
            return Prediction(logits, self.tag_scores.losses(logits, src_lengths, target))
        sides = [(src_tokens, src_lengths, src_characters)]
        if pair_tokens is not None and pair_lengths is not None:
            sides.append((pair_tokens, pair_lengths, pair_characters))
        penalty = None
        if disagreement is None:
            vectors = [self.represent(*side) for side in sides]
        else:
            self._check_heads("--disagreement")
            vectors, heads = zip(*(self._pool(*side) for side in sides), strict=True)
            penalty = torch.stack([penalize(one, disagreement) for one in heads]).sum(dim=0)
        logits = self.classifier(*vectors) if len(vectors) == 1 else self.score_pairs(*vectors)
        return Prediction(logits, penalty=penalty)

    def score_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores pairs of sentences of which only their vectors are left.

        Args:
            first: of ``represent``, shape (B, R).
            second: the same.

        Returns:
            Logits, shape (B, outputs).
        """
        assert self.classifier is not None, "a tagger has no sentence vector"
        return self.classifier(pair_features(first, second, self.pair_features))

    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores every sentence of one list with every sentence of another.

        Models whose score falls apart into terms of either sentence compute those once, not once per pair.

        Args:
            first: of ``represent``, shape (N, R).
            second: the same, shape (M, R).

        Returns:
            Logits, shape (N, M, outputs).
        """
        rows, columns = len(first), len(second)
        logits = self.score_pairs(
            first.repeat_interleave(columns, dim=0), second.expand(rows, -1, -1).reshape(rows * columns, -1)
        )
        return logits.view(rows, columns, -1)

    def best_tags(self, logits: Tensor, lengths: Tensor) -> list[list[int]]:
        """The best tags of each sentence's words (Viterbi decoding with a conditional random field).

        Args:
            logits: of ``forward``, shape (B, T, tags).
            lengths: number of words, shape (B,).
        """
        assert self.tag_scores is not None, "only a tagger has tags"
        return self.tag_scores.decode(logits, lengths)

    @property
    def has_heads(self) -> bool:
        """Whether it pools by heads that attend to words."""
        return self.pooling is not None and self.pooling.has_heads


def _pooling_settings(cfg: Any) -> dict[str, dict[str, Any]]:
    """See ``SentencePooling``."""
    return {
        "source_to_token": {"norms": str(cfg.projection_norms) == "all"},
        "low_rank_attention": {
            "num_heads": cfg.pooling_heads,
            "rank": cfg.pooling_rank,
            "context": str(cfg.pooling_context),
            "context_size": cfg.encoder_embed_dim,
            "l2_norm": str(cfg.pooling_norm) == "l2",
            "epsilon": cfg.pooling_norm_epsilon,
        },
        "structured_attention": {"num_heads": cfg.pooling_heads, "hidden_size": cfg.pooling_hidden_dim},
    }
