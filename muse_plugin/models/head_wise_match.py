"""Head-wise match: sentences are encoded apart and compared head by head, in every layer.

Source: Wang et al., "Multi-level Head-wise Match and Aggregation in Transformer for Textual Sequence Matching", AAAI
2020. The comparison is ``modules/head_match.py``. The paper's encoder is BERT, which ``--bert-dir`` brings; the
encoders of this package serve as well, trained with the task.
"""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from torch import Tensor, nn

from muse_plugin.contracts.flag import flag, with_defaults
from muse_plugin.contracts.sentences import TaskOfSentences, check_sentence_task
from muse_plugin.models.layer_numbers import parse_layer_numbers
from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerConfig, MultiScaleTransformerModel
from muse_plugin.models.muse_config import flat_flags
from muse_plugin.models.sentence_config import find_out_of_range, find_without_effect
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.models.sentence_transformer import (
    SentenceMuseConfig,
    SentenceMuseModel,
    SentenceTransformerConfig,
    SentenceTransformerModel,
)
from muse_plugin.modules.attends import HeadSource, find_head_sources, record_heads
from muse_plugin.modules.bert_encoder import BertEncoder, BertSizes
from muse_plugin.modules.head_match import AGGREGATIONS, MATCHES, HeadWiseMatch, VectorMatch
from muse_plugin.modules.token_reductions import max_over_tokens, mean_over_tokens
from muse_plugin.pretrained.bert_weights import (
    load_bert_weights,
    parse_bert_sizes,
    read_bert_sizes,
    write_bert_sizes,
)

CLASSIC = "classic"
HEAD_POOLINGS = ("cls", "max", "mean")
# Word pieces that BERT puts around a sentence, and the one that stands for any other.
_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
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

    match: ChoiceEnum([*MATCHES, CLASSIC]) = flag(  # type: ignore[valid-type]
        "element",
        "how heads are compared: element (a vector of [s; t; s-t; s*t]), cosine, bilinear; classic compares no heads "
        "but the final states of the classification token, by element",
    )
    match_aggregation: ChoiceEnum(list(AGGREGATIONS)) = flag(  # type: ignore[valid-type]
        "max", "of heads, and of layers: max or concat; cosine and bilinear need concat"
    )
    match_levels: str = flag(
        "all", "layers whose heads are compared: all (multi-level), last (single-level), or numbers from 0, e.g. 3,7,11"
    )
    match_no_hierarchy: bool = flag(False, "heads of all layers are aggregated at once instead of layer by layer")
    match_per_layer: bool = flag(False, "each layer has its own parameters of match and aggregation over heads")
    match_dim: int = flag(0, "width of what a comparison gives (default: 0, that of a head; classic: of the states)")
    match_dropout: float = flag(0.1, "probability of dropping a channel of head vectors and hidden layers of the match")
    head_pooling: ChoiceEnum(list(HEAD_POOLINGS)) = flag(  # type: ignore[valid-type]
        "cls",
        "of the outputs of a head at all words, what stands for the sentence: cls (that at the classification token, "
        "as published), max or mean (over words)",
    )


