"""Recorded attention weights: applied to the values, they give what the encoder's heads say."""

import pytest
import torch
from helpers import assert_close
from sentence_models import build, make_input, make_sentences

from muse_plugin.modules.attention_weights import find_attention, record_attention
from muse_plugin.modules.bert_encoder import BertEncoder, BertSizes
from muse_plugin.modules.branch import split_heads
from muse_plugin.modules.head_outputs import find_head_sources, record_heads

ATOL = 1e-5  # float32, sums in another order
LENGTHS = (6, 1, 3)
VARIANTS = {
    "transformer": {"model": "sentence_transformer"},
    "muse": {"model": "sentence_muse"},
    "windows": {"model": "multi_scale_transformer"},
    "radii_scaled_by_model": {"model": "multi_scale_transformer", "attention_scale": "model"},
    "transformer_with_windows": {
        "model": "sentence_transformer",
        "encoder_attention_bias": "multi-scale,distance",
        "encoder_attention_scales": "1,3,N/2",
    },
    "direction": {"model": "sentence_transformer", "encoder_attention_bias": "forward"},
}


def values_of(encoder):
    """The values of every attending module while it runs, (B, H, S, D)."""
    kept = []
    for module in find_attention(encoder):
        if hasattr(module, "project"):
            module.register_forward_pre_hook(lambda m, args: kept.append(m.project(args[0])[2]))
        elif hasattr(module, "in_proj"):
            module.register_forward_pre_hook(
                lambda m, args: kept.append(split_heads(m.in_proj(args[0]).chunk(3, -1)[2], m.num_heads))
            )
        else:
            module.register_forward_pre_hook(lambda m, args: kept.append(split_heads(args[0]["value"], m.num_heads)))
    return kept


def check(encoder, run, lengths):
    values = values_of(encoder)
    sources = find_head_sources(encoder)
    modules = find_attention(encoder)
    assert len(modules) == len(sources) >= 2
    with record_heads(sources) as heads, record_attention(modules) as weights:
        run()
    for number, source in enumerate(sources):
        assert weights[number].dtype == torch.float32
        said = split_heads(heads[number], source.num_heads)
        assert weights[number].shape == (*said.shape[:3], said.shape[2])
        for row, length in enumerate(lengths):
            real = weights[number][row, :, :length]
            assert_close((real @ values[number][row])[:, :length], said[row, :, :length], atol=ATOL)
            assert (real[..., length:] == 0).all()
            sums = real.sum(-1)
            assert (((sums - 1).abs() < ATOL) | (sums == 0)).all()
    before = len(weights)
    run()
    assert len(weights) == before  # recording has ended: nothing is left in the encoder
    return weights


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pooling", ["max", "cls"])
def test_weights_times_values_are_the_outputs_of_heads(variant, pooling):
    net = build(**{"pooling": pooling, **VARIANTS[variant]}).eval()
    batch = make_input(make_sentences(*LENGTHS), longer=1)
    lengths = [n + (pooling == "cls") for n in LENGTHS]
    weights = check(net.encoder, lambda: net.represent(**batch), lengths)
    if variant == "direction":
        assert (weights[0][0].triu() == 0).all()
        assert (weights[0][0, :, 0].sum(-1) == 0).all()  # the first word has nothing before it


@torch.no_grad()
def test_weights_of_bert():
    torch.manual_seed(0)
    encoder = BertEncoder(BertSizes(20, 12, 2, 3, 16)).eval()
    for parameter in encoder.parameters():
        parameter.normal_(std=0.5)
    pieces = torch.randint(0, 20, (3, 7))
    mask = torch.arange(7) >= torch.tensor(LENGTHS)[:, None]
    check(encoder, lambda: encoder(pieces, mask), LENGTHS)
