"""Head-wise match: sentences are encoded apart and compared head by head, in every layer.

Source: Wang et al., "Multi-level Head-wise Match and Aggregation in Transformer for Textual Sequence Matching", AAAI
2020. The comparison is ``modules/head_match.py``. The encoders are in ``head_wise_match_bert.py`` (as in the paper),
``head_wise_match_trained.py`` (those of this package, trained with the task) and ``head_wise_match_translation.py``.
"""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from torch import Tensor, nn

from muse_plugin.contracts.flag import flag, rate
from muse_plugin.contracts.sentences import TaskOfSentences, check_sentence_task
from muse_plugin.models.layer_numbers import parse_layer_numbers
from muse_plugin.models.sentence_config import find_without_effect, warn_without_effect
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.attends import HeadSource, find_head_sources, record_heads
from muse_plugin.modules.head_match import AGGREGATIONS, MATCHES, HeadWiseMatch, VectorMatch
from muse_plugin.modules.later_parameters import find_later
from muse_plugin.modules.token_reductions import REDUCTIONS

CLASSIC = "classic"
# Flags of the trunk that head-wise match has no use for.
_WITHOUT_EFFECT = (
    "pooling",
    "projection_norms",
    "pair_features",
    "classifier_hidden_dim",
    "classifier_activation",
    "classifier_dropout",
    "classifier_input_dropout",
)
_SINGLE = (
    "head-wise match compares two sentences, but this task has single ones; prepare pairs (input0 and input1) and use "
    "--task head_wise_match."
)


@dataclass
class HeadMatchFlags(FairseqDataclass):
    """Flags of the comparison. Defaults: the best row of the paper's Table 4."""

    match: ChoiceEnum([*MATCHES, CLASSIC]) = flag(
        "element",
        "how heads are compared: element (a vector of [s; t; s-t; s*t]), cosine, bilinear; classic compares no heads "
        "but the final states, pooled as --head-pooling says, by element",
    )
    match_aggregation: ChoiceEnum(list(AGGREGATIONS)) = flag(
        "max", "of heads, and of layers: max or concat; cosine and bilinear need concat"
    )
    match_levels: str = flag(
        "all", "layers whose heads are compared: all (multi-level), last (single-level), or numbers from 0, e.g. 3,7,11"
    )
    match_no_hierarchy: bool = flag(False, "heads of all layers are aggregated at once instead of layer by layer")
    match_per_layer: bool = flag(False, "each layer has its own parameters of match and aggregation over heads")
    match_dim: int = flag(0, "width of what a comparison gives (default: 0, that of a head; classic: of the states)")
    match_dropout: float = rate(0.1, "probability of dropping a channel of head vectors and hidden layers of the match")
    head_pooling: ChoiceEnum(list(REDUCTIONS)) = flag(
        "cls",
        "of the outputs of a head at all words, what stands for the sentence: cls (that at the classification token, "
        "as published), max or mean (over words)",
    )

    def _get_all_attributes(self) -> list[str]:
        """What fairseq makes flags of: not of what a checkpoint remembers."""
        return [name for name in super()._get_all_attributes() if not self._get_meta(name, "remembered")]


