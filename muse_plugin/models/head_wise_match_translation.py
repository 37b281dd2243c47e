"""Head-wise match on the encoder of a translation model of this package, which was trained before."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import ChoiceEnum
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from torch import Tensor, nn

from muse_plugin.contracts.flag import find_wrong_values, flag, remembered
from muse_plugin.models.head_wise_match import HeadMatchFlags, HeadWiseMatchBase, match_faults
from muse_plugin.models.muse import MuseModel
from muse_plugin.models.muse_config import flat_flags, pruned_flags, transformer_config
from muse_plugin.models.muse_encoder import MuseEncoder
from muse_plugin.models.muse_faults import check_config
from muse_plugin.models.registration import register

_ENCODER = "encoder."


@dataclass
class HeadWiseMatchTranslationConfig(HeadMatchFlags):
    """Flags of head-wise match on a translation encoder."""

    translation_checkpoint: Optional[str] = flag(
        None,
        "checkpoint of a translation model of this package, whose encoder reads the sentences; only for the start of a "
        "training: a checkpoint holds the encoder",
    )
    translation_flags: Optional[str] = remembered("flags of that model as JSON")
    freeze_encoder: bool = flag(False, "train the comparison alone")
    head_pooling: ChoiceEnum(["max", "mean"]) = flag(
        "mean", "of the outputs of a head at all words, what stands for the sentence: max or mean (over words)"
    )


@register("head_wise_match_translation", HeadWiseMatchTranslationConfig)
class HeadWiseMatchTranslationModel(HeadWiseMatchBase):
    """Head-wise match on the encoder of MUSE or of another translation model of this package.

    The data are sub-words as that model read them, with its dictionary of the source language. Sentences end with the
    sign for the end, as in translation, and have no classification token: heads are pooled over words.
    """

    learns_cls = False

    def __init__(self, cfg: Any, encoder: MuseEncoder, end: int, outputs: int) -> None:
        self.end = end
        self.padding = encoder.padding_idx
        super().__init__(cfg, nn.Identity(), encoder, outputs, tags_words=False, pairs=True)
        if cfg.freeze_encoder:
            encoder.requires_grad_(False)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        faults = find_wrong_values(cfg, cls.config_class) + match_faults(cfg)
        if cfg.translation_checkpoint is None and cfg.translation_flags is None:
            faults.append(
                "--arch head_wise_match_translation needs --translation-checkpoint, a checkpoint of muse or another "
                "translation model of this package."
            )
        return faults

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "HeadWiseMatchTranslationModel":
        """Builds the model, with the encoder's parameters at the start of a training.

        Raises:
            FileNotFoundError: if there is no such checkpoint.
            ValueError: if flags, checkpoint and dictionary do not fit each other.
        """
        flat = cls.read_flags(cfg)
        task = cls.check_pairs(task)
        state = None
        if flat.translation_checkpoint and not task.loads_checkpoint:
            state = _read(Path(flat.translation_checkpoint))
            flat.translation_flags = _describe(state, flat.translation_checkpoint)
        encoder = _build(json.loads(flat.translation_flags), task.source_dictionary)
        if state is not None:
            _fill(encoder, state["model"], flat.translation_checkpoint)
        model = cls(flat, encoder, task.source_dictionary.eos(), task.outputs)
        model.remembered = {"translation_flags": flat.translation_flags}
        return model

    def encode(
        self, src_tokens: Tensor, src_lengths: Tensor, src_characters: Optional[Tensor] = None
    ) -> tuple[Tensor, Optional[Tensor]]:
        """States of sentences and of the sign for their end; see ``SentenceModel.encode``."""
        tokens = torch.cat([src_tokens, src_tokens.new_full((len(src_tokens), 1), self.padding)], dim=1)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        ends = src_lengths.unsqueeze(1)
        tokens = tokens.masked_fill(places > ends, self.padding).masked_fill(places == ends, self.end)
        states = self.encoder(tokens, src_lengths + 1)["encoder_out"][0].transpose(0, 1)
        mask = places > ends
        return states, mask if bool(mask.any()) else None

    def name_positions(self, words: list[str]) -> list[str]:
        """See ``SentenceModel.name_positions``."""
        return [*words, "</s>"]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"--translation-checkpoint must name a checkpoint, but there is no file {path}.")
    try:
        return checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except Exception as error:  # a damaged or foreign file may raise anything
        raise ValueError(
            f"--translation-checkpoint must name a checkpoint of fairseq, but reading {path} gave: "
            f"{' '.join(str(error).split())[:200]}."
        ) from error


def _describe(state: dict[str, Any], path: str) -> str:
    """The flags of a translation model as JSON.

    Raises:
        ValueError: if it is no model of this package.
    """
    stored = (state.get("cfg") or {}).get("model")
    name = getattr(stored, "_name", None) or getattr(stored, "arch", None)
    family = _find_class(name)
    if family is None:
        raise ValueError(
            f"--translation-checkpoint must be of a translation model of this package, such as muse, but {path} holds "
            f"a {name!r}; train one, or convert the authors' by muse-plugin convert."
        )
    return json.dumps({**vars(flat_flags(stored, family.config_class)), "_name": name})


def _find_class(name: Any) -> Optional[type[MuseModel]]:
    found = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    return found if found is not None and issubclass(found, MuseModel) else None


def _build(flags: Any, dictionary: Any) -> MuseEncoder:
    family = _find_class(flags.get("_name")) if isinstance(flags, dict) else None
    if family is None:
        raise ValueError(
            "a checkpoint of head_wise_match_translation must hold the flags of its translation model, but they name "
            "no model of this package; train again with --translation-checkpoint."
        )
    known = flat_flags(Namespace(**flags), family.config_class)
    check_config(known, config_class=family.config_class)
    vars(known).update(pruned_flags(known))
    known.encoder_layerdrop = 0.0  # the match reads all levels
    known.conv_backend = "auto"  # the one of the translation model's training may not be here
    cfg = transformer_config(known)
    embedding = MuseModel.build_embedding(cfg, dictionary, cfg.encoder.embed_dim)
    encoder = MuseEncoder(cfg, dictionary, embedding)
    encoder.output_size = cfg.encoder.embed_dim
    return encoder


def _fill(encoder: MuseEncoder, parameters: dict[str, Tensor], path: str) -> None:
    state = {name[len(_ENCODER) :]: tensor for name, tensor in parameters.items() if name.startswith(_ENCODER)}
    rows, expected = len(state.get("embed_tokens.weight", ())), encoder.embed_tokens.num_embeddings
    if rows != expected:
        raise ValueError(
            f"the data must have the dictionary of the translation model's source language, of {rows} entries, but "
            f"theirs has {expected}; binarise them with that model's dict.txt ({path})."
        )
    try:
        encoder.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    except RuntimeError as error:
        raise ValueError(
            f"the parameters in {path} must be those of its own flags, but loading the encoder gave: "
            f"{' '.join(str(error).split())[:250]}."
        ) from error
