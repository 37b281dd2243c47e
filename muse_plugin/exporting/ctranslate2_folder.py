"""Fills the folder of ``muse-plugin export --format ctranslate2``, through CTranslate2's own converter for fairseq.

The converter knows fairseq's ``transformer``; our ``plain_transformer`` computes the same and is handed over under
fairseq's names. CTranslate2 has no parallel branches, and so no MUSE.
"""

import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor

from muse_plugin import __version__
from muse_plugin.exporting.model_card import write_card
from muse_plugin.inference.translate import Translator
from muse_plugin.models.muse_decoder import MuseDecoder
from muse_plugin.models.muse_encoder import MuseEncoder
from muse_plugin.models.onnx.plain_layers import name_as_fairseq
from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.staged_layer import StagedLayer

_ENCODER_STAGES, _DECODER_STAGES = [["self_attention"], ["ffn"]], [["self_attention"], ["cross_attention"], ["ffn"]]
_WAY_OUT = "export with --format onnx, or distil the model into a student of --arch transformer"


def fill_folder(
    folder: Path, translator: Translator, facts: Mapping[str, Any], int8: bool, evaluate: Optional[Sequence[Path]]
) -> None:
    """Writes the model, the text pipeline and a card.

    Args:
        folder: an empty one.
        translator: the model with its task and text pipeline.
        facts: for the card, see ``write_card``.
        int8: whether matrix products get 8-bit weights.
        evaluate: not used.

    Raises:
        NotImplementedError: if CTranslate2 cannot express the model.
    """
    task = translator.task
    sides = [(task.cfg.source_lang, task.source_dictionary), (task.cfg.target_lang, task.target_dictionary)]
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "made"
        convert_model(translator.models[0], sides, made, int8)
        for path in made.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    translator.pipeline.save(folder)
    config = {"weights": "int8" if int8 else "float32", "written_by": f"muse_plugin {__version__} and CTranslate2"}
    write_card(folder, translator, facts, config, [])


def convert_model(model: Any, sides: Sequence[tuple[str, Dictionary]], folder: Path, int8: bool) -> None:
    """Writes a model in memory in the form of CTranslate2.

    Args:
        model: a plain Transformer.
        sides: the language and the dictionary of source and target.
        folder: does not exist yet; CTranslate2 makes it.
        int8: whether matrix products get 8-bit weights.

    Raises:
        NotImplementedError: if CTranslate2 cannot express the model.
    """
    from ctranslate2.converters import FairseqConverter

    check_model(model)
    settings = _make_settings(model, [language for language, _ in sides])
    with tempfile.TemporaryDirectory() as place:
        checkpoint, data = Path(place) / "model.pt", Path(place) / "data"
        data.mkdir()
        for language, dictionary in sides:
            dictionary.save(str(data / f"dict.{language}.txt"))
        torch.save({"args": settings, "model": name_parameters(model)}, checkpoint)
        try:
            converter = FairseqConverter(str(checkpoint), str(data))
            converter.convert(str(folder), quantization="int8" if int8 else None)
        except (ValueError, AttributeError, TypeError, RuntimeError, KeyError) as error:
            reason = " ".join(str(error).split())[:300]
            raise NotImplementedError(
                f"CTranslate2's converter must accept the model, but gave: {reason}; {_WAY_OUT}."
            ) from error


def check_model(model: Any) -> None:
    """Raises NotImplementedError, with the way out, unless a model is a plain Transformer."""
    fault = _find_fault(model)
    if fault:
        raise NotImplementedError(
            f"CTranslate2 takes plain Transformers (transformer, plain_transformer), but this one {fault}; {_WAY_OUT}."
        )


def _find_fault(model: Any) -> str:
    """What CTranslate2 cannot express, the rest of a sentence; empty if there is nothing."""
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    if not (
        isinstance(encoder, (MuseEncoder, TransformerEncoderBase))
        and isinstance(decoder, (MuseDecoder, TransformerDecoderBase))
    ):
        return f"is a {type(model).__name__}"
    if decoder.adaptive_softmax is not None:
        return "has an adaptive softmax"
    for side, wanted in ((encoder, _ENCODER_STAGES), (decoder, _DECODER_STAGES)):
        is_ours = isinstance(side, (MuseEncoder, MuseDecoder))
        if is_ours and not all(_is_plain(layer, wanted) for layer in side.layers):
            return "has parallel branches, convolutions or limited attention"
        # The converter knows this one flag for both sides.
        if (side.embed_positions is None) != bool(encoder.cfg.no_token_positional_embeddings):
            return "has positions on one side alone"
    return ""


def _is_plain(layer: Any, wanted: list[list[str]]) -> bool:
    if not isinstance(layer, StagedLayer) or [[*stage.branches] for stage in layer.stages] != wanted:  # type: ignore
        return False
    branches = [branch for stage in layer.stages for branch in stage.branches.values()]  # type: ignore[operator,union-attr]
    limited = any(isinstance(branch, SelfAttention) and branch.bias is not None for branch in branches)
    shares = any(isinstance(branch, FeedForward) and branch.projections[0].name != "ffn_hidden" for branch in branches)
    return not limited and not shares


def name_parameters(model: Any) -> dict[str, Tensor]:
    """The parameters of a plain Transformer under the names of fairseq's own, in float32."""
    named = {name: value.float() for name, value in model.state_dict().items()}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers):
            if isinstance(layer, StagedLayer):
                prefix = f"{side}.layers.{number}."
                named = {name: value for name, value in named.items() if not name.startswith(prefix)}
                named |= {prefix + name: value.float() for name, value in name_as_fairseq(layer).items()}
    return named


def _make_settings(model: Any, languages: Sequence[str]) -> Namespace:
    """What the converter builds fairseq's Transformer from."""
    cfg = model.encoder.cfg
    settings: dict[str, Any] = {
        "arch": "transformer",
        "task": "translation",
        "source_lang": languages[0],
        "target_lang": languages[1],
        "left_pad_source": True,
        "left_pad_target": False,
        "activation_fn": cfg.activation_fn,
        "max_source_positions": cfg.max_source_positions,
        "max_target_positions": cfg.max_target_positions,
        "decoder_output_dim": cfg.decoder.output_dim,
        "decoder_input_dim": cfg.decoder.input_dim,
        "no_decoder_final_norm": cfg.no_decoder_final_norm,
    }
    for name in (
        "share_decoder_input_output_embed",
        "share_all_embeddings",
        "no_token_positional_embeddings",
        "layernorm_embedding",
        "no_scale_embedding",
    ):
        settings[name] = bool(getattr(cfg, name))
    for side in ("encoder", "decoder"):
        own = getattr(cfg, side)
        for name in ("embed_dim", "ffn_embed_dim", "layers", "attention_heads", "normalize_before", "learned_pos"):
            settings[f"{side}_{name}"] = getattr(own, name)
        settings[f"{side}_layers"] = len(getattr(model, side).layers)
        settings[f"{side}_embed_path"] = None
    return Namespace(**settings)
