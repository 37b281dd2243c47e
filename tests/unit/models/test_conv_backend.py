"""``--conv-backend``: what it reaches, what it refuses, and what becomes of it where a checkpoint is used."""

import logging

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import (
    both,
    build,
    build_from_config,
    faults_of,
    logits_of,
    make_config,
    make_pair,
    make_task,
)

from muse_plugin.models import head_wise_match_translation
from muse_plugin.models.muse_config import flat_flags
from muse_plugin.models.presets import DERIVED
from muse_plugin.models.sentence_transformer import SentenceTransformerConfig, SentenceTransformerModel
from muse_plugin.modules import gated_conv
from muse_plugin.modules.gated_conv import DynamicConv, LightweightConv
from muse_plugin.ops import dynamic_conv as op

SPLIT = {"encoder_branches": "long_short_range,ffn", "decoder_branches": "long_short_range,cross_attention,ffn"}


def backends_of(net):
    return {module.backend for module in net.modules() if isinstance(module, (DynamicConv, LightweightConv))}


def logits(net):
    _, _, source, previous = make_pair()
    return logits_of(net, source, previous)


@pytest.mark.parametrize("flags", [{}, both(conv_type="lightweight"), SPLIT], ids=["dynamic", "lightweight", "split"])
def test_the_flag_reaches_every_convolution_and_changes_no_number(flags):
    net = build(**flags, conv_backend="reference")
    assert backends_of(net) == {"reference"}
    assert backends_of(build(**flags)) == {"auto"}
    assert_close(logits(net), logits(build(**flags)), atol=1e-5)
    assert net.state_dict().keys() == build(**flags).state_dict().keys()


def test_sentence_models_have_the_flag():
    settings = {"encoder_branches": DERIVED["sentence_muse"][1]["encoder_branches"], "encoder_attention_heads": 2}
    config = SentenceTransformerConfig(**settings, encoder_embed_dim=8, conv_backend="reference")
    assert SentenceTransformerModel.find_faults(config) == []
    assert backends_of(SentenceTransformerModel.build_encoder(config)) == {"reference"}
    config.conv_backend, config.encoder_kernel_sizes = "fairseq_cuda", "9"
    (sentence,) = SentenceTransformerModel.find_faults(config)
    assert sentence.startswith("--conv-backend fairseq_cuda has kernels of 3, 5, 7, ")


def test_training_with_a_back_end_that_cannot_run_says_so():
    net = build(conv_backend="fairseq_cuda").train()
    with pytest.raises(RuntimeError, match=r"^the back end fairseq_cuda needs tensors on a GPU, but got cpu; use back"):
        logits(net)


@pytest.mark.parametrize("backend", ["triton", "fairseq_cuda"])
@pytest.mark.parametrize("form", ["ordinary", "inference"])
def test_evaluation_elsewhere_takes_auto_and_says_so_once(backend, form, caplog):
    gated_conv._say_once.cache_clear()
    net, expected = (build(conv_backend=name).eval() for name in (backend, "auto"))
    if form == "inference":
        net.make_generation_fast_()
    with caplog.at_level(logging.INFO), torch.no_grad():
        assert_close(logits(net), logits(expected), atol=2e-5)
        logits(net)
    said = [text for text in caplog.messages if text.startswith("the back end")]
    assert said == [f"the back end {backend} of convolutions cannot run here (cpu): auto takes its place"]


def test_a_stored_flag_can_be_overridden_and_older_checkpoints_have_none():
    config = make_config(conv_backend="triton")
    assert backends_of(build_from_config(config)) == {"triton"}
    config.conv_backend = "reference"  # what --model-overrides does
    assert backends_of(build_from_config(config)) == {"reference"}
    del config["conv_backend"]
    assert backends_of(build_from_config(config)) == {"auto"}


def test_a_matcher_on_its_encoder_does_not_take_it_over():
    flags = {**vars(flat_flags(make_config(conv_backend="triton"))), "_name": "muse"}
    assert backends_of(head_wise_match_translation._build(flags, make_task().source_dictionary)) == {"auto"}


@pytest.mark.parametrize("sizes", ["9", "1", "[[3], [9]]"])
def test_sizes_without_a_kernel_of_fairseq_are_refused(sizes):
    assert faults_of(encoder_kernel_sizes=sizes, conv_backend="fairseq_cuda") == [
        "--conv-backend fairseq_cuda has kernels of 3, 5, 7, 15, 31, 63, 127, 255 tokens, but got "
        f"--encoder-kernel-sizes {sizes}; change one of them."
    ]


def test_the_largest_size_counts_unless_sizes_stay_apart():
    build(encoder_kernel_sizes="1,9,15", conv_backend="fairseq_cuda")
    (sentence,) = faults_of(encoder_kernel_sizes="1,9,15", conv_backend="fairseq_cuda", no_conv_gate=True)
    assert "--encoder-kernel-sizes 1,9,15" in sentence


@pytest.mark.parametrize(
    "flags", [{"model": "muse_simple"}, both(conv_type="depthwise"), both(conv_type="standard", kernel_sizes="3")]
)
def test_a_model_without_such_a_convolution_refuses_the_flag(flags):
    assert faults_of(**flags, conv_backend="triton") == [
        "--conv-backend is for dynamic and lightweight convolutions, but got triton for a model without one; drop the "
        "flag."
    ]


def test_unknown_names_are_refused():
    assert faults_of(conv_backend="cuda") == [
        "--conv-backend must be one of auto, reference, band, taps, triton, fairseq_cuda, but got 'cuda'."
    ]


# ---- what auto is on a GPU ----------------------------------------------------------------------------------------


def choose(kernel_size, left, dtype=torch.float16, history=0):
    class OnGpu(torch.Tensor):
        device = torch.device("cuda")

    values = torch.empty(2, 4, 24 + history, 8, dtype=dtype).as_subclass(OnGpu)
    kernels = op.Kernels(torch.empty(2, 4, 24, kernel_size), (kernel_size,), (left,), None, True, None, 1.0)
    return op._choose_backend(values, kernels)


@pytest.fixture
def built(monkeypatch):
    monkeypatch.setattr(op.dynamic_conv_fairseq, "is_built", lambda: True)


def test_auto_on_a_gpu_is_triton_then_fairseqs_kernels(monkeypatch, built):
    monkeypatch.setattr(op, "_HAS_TRITON", True)
    assert choose(15, 7) == "triton"
    assert choose(15, 7, torch.float64) == "fairseq_cuda"
    monkeypatch.setattr(op, "_HAS_TRITON", False)
    assert choose(15, 7) == choose(15, 14, torch.float32) == "fairseq_cuda"


def test_auto_does_not_ask_fairseqs_kernels_for_what_they_cannot_do(monkeypatch, built):
    monkeypatch.setattr(op, "_HAS_TRITON", False)
    assert choose(9, 4) == choose(15, 3) == choose(15, 7, torch.bfloat16) == choose(15, 14, history=5) == "band"
    monkeypatch.setattr(op.dynamic_conv_fairseq, "is_built", lambda: False)
    assert choose(15, 7) == "band"
