"""The stack of layers of MUSE's encoder and decoder: what both do for fairseq's base classes in the same way."""

from typing import Dict

from fairseq import utils
from fairseq.distributed import fsdp_wrap
from torch import Tensor, nn

from muse_plugin.contracts.flag import naming
from muse_plugin.models.encoder_layers import PARALLEL, build_sentence_layer
from muse_plugin.models.layer_builder import BranchOptions, build_layer
from muse_plugin.models.muse_config import FFN_PROJECTIONS


def branch_options(cfg, side: str) -> BranchOptions:
    """What the layers of a side ("encoder" or "decoder") share, from fairseq's nested config with our flags."""
    own = getattr(cfg, side)
    return BranchOptions(
        own.embed_dim,
        own.attention_heads,
        own.ffn_embed_dim,
        for_conv={
            "causal": side == "decoder",
            "weight_dropout": cfg.weight_dropout,
            "use_gate": not cfg.no_conv_gate,
            "share_value": own.conv_projection == "shared",
            "mask_padding": cfg.conv_padding == "masked",
        },
        for_layer={
            "branch_dropout": cfg.branch_dropout,
            "input_dropout": cfg.input_dropout,
            "normalize_before": own.normalize_before,
            "input_init": cfg.input_init,
            "output_init": cfg.output_init,
        },
        encoder_dim=cfg.encoder.embed_dim if side == "decoder" else None,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout,
        activation=utils.get_activation_fn(cfg.activation_fn),
        ffn_reads=FFN_PROJECTIONS[str(own.ffn_projection)],
        conv_type=own.conv_type,
        conv_heads=own.conv_heads,
        conv_backend=str(cfg.conv_backend),
        linear_backend=linear_backend(cfg),
    )


def linear_backend(cfg) -> str:
    """The back end of ``PackedLinear`` that the inference form uses."""
    return "int8" if cfg.int8_inference else "auto"


class ParallelLayers:
    """The layers of one side, for fairseq's base class."""

    _layers_built = 0

    def build_next_layer(self, cfg, side: str) -> nn.Module:
        """Builds one layer, from the bottom, at each call: prepared for training and wrapped for FSDP as asked."""
        own = getattr(cfg, side)
        plan = own.plans[self._layers_built]
        if own.layer_type == PARALLEL:
            with naming(f"--{side}-branches"):
                layer = build_layer(branch_options(cfg, side), plan)
        else:
            layer = build_sentence_layer(cfg, plan.bias)
        self._layers_built += 1
        layer.prepare_training(cfg.checkpoint_activations, cfg.offload_activations)
        return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> Dict[str, Tensor]:
        """fairseq's hook for old checkpoints; the base class would look for layer norms that we do not have."""
        return state_dict
