"""Recorded attention weights: applied to the values, they give what the encoder's heads say."""

import pytest
import torch
from support import muse_models
from support.helpers import assert_close
from support.layers import make_context
from support.sentence_models import build, make_input, make_sentences

from muse_plugin.modules.attends import (
    Attends,
    find_attention,
    find_head_sources,
    record_attention,
    record_heads,
    watch_attention,
)
from muse_plugin.modules.attention import CrossAttention
from muse_plugin.modules.bert_encoder import BertEncoder, BertSizes
from muse_plugin.modules.branch import merge_heads, split_heads
from muse_plugin.modules.distance_attention import MaskedAttention

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


# ---- decoders, and the two directions -----------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(
    "variant", ["muse", "plain_transformer", "multi_scale", "everything_limited", "distance", "long_short_range"]
)
def test_weights_of_decoders_times_values_are_the_outputs_of_heads(variant):
    net = muse_models.built(variant)
    *_, source, previous = muse_models.make_pair()
    own = find_attention(net.decoder)
    cross = [m for m in net.decoder.modules() if isinstance(m, Attends) and m.attends_to == "cross"]
    assert len(own) == len(cross) == 2
    modules = [*own, *cross]
    seen, calls = {}, {}
    handles = [
        module.register_forward_hook(lambda m, args, output: calls.__setitem__(m, (args, output))) for module in modules
    ]
    with watch_attention(modules, seen.__setitem__):
        net(source, muse_models.lengths_of(source), previous)
    for handle in handles:
        handle.remove()
    before = dict(seen)
    net(source, muse_models.lengths_of(source), previous)
    assert seen == before  # watching has ended
    for number, module in enumerate(modules):
        (projected, context), output = calls[module]
        if module in own:
            value = split_heads(projected["value"], module.num_heads)
            assert (seen[number].weights.triu(1) == 0).all()  # nobody sees what is not yet written
        else:
            value = module.key_value_proj(context.encoder_out).transpose(0, 1).chunk(2, dim=-1)[1]
            value = split_heads(value, module.num_heads)
            assert_close(seen[number].key_padding_mask, source.eq(muse_models.PAD), atol=0, rtol=0)
        weights = seen[number].weights
        assert weights.shape == (3, module.num_heads, previous.shape[1], value.shape[2])
        assert_close(merge_heads(weights @ value), output, atol=ATOL)


@torch.no_grad()
def test_rows_of_a_beam_share_the_padding_of_their_sentence():
    torch.manual_seed(0)
    module = CrossAttention(8, 2, 6).eval()
    mask = torch.tensor([[False, False, True], [False, False, False]])
    context = make_context(4, encoder_out=torch.randn(3, 2, 6), encoder_padding_mask=mask)
    seen = {}
    with watch_attention([module], seen.__setitem__):
        module({"encoder_query": torch.randn(6, 4, 8)}, context)
    assert context.attention_weights is None  # nobody else asked
    assert_close(seen[0].key_padding_mask, mask[[0, 0, 0, 1, 1, 1]], atol=0, rtol=0)
    assert (seen[0].weights[:3, ..., 2] == 0).all()
    assert (seen[0].weights[3:, ..., 2] > 0).all()


@torch.no_grad()
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("norms", [True, False])
def test_weights_of_a_direction_with_and_without_its_distance_mask(direction, norms):
    torch.manual_seed(0)
    module, plain = (MaskedAttention(12, 3, direction, alpha, norms).eval() for alpha in (1.5, 0.0))
    for parameter in module.parameters():
        parameter.normal_(std=0.7)
    plain.load_state_dict(module.state_dict())
    x, lengths = torch.randn(3, 6, 12), torch.tensor(LENGTHS)
    mask = torch.arange(6) >= lengths[:, None]
    values = module.in_proj(x).chunk(3, -1)[2].view(3, 6, 3, 4)
    values = (module.in_norms[2](values) if norms else values).transpose(1, 2)
    seen = {}
    with watch_attention([module], seen.__setitem__):
        outputs = {True: module(x, lengths, mask)}
    outputs[False] = plain(x, lengths, mask)
    shown = {True: seen[0], False: module.weigh_without_distance(x, lengths, mask)}
    assert not torch.allclose(shown[True].weights, shown[False].weights)
    for with_distance, output in outputs.items():
        result = module.out_proj(merge_heads(shown[with_distance].weights @ values))
        result = module.out_norm(result) if norms else result
        for row, length in enumerate(LENGTHS):
            assert_close(result[row, :length], output[row, :length], atol=ATOL)
    blind = shown[True].weights[0, :, 0 if direction == "forward" else -1]
    assert (blind == 0).all()  # nothing on its side
