"""The layer of the Multi-Scale Transformer against its equations, word by word, and what windows promise."""

import math
import re

import pytest
import torch
from support.helpers import assert_close
from support.layers import fill_layer, pad_rows, scales_of
from torch import nn

from muse_plugin.modules.attention_bias import Direction, MultiScaleWindows, Scale, SummedBias
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer

LENGTHS = (37, 1, 20, 2)
WINDOWS = [
    "1,1,3,5",
    "1,3,N/16,N/8",
    "N/16,N/8,N/4,N/2",
    "3,5,7,9",  # no head sees only its own word
    "1,1,1,1",  # every head does
    "1,3,N/4,all",
    "all,all,all,all",
    "N/4,1,all,3",  # not in the order of their sizes
]


def width_of(text, words):
    """How wide one window is in a sentence of so many words, read off the definition."""
    if text == "all":
        return 2 * words + 1
    width = max(1, words // int(text[2:])) if text.startswith("N/") else int(text)
    return width if width % 2 == 1 else width + 1


def make_layer(text="1,3,N/4,all", embed_dim=12, head_dim=3, **settings):
    torch.manual_seed(7)
    scales = scales_of(text)
    layer = MultiScaleLayer(embed_dim, len(scales), head_dim, MultiScaleWindows(scales), **settings).double()
    fill_layer(layer, std=0.6)  # far from even attention
    return layer.eval()


def rows_of(layer):
    """Weights and biases of queries, keys and values, each with one row block per head."""
    size, heads, identity_heads = layer.head_dim, layer.num_heads, layer.identity_heads
    counts = (identity_heads, identity_heads, heads - identity_heads, heads - identity_heads, heads)
    found = []
    for parameter in (layer.in_proj.weight, layer.in_proj.bias):
        quiet_q, quiet_k, query, key, value = parameter.split([count * size for count in counts])
        found.append([torch.cat([quiet_q, query]), torch.cat([quiet_k, key]), value])
    return list(zip(*found, strict=True))


def by_hand(layer, states, windows, divisor=None):
    """The equations for one sentence, shape (N, C): head by head, word by word."""
    size = layer.head_dim
    (wq, bq), (wk, bk), (wv, bv) = rows_of(layer)
    heads = []
    for head, text in enumerate(windows.split(",")):
        rows = slice(head * size, (head + 1) * size)
        reach = (width_of(text, len(states)) - 1) // 2
        out = []
        for j in range(len(states)):
            query = wq[rows] @ states[j] + bq[rows]
            seen = [i for i in range(len(states)) if abs(i - j) <= reach]
            logits = [query @ (wk[rows] @ states[i] + bk[rows]) / math.sqrt(divisor or size) for i in seen]
            weights = torch.stack(logits).exp() / torch.stack(logits).exp().sum()
            out.append(sum(w * (wv[rows] @ states[i] + bv[rows]) for w, i in zip(weights, seen, strict=True)))
        heads.append(torch.stack(out))
    update = torch.cat(heads, dim=1) @ layer.out_proj.weight.T + layer.out_proj.bias
    total = states + update.clamp(min=0)
    centred = total - total.mean(1, keepdim=True)
    norm = layer.layer_norm
    deviation = (centred.square().mean(1, keepdim=True) + norm.eps).sqrt()
    return centred / deviation * norm.weight + norm.bias


def make_batch(lengths=LENGTHS, width=12, longer=0, filling=9.0):
    """Sentences, the same padded with large numbers to one length and ``longer`` beyond, their lengths and mask."""
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(n, width, generator=generator, dtype=torch.float64) for n in lengths]
    return rows, *pad_rows(rows, filling, longer)


# ---- the equations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", WINDOWS)
def test_a_batch_of_uneven_sentences_equals_the_equations(text):
    layer = make_layer(text)
    rows, batch, lengths, mask = make_batch()
    out = layer(batch, lengths, mask)
    for i, row in enumerate(rows):
        assert_close(out[i, : len(row)], by_hand(layer, row, text), atol=1e-11, why=f"{len(row)} words")
    assert out.isfinite().all()


@pytest.mark.parametrize(("embed_dim", "head_dim"), [(7, 5), (12, 1), (5, 8)])
def test_heads_times_width_need_not_be_the_width_of_the_states(embed_dim, head_dim):
    text = "1,3,N/4"
    layer = make_layer(text, embed_dim, head_dim)
    rows, batch, lengths, mask = make_batch((9, 4), embed_dim)
    out = layer(batch, lengths, mask)
    for i, row in enumerate(rows):
        assert_close(out[i, : len(row)], by_hand(layer, row, text), atol=1e-11)