class HeadWiseMatchBase(SentenceModel):
    """A model of pairs whose sentences meet in their head vectors only.

    ``represent`` gives what has to be kept of a sentence: the vectors of all compared heads, layer by layer, (B, L * H
    * D); with ``--match classic`` the final state of the classification token.
    """

    matcher: Union[HeadWiseMatch, VectorMatch]

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
        width: int = self.encoder.output_size  # type: ignore[assignment]
        dim = cfg.match_dim or None
        if self.classic:
            self.levels: list[HeadSource] = []
            self.matcher = VectorMatch(width, outputs, dim, cfg.match_dropout)
        else:
            self.levels = _choose_levels(self.sources, str(cfg.match_levels))
            heads, head_dim = self.levels[0].num_heads, self.levels[0].head_dim
            self.matcher = HeadWiseMatch(
                len(self.levels),
                heads,
                head_dim,
                outputs,
                str(cfg.match),
                str(cfg.match_aggregation),
                dim,
                not cfg.match_no_hierarchy,
                cfg.match_per_layer,
                cfg.match_dropout,
            )
        self.build_cls(cfg)
        self._freeze_unread()

    def build_cls(self, cfg: Any) -> None:
        """Makes the classification token, where it is needed and the encoder does not bring one."""
        if self.classic or self.head_pooling == "cls":
            self.cls = nn.Parameter(torch.empty(cfg.encoder_embed_dim).normal_(std=cfg.encoder_embed_dim**-0.5))

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
            return self._summarise(states, mask)
        with record_heads(self.levels) as outputs:
            _, mask = self.encode(src_tokens, src_lengths, src_characters)
        return torch.cat([self._summarise(outputs[level], mask) for level in range(len(self.levels))], dim=1)

    def name_positions(self, words: list[str]) -> list[str]:
        """What stands at each position that the encoder reads, for a sentence of these words."""
        return words if self.cls is None else [_FIRST, *words]

    def _summarise(self, states: Tensor, mask: Optional[Tensor]) -> Tensor:
        if self.head_pooling == "cls":
            return states[:, 0]
        return (max_over_tokens if self.head_pooling == "max" else mean_over_tokens)(states, mask)

    def score_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """See ``SentenceModel.score_pairs``."""
        logits: Tensor = self.matcher(first, second)
        return logits

    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """See ``SentenceModel.score_all_pairs``; without gradients."""
        logits: Tensor = self.matcher.score_all_pairs(first, second)
        return logits

    def _freeze_unread(self) -> None:
        """Parameters above the last compared head change nothing: they are not trained, and not waited for."""
        sample = torch.full((1, 2), _SAMPLE_TOKEN), torch.tensor([2])
        training = self.training
        with torch.enable_grad():
            vectors = self.eval().represent(*sample)
        self.train(training)
        read = _find_leaves(vectors)
        for parameter in self.encoder.parameters():
            if id(parameter) not in read:
                parameter.requires_grad_(False)


# Any id of a dictionary that stands for a word.
_SAMPLE_TOKEN = 4


def _find_leaves(tensor: Tensor) -> set[int]:
    """The parameters (their ``id``) that a tensor was computed from."""
    found, seen, waiting = set(), set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [following for following, _ in node.next_functions]
    return found


def match_faults(cfg: Any) -> list[str]:
    """One sentence for each fault of the flags of the comparison."""
    faults = find_out_of_range(cfg, (), ("match_dropout",))
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


# ---- BERT ------------------------------------------------------------------------------------------------------------


@dataclass
class HeadWiseMatchConfig(HeadMatchFlags):
    """Flags of head-wise match on BERT."""

    bert_dir: Optional[str] = flag(
        None,
        "folder of a BERT, as Hugging Face's transformers writes it: config.json and model.safetensors (or "
        "pytorch_model.bin); only for the start of a training: a checkpoint holds all of it",
    )
    bert_sizes: Optional[str] = flag(None, "sizes of the BERT as JSON; filled in from --bert-dir")


@register_model("head_wise_match", dataclass=HeadWiseMatchConfig)
class HeadWiseMatchModel(HeadWiseMatchBase):
    """Head-wise match on BERT; the data are word pieces of its vocabulary."""

    config_class = HeadWiseMatchConfig
    flags_class = HeadWiseMatchConfig
    encoder: BertEncoder

    def __init__(self, cfg: Any, encoder: BertEncoder, special: dict[str, int], offset: int, outputs: int) -> None:
        self.special = special
        self.offset = offset
        self.longest_text = encoder.sizes.max_position_embeddings - len((_FIRST, _LAST))
        super().__init__(cfg, nn.Identity(), encoder, outputs, tags_words=False, pairs=True)

    def build_cls(self, cfg: Any) -> None:
        """BERT has its own."""

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        faults = match_faults(cfg)
        if cfg.bert_dir is None and cfg.bert_sizes is None:
            faults.append(
                "--arch head_wise_match needs --bert-dir, the folder of a BERT; without one, use --arch "
                "head_wise_match_transformer, whose encoder is trained with the task."
            )
        return faults

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "HeadWiseMatchModel":
        """Builds the model, with BERT's parameters at the start of a training.

        Raises:
            FileNotFoundError: if the folder lacks a file.
            ValueError: if flags, folder and dictionary do not fit each other.
        """
        flat = flat_flags(cfg, cls.config_class)
        faults = cls.find_faults(flat)
        if faults:
            raise ValueError("\n".join(faults))
        task = cls.check_pairs(task)
        starts = not task.loads_checkpoint
        sizes = read_bert_sizes(Path(flat.bert_dir)) if starts and flat.bert_dir else parse_bert_sizes(flat.bert_sizes)
        special, offset = _find_special(task.source_dictionary, sizes)
        model = cls(flat, BertEncoder(sizes), special, offset, task.outputs)
        if starts and task.max_words is not None and task.max_words > model.longest_text:
            raise ValueError(
                f"--max-words must leave room for {_FIRST} and {_LAST} among the {sizes.max_position_embeddings} "
                f"positions of this BERT, so be at most {model.longest_text}, but got {task.max_words}."
            )
        if starts and flat.bert_dir:
            load_bert_weights(model.encoder, Path(flat.bert_dir))
        model.kept_flags = {"bert_sizes": write_bert_sizes(sizes)}
        return model

    def encode(
        self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None
    ) -> tuple[Tensor, Optional[Tensor]]:
        """States of sentences between [CLS] and [SEP]; see ``SentenceModel.encode``."""
        batch, length = src_tokens.shape
        pieces = torch.where(src_tokens < self.offset, self.special[_UNKNOWN], src_tokens - self.offset)
        ends = pieces.new_full((batch, 1), self.special[_FIRST])
        pieces = torch.cat([ends, pieces, ends], dim=1)
        places = torch.arange(length + 2, device=pieces.device)
        last = (src_lengths + 1).unsqueeze(1)
        pieces = torch.where(places == last, self.special[_LAST], pieces)
        mask = places > last
        pieces = pieces.masked_fill(mask, 0)
        padding = mask if bool(mask.any()) else None
        return self.encoder(pieces, padding), padding

    def name_positions(self, words: list[str]) -> list[str]:
        """See ``HeadWiseMatchBase.name_positions``."""
        return [_FIRST, *words, _LAST]


