"""A direction of the Distance-based Self-Attention Network against Eqs. 7-12, and what its masks promise."""

import math

import pytest
import torch
from support.helpers import assert_close
from support.layers import fill_layer, pad_random_rows

from muse_plugin.modules.distance_attention import DistanceAttentionBlock, MaskedAttention

LENGTHS = (7, 1, 4, 2)
WIDTH, HEADS, HEAD_DIM = 12, 3, 4
DIRECTIONS = ("forward", "backward")


def make(kind=DistanceAttentionBlock, direction="forward", **settings):
    torch.manual_seed(7)
    sizes = (WIDTH, HEADS) if kind is MaskedAttention else (WIDTH, HEADS, 16)
    module = kind(*sizes, direction, **settings).double()
    fill_layer(module, std=0.6)  # logits far from even
    return module.eval()


def make_batch(filling=20.0, longer=0):
    return pad_random_rows(LENGTHS, WIDTH, filling, longer)


def attend_by_hand(attention, row, direction, alpha):
    """The attention of one sentence: loops over heads, queries and keys."""
    query, key, value = (row @ matrix.T for matrix in attention.in_proj.weight.chunk(3))
    out = []
    for i in range(len(row)):
        heads = []
        for head in range(HEADS):
            at = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)

            def part(x, j, number, at=at):
                return x[j, at] if attention.in_norms is None else attention.in_norms[number](x[j, at])

            keys = [j for j in range(len(row)) if (j < i if direction == "forward" else j > i)]
            total, summed = 0.0, torch.zeros(HEAD_DIM).double()
            for j in keys:
                logit = (part(query, i, 0) * part(key, j, 1)).sum() / math.sqrt(HEAD_DIM) + alpha * -abs(i - j)
                total = total + torch.exp(logit)
                summed = summed + torch.exp(logit) * part(value, j, 2)
            heads.append(summed / total if keys else summed)
        out.append(attention.out_proj(torch.cat(heads)))
    out = torch.stack(out)
    return out if attention.out_norm is None else attention.out_norm(out)