class HeadWiseMatchBase(SentenceModel):
    """A model of pairs whose sentences meet in their head vectors only.

    ``represent`` gives what has to be kept of a sentence: the vectors of all compared heads, layer by layer, (B, L * H
    * D); with ``--match classic`` the final states, pooled as ``--head-pooling`` says.

    Attributes:
        learns_cls: whether that token is learned where it is needed; else the encoder has its own, or none.
    """

    learns_cls = True

    def build_top(self, cfg: Any, outputs: int, tags_words: bool, pairs: bool) -> None:
        """See ``SentenceModel.build_top``.

        Raises:
            ValueError: if the input is no pair, or the encoder has no heads, or layers that do not exist are chosen.
        """
        if tags_words or not pairs:
            raise ValueError(_SINGLE)
        self.sources = find_head_sources(self.encoder)
        self.classic = str(cfg.match) == CLASSIC
        self.head_pooling = str(cfg.head_pooling)
        dim = cfg.match_dim or None
        if self.classic:
            idle = ("match_levels", "match_aggregation", "match_no_hierarchy", "match_per_layer")
            warn_without_effect(cfg, HeadMatchFlags, idle, f"with --match {CLASSIC}")
            self.levels: list[HeadSource] = []
            self.matcher = VectorMatch(self.encoder.output_size, outputs, dim, cfg.match_dropout)
        else:
            self.levels = _choose_levels(self.sources, str(cfg.match_levels))
            self.matcher = HeadWiseMatch(
                len(self.levels),
                self.levels[0].num_heads,
                self.levels[0].head_dim,
                outputs,
                str(cfg.match),
                str(cfg.match_aggregation),
                dim,
                not cfg.match_no_hierarchy,
                cfg.match_per_layer,
                cfg.match_dropout,
            )
        if self.learns_cls and (self.classic or self.head_pooling == "cls"):
            self.cls = nn.Parameter(torch.empty(cfg.encoder_embed_dim).normal_(std=cfg.encoder_embed_dim**-0.5))
        # What is above the last compared heads changes nothing: it is not trained, and not waited for.
        unread = [set(find_later(self.encoder, level)) for level in self.levels]
        for parameter in set.intersection(*unread) if unread else ():
            parameter.requires_grad_(False)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        idle = find_without_effect(cfg, cls.config_class, _WITHOUT_EFFECT, "on head-wise match")
        return super().find_faults(cfg) + match_faults(cfg) + idle

    @classmethod
    def check_pairs(cls, task: Any) -> TaskOfSentences:
        """Returns the task, or raises ValueError unless it reads pairs of sentences."""
        task = check_sentence_task(task)
        if not task.pairs or task.predicts == "tags":
            raise ValueError(_SINGLE)
        return task

    def represent(self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None) -> Tensor:
        """See ``SentenceModel.represent``."""
        if self.classic:
            states, mask = self.encode(src_tokens, src_lengths, src_characters)
            return REDUCTIONS[self.head_pooling](states, mask)
        with record_heads(self.levels) as outputs:
            _, mask = self.encode(src_tokens, src_lengths, src_characters)
        return torch.cat(
            [REDUCTIONS[self.head_pooling](outputs[level], mask) for level in range(len(self.levels))], dim=1
        )

    def score_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """See ``SentenceModel.score_pairs``."""
        return self.matcher(first, second)

    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """See ``SentenceModel.score_all_pairs``; without gradients."""
        return self.matcher.score_all_pairs(first, second)


def match_faults(cfg: Any) -> list[str]:
    """One sentence for each fault of the flags of the comparison."""
    faults = []
    if cfg.match_dim < 0:
        faults.append(f"--match-dim must be at least 0, but got {cfg.match_dim}; 0 is the width of a head.")
    match, aggregation = str(cfg.match), str(cfg.match_aggregation)
    if match in ("cosine", "bilinear") and aggregation == "max":
        faults.append(
            f"--match {match} makes one number of each head, of which --match-aggregation max would leave a single "
            "one; use --match-aggregation concat."
        )
    return faults


def _choose_levels(sources: list[HeadSource], text: str) -> list[HeadSource]:
    if not sources:
        raise ValueError("head-wise match needs an encoder with self-attention, but this one has none.")
    if text == "all":
        chosen = list(range(len(sources)))
    elif text == "last":
        chosen = [len(sources) - 1]
    else:
        chosen = sorted(parse_layer_numbers(text, len(sources), "--match-levels"))
    shapes = {(sources[number].num_heads, sources[number].head_dim) for number in chosen}
    if len(shapes) > 1:
        raise ValueError(
            f"layers that are compared must have equal heads, but --match-levels {text} chooses (heads, width) of "
            f"{', '.join(map(str, sorted(shapes)))}; choose others."
        )
    return [sources[number] for number in chosen]
