"""Models of equal size to compare: ours, and fairseq's Transformer and dynamic-convolution model; and batches for them.

Speed does not depend on what words are, so weights, words and sentences are random. Equal size means: the same depth
and width, and a feed-forward width at which the numbers of parameters are as near as multiples of eight allow.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from torch import Tensor, nn

from muse_plugin.benchmark.unfused_layer import unfuse_

MAX_POSITIONS = 1024
# What a system is called; the names that flags take.
TRANSFORMER = "fairseq Transformer"
DYNAMIC_CONV = "fairseq dynamic conv"
SIMPLE = "MUSE-simple"
SIMPLE_INT8 = "MUSE-simple int8"
SIMPLE_ORDINARY = "MUSE-simple, ordinary form"
SIMPLE_ONNX = "MUSE-simple, onnxruntime"
SIMPLE_ONNX_INT8 = "MUSE-simple, onnxruntime int8"
MUSE = "MUSE"
MUSE_INT8 = "MUSE int8"
MUSE_ORDINARY = "MUSE, ordinary form"
MUSE_ONNX = "MUSE, onnxruntime"
MUSE_ONNX_INT8 = "MUSE, onnxruntime int8"
MUSE_UNFUSED = "MUSE, unfused form"
CTRANSLATE2 = "CTranslate2 Transformer"
CTRANSLATE2_INT8 = "CTranslate2 Transformer int8"
# On a GPU alone.
SIMPLE_STEPWISE = "MUSE-simple, without CUDA graphs"
MUSE_STEPWISE = "MUSE, without CUDA graphs"
_ARCHS = {
    **dict.fromkeys((TRANSFORMER, CTRANSLATE2, CTRANSLATE2_INT8), "transformer"),
    DYNAMIC_CONV: "lightconv",
    **dict.fromkeys(
        (SIMPLE, SIMPLE_INT8, SIMPLE_ORDINARY, SIMPLE_ONNX, SIMPLE_ONNX_INT8, SIMPLE_STEPWISE), "muse_simple"
    ),
    **dict.fromkeys((MUSE, MUSE_INT8, MUSE_ORDINARY, MUSE_ONNX, MUSE_ONNX_INT8, MUSE_UNFUSED), "muse"),
    MUSE_STEPWISE: "muse",
}

# Depth and widths, by the name of the setting (papers: arXiv:1911.09483 for base and large).
SETTINGS: dict[str, dict[str, int]] = {
    "tiny": {"embed_dim": 128, "ffn_embed_dim": 256, "layers": 4, "attention_heads": 4},
    "six_layers": {"embed_dim": 512, "ffn_embed_dim": 1024, "layers": 6, "attention_heads": 4},
    "base": {"embed_dim": 384, "ffn_embed_dim": 768, "layers": 12, "attention_heads": 4},
    "large": {"embed_dim": 768, "ffn_embed_dim": 3072, "layers": 12, "attention_heads": 16},
}


class ModelFactory:
    """Builds models over one made-up dictionary.

    Args:
        vocabulary: its number of words, at least 5.
        share_all_embeddings: one matrix for both sides and the output layer.

    Raises:
        ValueError: if ``vocabulary`` is too small.
    """

    def __init__(self, vocabulary: int, share_all_embeddings: bool = False) -> None:
        self.dictionary = Dictionary()
        if vocabulary <= len(self.dictionary):
            raise ValueError(f"--vocabulary must be at least {len(self.dictionary) + 1}, but got {vocabulary}.")
        for number in range(vocabulary - len(self.dictionary)):
            self.dictionary.add_symbol(f"word{number}")
        self._task = Namespace(source_dictionary=self.dictionary, target_dictionary=self.dictionary)
        self._shares = share_all_embeddings

    def make_sentence_task(self, classes: int) -> Namespace:
        """All that a classifier of sentences asks of its task, see ``TaskOfSentences``; there are no data."""
        return Namespace(
            predicts="label",
            outputs=classes,
            labels=[str(number) for number in range(classes)],
            pairs=False,
            vector_size=0,
            max_words=None,
            has_heads=None,
            loads_checkpoint=False,
            source_dictionary=self.dictionary,
            unknown_index=self.dictionary.unk(),
            character_dictionary=None,
        )

    def build(self, name: str, setting: str, **flags: Any) -> FairseqEncoderDecoderModel:
        """Builds a system.

        Args:
            name: one of the names above.
            setting: a key of ``SETTINGS``.
            **flags: further flags of the model, e.g. ``dropout``.

        Returns:
            The model, in training mode, with random weights.
        """
        sizes = SETTINGS[setting]
        if _ARCHS[name] in ("transformer", "lightconv"):
            # MUSE-simple is a Transformer with its sublayers side by side: equal as it is. The convolutions of MUSE
            # and of fairseq's model differ in their projections.
            ours = SIMPLE if setting == "six_layers" else MUSE
            wanted = count_parameters(self._build(ours, sizes, flags))
            # The number of parameters is linear in the feed-forward width; the nearest is taken.
            width = sizes["ffn_embed_dim"]
            one, two = (count_parameters(self._build(name, sizes, flags, w)) for w in (width, width + 8))
            return self._build(name, sizes, flags, max(8, width + 8 * round((wanted - one) / (two - one))))
        model = self._build(name, sizes, flags)
        return unfuse_(model) if name == MUSE_UNFUSED else model

    def _build(
        self, name: str, sizes: dict[str, int], flags: dict[str, Any], ffn_embed_dim: Optional[int] = None
    ) -> FairseqEncoderDecoderModel:
        both: dict[str, Any] = {**sizes, "ffn_embed_dim": ffn_embed_dim or sizes["ffn_embed_dim"]}
        arch, own = _ARCHS[name], {}
        if name == DYNAMIC_CONV:
            # Kernels as published for its base size (arXiv:1901.10430): 3, 7, 15 and then 31.
            kernels = ([3, 7, 15] + [31] * sizes["layers"])[: sizes["layers"]]
            both |= {"conv_dim": sizes["embed_dim"], "conv_type": "dynamic", "glu": True, "kernel_size_list": kernels}
            own = {"weight_softmax": True}
        elif arch != "transformer":
            own = {"int8_inference": name.endswith("int8")}
            own["inference_backend"] = "onnxruntime" if "onnxruntime" in name else "torch"
            own["static_decoding"] = "never" if name in (SIMPLE_STEPWISE, MUSE_STEPWISE) else "auto"
        args = Namespace(
            arch=arch,
            share_all_embeddings=self._shares,
            max_source_positions=MAX_POSITIONS,
            max_target_positions=MAX_POSITIONS,
            **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in both.items()},
            **own,
            **flags,
        )
        ARCH_CONFIG_REGISTRY[arch](args)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, self._task)

    def make_tokens(self, sentences: int, length: int, device: Optional[torch.device] = None) -> Tensor:
        """Draws sentences of words that end with end-of-sentence, shape (sentences, length)."""
        tokens = torch.randint(self.dictionary.nspecial, len(self.dictionary), (sentences, length))
        tokens[:, -1] = self.dictionary.eos()
        return tokens.to(device or "cpu")

    def make_sample(self, sentences: int, length: int, device: Optional[torch.device] = None) -> dict[str, Any]:
        """Draws a batch as fairseq's trainer hands it to a criterion; all sentences have ``length`` tokens."""
        source, target = (self.make_tokens(sentences, length, device) for _ in range(2))
        lengths = torch.full((sentences,), length, device=source.device)
        previous = target.roll(1, dims=1)
        return {
            "net_input": {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": previous},
            "target": target,
            "ntokens": target.numel(),
            "nsentences": sentences,
        }


def select(names: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Returns the systems that ``--without`` leaves and that can run on the device; the first one is the baseline.

    Raises:
        ValueError: if a name is unknown, or none is left.
    """
    unknown = [name for name in args.without if name not in names]
    if unknown:
        raise ValueError(f"--without must name contestants, but got {unknown[0]!r}; there are: {'; '.join(names)}.")
    left = [name for name in names if name not in args.without]
    idle = ("graphs",) if args.device.type == "cpu" else ("int8", "onnxruntime")
    left = [name for name in left if not name.endswith(idle)]
    if not left:
        raise ValueError("--without must leave at least one contestant, but it names them all; leave a name out.")
    return left


def count_parameters(model: nn.Module) -> int:
    """The number of parameters, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
