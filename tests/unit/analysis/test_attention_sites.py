"""Where models attend, and the weights of fairseq's own attention against what it returns itself."""

from types import SimpleNamespace

import pytest
import torch
from support import muse_models, sentence_models
from support.helpers import assert_close
from torch import nn

from muse_plugin.analysis.attention_sites import find_sites, watch_sites


def places(model):
    return [(site.side, site.layer, site.heads) for site in find_sites(model)]


def test_sides_and_layers_of_translation_models():
    both = [
        ("encoder", 1, 2),
        ("encoder", 2, 2),
        ("decoder", 1, 2),
        ("decoder", 2, 2),
        ("cross", 1, 2),
        ("cross", 2, 2),
    ]
    for variant in ("muse", "plain_transformer", "long_short_range"):
        assert places(muse_models.built(variant)) == both, variant
    assert places(muse_models.built("conv_without_attention")) == both[4:]
    assert places(muse_models.built("multi_scale_layers")) == [("encoder", 1, 5), ("encoder", 2, 5), *both[2:]]
    one_way = [(direction, layer, 2) for direction in ("forward", "backward") for layer in (1, 2)]
    assert places(muse_models.built("distance_layers")) == [*both[2:], *one_way]


def test_sides_and_layers_of_sentence_models():
    assert places(sentence_models.built("multi_scale_transformer")) == [("encoder", 1, 4), ("encoder", 2, 4)]
    assert places(sentence_models.built("distance_attention_network")) == [("forward", 1, 3), ("backward", 1, 3)]
    assert places(sentence_models.built("no_distance_mask")) == [("forward", 1, 3), ("backward", 1, 3)]
    assert places(sentence_models.built("sentence_bigru")) == []


@pytest.fixture(scope="module")
def transformer():
    net = muse_models.build("transformer").eval()
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    return net


@torch.no_grad()
def test_weights_of_fairseqs_transformer_are_its_own(transformer):
    *_, source, previous = muse_models.make_pair()
    sites = find_sites(transformer)
    assert [(site.side, site.layer) for site in sites] == [
        (side, layer) for side in ("encoder", "decoder", "cross") for layer in (1, 2)
    ]
    seen, calls = {}, {}
    handles = [
        site.module.register_forward_pre_hook(
            lambda module, args, named: calls.__setitem__(module, named), with_kwargs=True
        )
        for site in sites
    ]
    with watch_sites(sites, seen.__setitem__):
        transformer(source, muse_models.lengths_of(source), previous)
    for handle in handles:
        handle.remove()
    assert sorted(seen) == list(range(6))
    for number, site in enumerate(sites):
        named = {**calls[site.module], "need_head_weights": True, "need_weights": True, "static_kv": True}
        named["incremental_state"] = {}  # fairseq's own, slow way
        site.module.encoder_decoder_attention = True  # which that way asks for with static_kv
        expected = site.module(**named)[1].transpose(0, 1)  # (B, H, T, S)
        site.module.encoder_decoder_attention = site.side == "cross"
        real = previous.ne(muse_models.PAD) if site.side != "encoder" else source.ne(muse_models.PAD)
        rows = seen[number].weights.transpose(1, 2)[real], expected.transpose(1, 2)[real]
        assert_close(*rows, atol=1e-5)
        if site.side != "decoder":
            assert_close(seen[number].key_padding_mask, source.eq(muse_models.PAD), atol=0, rtol=0)
    before = dict(seen)
    transformer(source, muse_models.lengths_of(source), previous)
    assert seen == before  # watching has ended


@torch.no_grad()
def test_own_and_foreign_attention_can_be_watched_together(transformer):
    own = muse_models.built("muse")
    *_, source, previous = muse_models.make_pair()
    sites = [find_sites(transformer)[0], find_sites(own)[0], find_sites(transformer)[4]]
    seen = {}
    with watch_sites(sites, seen.__setitem__):
        for net in (own, transformer):
            net(source, muse_models.lengths_of(source), previous)
    assert sorted(seen) == [0, 1, 2]
    assert seen[0].weights.shape == seen[1].weights.shape == (3, 2, 7, 7)
    assert seen[2].weights.shape == (3, 2, 6, 7)


def test_keys_that_are_no_words_are_refused(transformer):
    attention = find_sites(transformer)[0].module
    attention.add_zero_attn = True
    try:
        with (
            watch_sites(find_sites(transformer)[:1], lambda *seen: None),
            pytest.raises(
                NotImplementedError, match="this model has add_bias_kv or add_zero_attn; analyze another model"
            ),
        ):
            attention(torch.randn(3, 1, 16), torch.randn(3, 1, 16), torch.randn(3, 1, 16))
    finally:
        attention.add_zero_attn = False


def test_a_model_without_layers_counts_as_one_layer():
    encoder = sentence_models.built("distance_attention_network").encoder
    assert not hasattr(encoder, "layers")
    assert {site.layer for site in find_sites(SimpleNamespace(encoder=encoder))} == {1}
