"""Head-wise match on BERT, the encoder of the paper (see ``head_wise_match.py``): ``--bert-dir`` brings it."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import torch
from torch import Tensor, nn

from muse_plugin.contracts.flag import find_wrong_values, flag, remembered
from muse_plugin.models.head_wise_match import HeadMatchFlags, HeadWiseMatchBase, match_faults
from muse_plugin.models.registration import register
from muse_plugin.modules.bert_encoder import BertEncoder, BertSizes
from muse_plugin.pretrained.bert_weights import (
    load_bert_weights,
    parse_bert_sizes,
    read_bert_sizes,
    write_bert_sizes,
)

# Word pieces that BERT puts around a sentence, and the one that stands for any other.
_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


@dataclass
class HeadWiseMatchConfig(HeadMatchFlags):
    """Flags of head-wise match on BERT."""

    bert_dir: Optional[str] = flag(
        None,
        "folder of a BERT, as Hugging Face's transformers writes it: config.json and model.safetensors (or "
        "pytorch_model.bin); only for the start of a training: a checkpoint holds all of it",
    )
    bert_layers: int = flag(
        0,
        "how many of that BERT's layers are kept, the lowest ones (default: 0, all); only for the start of a training",
    )
    bert_sizes: Optional[str] = remembered("sizes of the BERT as JSON, from --bert-dir")


@register("head_wise_match", HeadWiseMatchConfig)
class HeadWiseMatchModel(HeadWiseMatchBase):
    """Head-wise match on BERT; the data are word pieces of its vocabulary."""

    encoder: BertEncoder
    learns_cls = False  # BERT has its own

    def __init__(self, cfg: Any, encoder: BertEncoder, special: dict[str, int], offset: int, outputs: int) -> None:
        self.special = special
        self.offset = offset
        self.longest_text = encoder.sizes.max_position_embeddings - len((_FIRST, _LAST))
        super().__init__(cfg, nn.Identity(), encoder, outputs, tags_words=False, pairs=True)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        faults = find_wrong_values(cfg, cls.config_class) + match_faults(cfg)
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
        flat = cls.read_flags(cfg)
        task = cls.check_pairs(task)
        starts = not task.loads_checkpoint
        if starts and flat.bert_dir:
            sizes = _keep_layers(read_bert_sizes(Path(flat.bert_dir)), flat.bert_layers)
        else:
            sizes = parse_bert_sizes(flat.bert_sizes)
        special, offset = _find_special(task.source_dictionary, sizes)
        model = cls(flat, BertEncoder(sizes), special, offset, task.outputs)
        if starts and task.max_words is not None and task.max_words > model.longest_text:
            raise ValueError(
                f"--max-words must leave room for {_FIRST} and {_LAST} among the {sizes.max_position_embeddings} "
                f"positions of this BERT, so be at most {model.longest_text}, but got {task.max_words}."
            )
        if starts and flat.bert_dir:
            load_bert_weights(model.encoder, Path(flat.bert_dir))
        model.remembered = {"bert_sizes": write_bert_sizes(sizes)}
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
        """See ``SentenceModel.name_positions``."""
        return [_FIRST, *words, _LAST]


def _keep_layers(sizes: BertSizes, layers: int) -> BertSizes:
    """The sizes of a BERT of which the lowest layers are kept; 0 for all.

    Raises:
        ValueError: if it has not as many.
    """
    if not 0 <= layers <= sizes.num_hidden_layers:
        raise ValueError(
            f"--bert-layers must be from 1 to the {sizes.num_hidden_layers} layers of this BERT, or 0 for all of them, "
            f"but got {layers}."
        )
    return sizes._replace(num_hidden_layers=layers) if layers else sizes


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