@pytest.mark.parametrize("text", ["1,3,N/4,all", "3,3,3,3"])
def test_logits_are_divided_by_the_root_of_a_head_or_of_the_model(text):
    rows, batch, lengths, mask = make_batch((9, 4))
    results = []
    for scales_by_model, divisor in ((False, 3), (True, 12)):
        layer = make_layer(text, scales_by_model=scales_by_model)
        results.append(layer(batch, lengths, mask))
        for i, row in enumerate(rows):
            assert_close(results[-1][i, : len(row)], by_hand(layer, row, text, divisor), atol=1e-11)
    assert (results[0] - results[1])[0].abs().max() > 1e-2


@pytest.mark.parametrize("text", ["1,3,N/4,all", "1,1,1,1", "3,5,7,9"])
def test_gradients_equal_those_of_the_equations(text):
    layer = make_layer(text)
    rows, batch, lengths, mask = make_batch((9, 4, 1))
    weights = torch.randn(9, 12, dtype=torch.float64)
    results = []
    for fast in (True, False):
        layer.zero_grad()
        if fast:
            out = layer(batch, lengths, mask)
            parts = [out[i, : len(row)] for i, row in enumerate(rows)]
        else:
            parts = [by_hand(layer, row, text) for row in rows]
        sum((part * weights[: len(part)]).sum() for part in parts).backward()
        results.append({name: parameter.grad.clone() for name, parameter in layer.named_parameters()})
    for name, expected in results[1].items():
        assert_close(results[0][name], expected, atol=1e-10, why=name)


def test_windows_wide_open_are_plain_multi_head_attention():
    layer = make_layer("all,all,all,all")
    plain = nn.MultiheadAttention(12, 4, batch_first=True).double().eval()
    (wq, bq), (wk, bk), (wv, bv) = rows_of(layer)
    with torch.no_grad():
        plain.in_proj_weight.copy_(torch.cat([wq, wk, wv]))
        plain.in_proj_bias.copy_(torch.cat([bq, bk, bv]))
        plain.out_proj.load_state_dict(layer.out_proj.state_dict())
    _, batch, lengths, mask = make_batch()
    attended, _ = plain(batch, batch, batch, key_padding_mask=mask, need_weights=False)
    expected = layer.layer_norm(batch + attended.relu())
    assert_close(layer(batch, lengths, mask)[~mask], expected[~mask], atol=1e-11)


# ---- windows of one word ------------------------------------------------------------------------------------------


def test_a_layer_of_windows_of_one_word_works_on_every_word_by_itself():
    layer = make_layer("1,1,1,1")
    _, batch, lengths, _ = make_batch((6,))
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x, lengths).sum(-1)[0], batch)[:, 0].abs().sum(-1)
    assert jacobian.shape == (6, 6)
    assert (jacobian[~torch.eye(6, dtype=torch.bool)] == 0).all()
    assert (jacobian.diagonal() > 0).all()


def test_queries_and_keys_of_windows_of_one_word_get_no_gradient_and_values_do():
    layer = make_layer("1,1,1,1").train()
    _, batch, lengths, mask = make_batch()
    layer(batch, lengths, mask)[~mask].square().mul(torch.arange(12.0)).sum().backward()
    for grad in (layer.in_proj.weight.grad, layer.in_proj.bias.grad):
        assert (grad[:24] == 0).all()
        assert (grad[24:].flatten(1) if grad.dim() > 1 else grad[24:, None]).any(1).all()


def test_only_heads_of_one_word_in_every_sentence_go_without_queries_and_keys():
    expected = {"1,1,1,1": 3, "1,1,3,5": 2, "1,N/16,N/8,N/4": 1, "3,5,7,9": 0, "N/16,1,1,1": 0}
    assert {text: make_layer(text).identity_heads for text in expected} == expected
    layer = make_layer("1,1,3,5")
    _, batch, lengths, mask = make_batch()
    layer(batch, lengths, mask)[~mask].square().mul(torch.arange(12.0)).sum().backward()
    used = layer.in_proj.weight.grad.any(1)
    assert used.tolist() == [False] * 12 + [True] * 24


# ---- neighbours in the batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", WINDOWS)
def test_padding_and_neighbours_in_the_batch_change_nothing(text):
    layer = make_layer(text)
    rows, short, lengths, mask = make_batch()
    _, long, _, long_mask = make_batch(longer=11, filling=-1e4)
    together, apart = layer(short, lengths, mask), layer(long, lengths, long_mask)
    for i, row in enumerate(rows):
        alone = layer(row[None], torch.tensor([len(row)]))[0]
        assert_close(together[i, : len(row)], alone, atol=1e-11)
        assert_close(apart[i, : len(row)], alone, atol=1e-11)
    assert apart.isfinite().all()