@torch.no_grad()
@pytest.mark.parametrize(("alpha", "norms"), [(1.5, True), (0.0, True), (0.25, False)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_attention_is_that_of_the_equations(direction, alpha, norms):
    attention = make(MaskedAttention, direction, alpha=alpha, norms=norms)
    x, lengths, mask = make_batch()
    out = attention(x, lengths, mask)
    assert out.isfinite().all()
    for i, n in enumerate(LENGTHS):
        assert_close(out[i, :n], attend_by_hand(attention, x[i, :n], direction, alpha), atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_block_is_gate_norm_network_norm(direction, norms):
    block = make(direction=direction, alpha=0.5, norms=norms)
    x, lengths, mask = make_batch()
    out = block(x, lengths, mask)
    for i, n in enumerate(LENGTHS):
        source, context = x[i, :n], attend_by_hand(block.attention, x[i, :n], direction, 0.5)
        source, context = source @ block.gate.source_proj.weight.T, context @ block.gate.context_proj.weight.T
        if norms:
            source, context = block.gate.source_norm(source), block.gate.context_norm(context)
        share = torch.sigmoid(source + context + block.gate.bias)
        gated = block.gate_norm(share * source + (1 - share) * context)
        hidden = (gated @ block.ffn[0].weight.T + block.ffn[0].bias).clamp(min=0)
        expected = block.output_norm(gated + hidden @ block.ffn[2].weight.T + block.ffn[2].bias)
        assert_close(out[i, :n], expected, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize(("direction", "blind"), [("forward", 0), ("backward", -1)])
def test_a_word_without_a_word_on_its_side_gets_what_zeros_give(direction, blind):
    attention = make(MaskedAttention, direction)
    for n in (1, 5):
        x = torch.randn(1, n, WIDTH).double()
        expected = attention.out_norm(attention.out_proj.bias)
        out = attention(x, torch.tensor([n]))[0]
        assert_close(out[blind], expected, atol=1e-12)
        others = torch.cat([out[1:], out[:0]]) if blind == 0 else out[:-1]
        assert all((row - expected).abs().max() > 1e-2 for row in others)


@torch.no_grad()
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_context_comes_from_one_side_alone_and_never_from_the_word_itself(direction):
    """Without norms, so that values are not mixed with queries: each value is changed on its own."""
    attention = make(MaskedAttention, direction, norms=False)
    x = torch.randn(1, 6, WIDTH).double()
    before = attention(x, torch.tensor([6]))
    for at in range(6):
        changed = x.clone()
        changed[0, at] += 1
        after = attention(changed, torch.tensor([6]))
        for other in range(6):
            if other == at:  # only its query is another one: with one key in sight, nothing changes
                alone = (other if direction == "forward" else 5 - other) <= 1
                assert torch.equal(after[0, other], before[0, other]) == alone
                continue
            seen = at < other if direction == "forward" else at > other
            assert torch.equal(after[0, other], before[0, other]) != seen


@torch.no_grad()
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_padding_changes_no_real_word(direction):
    block = make(direction=direction)
    x, lengths, mask = make_batch()
    before = block(x, lengths, mask)
    for longer, filling in ((0, -5.0), (6, 20.0), (6, 0.0)):
        y, _, wider = make_batch(filling, longer)
        after = block(y, lengths, wider)
        assert after.isfinite().all()
        for i, n in enumerate(LENGTHS):
            assert_close(after[i, :n], before[i, :n], atol=1e-11)
            assert_close(block(x[i : i + 1, :n], lengths[i : i + 1])[0], before[i, :n], atol=1e-11)


@torch.no_grad()
def test_distance_costs_more_the_farther_a_word_is():
    """With equal logits, neighbours differ by a factor of e^alpha."""
    attention = make(MaskedAttention, "forward", alpha=1.5, norms=False)
    attention.in_proj.weight[: 2 * WIDTH] = 0
    attention.in_proj.weight[2 * WIDTH :] = torch.eye(WIDTH)
    attention.out_proj.weight.copy_(torch.eye(WIDTH))
    attention.out_proj.bias.zero_()
    x = torch.zeros(1, 4, WIDTH).double()
    x[0, range(4), range(4)] = 1  # the value of word j has its weight in channel j
    weights = attention(x, torch.tensor([4]))[0, 3, :4]
    assert_close(weights[1] / weights[0], math.exp(1.5), atol=1e-12)
    assert_close(weights[2] / weights[1], math.exp(1.5), atol=1e-12)
    assert weights[3] == 0


@torch.no_grad()
def test_a_very_long_sentence_and_a_large_alpha_stay_finite():
    block = make(alpha=1e30).float()
    x = torch.randn(1, 700, WIDTH)
    out = block(x, torch.tensor([700]))
    assert out.isfinite().all()
    assert block.bfloat16()(x.bfloat16(), torch.tensor([700])).isfinite().all()


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gradients_are_finite_and_reach_no_padding(direction, norms):
    block = make(direction=direction, norms=norms)
    x, lengths, mask = make_batch()
    x.requires_grad_()
    block(x, lengths, mask)[~mask].square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in block.parameters())
    assert (x.grad[mask] == 0).all()
    assert x.grad[~mask].isfinite().all()


def test_gradients_are_right():
    block = make(alpha=0.5)
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x, torch.tensor([3])), x)


@torch.no_grad()
def test_dropout_stands_on_the_attention_and_within_the_gate():
    x, lengths, mask = make_batch()
    block = make(dropout=0.5)
    assert_close(block(x, lengths, mask), make()(x, lengths, mask), atol=0, rtol=0)
    seen = []
    block.gate.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    block.train()
    out = block(x, lengths, mask)
    ((source, context),) = seen
    assert torch.equal(source, x)
    clean = block.attention(x, lengths, mask)
    kept = context != 0
    assert_close(context[kept], 2 * clean[kept], atol=1e-12)
    assert 0.3 < kept.double().mean() < 0.7
    assert block.gate.dropout == 0.5
    block.gate.register_forward_hook(lambda module, inputs, result: torch.ones_like(result))
    assert torch.equal(block(x, lengths, mask), block(x, lengths, mask))  # no other place is noisy
    assert not torch.equal(out, block.eval()(x, lengths, mask))


@pytest.mark.parametrize(
    ("norms", "count"),
    # 3 * 300^2 + (300^2 + 300) + (2 * 300^2 + 300) + the network, then the norms of 3 * 60, 300, 2 * 300, 2 * 300
    [(False, 1_262_100 + 1_200), (True, 1_262_100 + 1_200 + 360 + 600 + 1_200)],
)
def test_a_direction_has_the_published_number_of_parameters(norms, count):
    block = DistanceAttentionBlock(300, 5, 1200, "forward", norms=norms)
    assert sum(p.numel() for p in block.parameters()) == count


def test_every_matrix_of_the_attention_starts_with_its_own_deviation():
    """Xavier: sqrt(2 / (C + C)) for each C x C matrix, not that of the three in one."""
    torch.manual_seed(1)
    attention = MaskedAttention(300, 5, "forward")
    for matrix in (*attention.in_proj.weight.chunk(3), attention.out_proj.weight):
        assert_close(matrix.std(), 300**-0.5, atol=1e-3, why="of 90,000 random numbers")


def test_words_that_see_nothing_do_not_rule_the_first_gradient():
    """Their layer norm reads the bias of W^O alone: of zeros, its gradient would be that of sqrt(0 + 1e-5)."""
    torch.manual_seed(1)
    block = DistanceAttentionBlock(60, 5, 120, "forward")
    direction = torch.randn(8, 6, 60)
    (block(torch.randn(8, 6, 60), torch.tensor([6] * 8)) * direction).sum().backward()
    assert block.attention.out_proj.bias.grad.norm() < 2 * block.attention.out_proj.weight.grad.norm()


def test_raises_error_for_heads_that_do_not_fit():
    with pytest.raises(
        ValueError,
        match=r"^embed_dim must be divisible by the number of attention heads, but got embed_dim=12 and 5 heads",
    ):
        DistanceAttentionBlock(12, 5, 16, "forward")


@pytest.mark.parametrize("alpha", [-1.0, math.inf, math.nan])
def test_raises_error_for_an_alpha_that_is_no_cost(alpha):
    with pytest.raises(ValueError, match=f"must be a finite number of at least 0, but got {alpha}"):
        DistanceAttentionBlock(12, 3, 16, "forward", alpha)


def test_raises_error_for_an_unknown_direction():
    with pytest.raises(ValueError, match=r"a direction must be one of forward, backward, both, but got 'left'\."):
        DistanceAttentionBlock(12, 3, 16, "left")
