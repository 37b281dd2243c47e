"""MUSE and MUSE-simple: fairseq's Transformer with every layer replaced by the parallel layer.

Source: Zhao et al. 2019, "MUSE: Parallel Multi-Scale Attention for Sequence to Sequence Learning", arXiv:1911.09483.
The layer itself is ``modules/parallel_layer.py``; flags are in ``muse_config.py``, their checks in ``muse_faults.py``;
MUSE-simple, the plain Transformer and named sizes are in ``presets.py``.
"""

from contextlib import nullcontext
from typing import Dict, Optional

from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import FairseqDropout
from omegaconf import DictConfig, open_dict
from torch import Tensor

from muse_plugin.contracts.flag import naming
from muse_plugin.models.hub import HubLoading
from muse_plugin.models.muse_config import (
    FAIRSEQ,
    MuseConfig,
    explicit_pruning,
    flat_flags,
    pruned_flags,
    transformer_config,
)
from muse_plugin.models.muse_decoder import MuseDecoder
from muse_plugin.models.muse_encoder import MuseEncoder
from muse_plugin.models.muse_faults import check_config, check_supervision
from muse_plugin.models.registration import register
from muse_plugin.modules.gated_conv import GatedConv
from muse_plugin.modules.retained_dropout import RetainsDropout


@register("muse", MuseConfig)
class MuseModel(HubLoading):
    """MUSE (arXiv:1911.09483): self-attention, gated dynamic convolution and feed-forward side by side.

    Everything around the layers is fairseq's Transformer: embeddings and their sharing, adaptive softmax, LayerDrop,
    activation checkpointing, FSDP.
    """

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model for a task's dictionaries.

        Raises:
            ValueError: if flags contradict each other; all faults are reported together.
        """
        flat = flat_flags(cfg, cls.config_class)
        check_config(flat, task.source_dictionary, task.target_dictionary, cls.config_class)
        has_alignments = bool(getattr(getattr(task, "cfg", None), "load_alignments", False))
        if has_alignments:
            check_supervision(flat)
        model = super().build_model(transformer_config(flat), task)
        model.decoder.supervises_attention = has_alignments
        return model

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens) -> MuseEncoder:
        """Called by the base class."""
        return MuseEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens) -> TransformerDecoderBase:
        """Called by the base class."""
        if cfg.decoder.layer_type == FAIRSEQ:
            return TransformerDecoderBase(cfg, tgt_dict, embed_tokens)
        return MuseDecoder(cfg, tgt_dict, embed_tokens)

    def make_generation_fast_(self, inference_backend: Optional[str] = None, **named):
        """Adds the inference forms; names the flag where ``--int8-inference`` is not possible.

        Args:
            inference_backend: instead of that of ``--inference-backend``.
            **named: of fairseq.
        """
        if (inference_backend or str(self.decoder.cfg.inference_backend)) == "onnxruntime":
            from muse_plugin.models.onnx.back_end import run_in_onnxruntime_  # which reads this file

            run_in_onnxruntime_(self, bool(named.get("need_attn")), bool(named.get("retain_dropout")))
            return
        with naming("--int8-inference") if self.decoder.cfg.int8_inference else nullcontext():
            super().make_generation_fast_(**named)

    def load_state_dict(self, state_dict, strict: bool = True, model_cfg=None, args=None):
        """Loads parameters as fairseq does; where layers are pruned away, ``model_cfg`` then describes what is left."""
        flat = None if model_cfg is None else flat_flags(model_cfg, self.config_class)
        if flat is None or not (flat.encoder_layers_to_keep or flat.decoder_layers_to_keep):
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        with open_dict(model_cfg) if isinstance(model_cfg, DictConfig) else nullcontext():
            for name, value in explicit_pruning(flat, state_dict).items():
                setattr(model_cfg, name, value)
            result = super().load_state_dict(state_dict, strict, model_cfg, args)
            for name, value in pruned_flags(flat).items():
                setattr(model_cfg, name, value)
        return result

    def prepare_for_inference_(self, cfg) -> None:
        """fairseq calls this before generation.

        Raises:
            ValueError: for ``--replace-unk`` without ``--print-alignment``, with which alone fairseq aligns words, and
                for ``--retain-dropout-modules`` that would switch all dropout off.
        """
        generation = cfg.generation
        if getattr(generation, "replace_unk", None) is not None and not getattr(generation, "print_alignment", None):
            raise ValueError(
                "--replace-unk copies the words that unknown ones are aligned to, but there is no --print-alignment; "
                "add it."
            )
        wanted = getattr(generation, "retain_dropout_modules", None)  # names in one word, as fairseq searches them
        if getattr(generation, "retain_dropout", False) and wanted is not None:
            parts = [module for module in self.modules() if isinstance(module, (RetainsDropout, FairseqDropout))]
            known = {getattr(module, "module_name", None) or type(module).__name__ for module in parts}
            if not any(name in wanted for name in known):
                raise ValueError(
                    f"--retain-dropout-modules must name modules that drop something, here {', '.join(sorted(known))}, "
                    f"but got {wanted}; name some of these, with commas, or leave the flag out for all."
                )
        super().prepare_for_inference_(cfg)

    def gate_weights(self) -> Dict[str, Tensor]:
        """Softmax of the kernel gate of every layer that has one, by module name; each (number of kernel sizes,)."""
        return {
            name: module.gate_weights().detach()
            for name, module in self.named_modules()
            if isinstance(module, GatedConv) and module.gate is not None
        }