def _find_special(dictionary: Any, sizes: BertSizes) -> tuple[dict[str, int], int]:
    """BERT's ids of its special pieces, and what to take from an id of the dictionary to get BERT's.

    Raises:
        ValueError: if the dictionary is not BERT's vocabulary.
    """
    offset = dictionary.nspecial
    way_out = "prepare the data with muse-plugin prepare-text --tokenizer wordpiece --bert-dir and the same folder."
    if len(dictionary) - offset != sizes.vocab_size:
        raise ValueError(
            f"the data must be word pieces of BERT's own vocabulary of {sizes.vocab_size} entries, but their "
            f"dictionary has {len(dictionary) - offset}; {way_out}"
        )
    special = {}
    for piece in (_FIRST, _LAST, _UNKNOWN):
        if piece not in dictionary:
            raise ValueError(f"the dictionary must have BERT's {piece}, but it is missing; {way_out}")
        special[piece] = dictionary.index(piece) - offset
    return special, offset


# ---- encoders of this package ----------------------------------------------------------------------------------------


@dataclass
class HeadWiseMatchTransformerConfig(HeadMatchFlags, SentenceTransformerConfig):
    """Flags of head-wise match on the Transformer of the trunk."""


@register_model("head_wise_match_transformer", dataclass=HeadWiseMatchTransformerConfig)
class HeadWiseMatchTransformerModel(HeadWiseMatchBase, SentenceTransformerModel):
    """Head-wise match on a Transformer that is trained with the task."""

    config_class = HeadWiseMatchTransformerConfig
    flags_class = HeadWiseMatchTransformerConfig


@dataclass
class HeadWiseMatchMuseConfig(HeadMatchFlags, SentenceMuseConfig):
    """Flags of head-wise match on MUSE's encoder."""


@register_model("head_wise_match_muse", dataclass=HeadWiseMatchMuseConfig)
class HeadWiseMatchMuseModel(HeadWiseMatchBase, SentenceMuseModel):
    """Head-wise match on MUSE's encoder, trained with the task."""

    config_class = HeadWiseMatchMuseConfig
    flags_class = HeadWiseMatchMuseConfig


@dataclass
@with_defaults(head_pooling="max")
class HeadWiseMatchMultiScaleConfig(HeadMatchFlags, MultiScaleTransformerConfig):
    """Flags of head-wise match on the Multi-Scale Transformer.

    The windows of most of its heads at the classification token hold little of the sentence.
    """


@register_model("head_wise_match_multi_scale", dataclass=HeadWiseMatchMultiScaleConfig)
class HeadWiseMatchMultiScaleModel(HeadWiseMatchBase, MultiScaleTransformerModel):
    """Head-wise match on the Multi-Scale Transformer, trained with the task."""

    config_class = HeadWiseMatchMultiScaleConfig
    flags_class = HeadWiseMatchMultiScaleConfig