@pytest.mark.parametrize(("text", "reach"), [("3,3,3,3", 1), ("1,3,5,7", 3), ("N/4,N/4,N/4,N/4", 2)])
def test_one_layer_carries_a_word_as_far_as_the_widest_window(text, reach):
    layer = make_layer(text)
    _, batch, lengths, _ = make_batch((21,))
    changed = batch.clone()
    changed[0, 10] += 1
    moved = (layer(batch, lengths) - layer(changed, lengths)).abs().amax(-1)[0]
    assert moved.nonzero().flatten().tolist() == list(range(10 - reach, 11 + reach))


def test_no_word_knows_its_place():
    """There are no positions: with windows wide open, words may be shuffled."""
    layer = make_layer("1,1,all,all")
    _, batch, lengths, _ = make_batch((9,))
    order = torch.randperm(9)
    assert_close(layer(batch[:, order], lengths), layer(batch, lengths)[:, order], atol=1e-11)
    near = make_layer("1,3,3,all")
    assert not torch.allclose(near(batch[:, order], lengths), near(batch, lengths)[:, order], atol=1e-3)


# ---- sizes, noise, errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embed_dim", "heads", "head_dim", "matrices"), [(300, 10, 30, 360_600), (600, 5, 64, 769_200), (8, 3, 5, 496)]
)
def test_parameters_are_those_of_the_formula(embed_dim, heads, head_dim, matrices):
    windows = MultiScaleWindows([Scale(1), *[Scale(3)] * (heads - 1)])
    layer = MultiScaleLayer(embed_dim, heads, head_dim, windows)
    assert matrices == 4 * embed_dim * heads * head_dim + 2 * embed_dim
    assert sum(p.numel() for p in layer.parameters()) == matrices + 3 * heads * head_dim + embed_dim


@pytest.mark.parametrize("noise", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
@pytest.mark.parametrize("text", ["1,1,1,1", "3,3,N/4,all"])
def test_dropout_acts_in_training_only(noise, text):
    layer = make_layer(text, **noise)
    _, batch, lengths, mask = make_batch()
    assert_close(layer(batch, lengths, mask), make_layer(text)(batch, lengths, mask), atol=0, rtol=0)
    layer.train()
    assert not torch.equal(layer(batch, lengths, mask)[~mask], layer(batch, lengths, mask)[~mask])


@pytest.mark.parametrize("text", ["1,1,3,3", "3,1,1,3", "N/16,N/16,3,3"])
def test_dropout_of_weights_acts_on_every_head_however_its_window_is_written(text):
    layer = make_layer(text, attention_dropout=0.5).train()
    layer.out_proj, layer.layer_norm = nn.Identity(), nn.Identity()  # shows the heads side by side, after the ReLU
    _, batch, lengths, mask = make_batch()
    one, two = (layer(batch, lengths, mask)[~mask].unflatten(-1, (4, -1)) for _ in range(2))
    for head in range(4):
        assert not torch.equal(one[:, head], two[:, head]), head


def test_dropout_leaves_the_residual_alone():
    layer = make_layer("1,3,3,3", dropout=0.999).train()
    _, batch, lengths, _ = make_batch((200,))
    untouched = torch.isclose(layer(batch, lengths), layer.layer_norm(batch)).all(-1)
    assert untouched.double().mean() > 0.9


def test_windows_and_directions_can_be_summed():
    torch.manual_seed(1)
    scales, directions = [Scale(3)] * 2, ["forward", "backward"]
    layer = MultiScaleLayer(12, 2, 3, SummedBias([MultiScaleWindows(scales), Direction(directions, False)])).double()
    _, batch, lengths, _ = make_batch((7,))
    with torch.no_grad():
        layer.out_proj.weight[:, 3:] = 0  # only the head that looks back is left
    changed = batch.clone()
    changed[0, 3] += 1
    moved = (layer(batch, lengths) - layer(changed, lengths)).abs().amax(-1)[0]
    assert moved.nonzero().flatten().tolist() == [3, 4]


@pytest.mark.parametrize("sizes", [(0, 2, 3), (4, 2, 0)])
def test_raises_error_when_a_size_is_below_one(sizes):
    text = "embed_dim={}, num_heads={} and head_dim={}".format(*sizes)
    sentence = f"a multi-scale layer needs a width, heads and a width of a head of at least 1, but got {text}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        MultiScaleLayer(*sizes, MultiScaleWindows([Scale(1)] * 2))


def test_printed_layer_tells_its_sizes():
    assert "num_heads=4, head_dim=3, identity_heads=1" in repr(make_layer())
