"""Head-wise match: against loops written from the equations, parameter counts, and all pairs at once."""

import itertools
import re

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules import head_match
from muse_plugin.modules.head_match import HeadWiseMatch, Match, VectorMatch

LEVELS, HEADS, WIDTH, CLASSES = 3, 4, 5, 2
ATOL = 1e-6  # float32 sums of a few products in another order
KINDS = [
    pytest.param(match, aggregation, hierarchy, per_level, levels, id=f"{match}-{aggregation}-{n}")
    for n, (match, aggregation, hierarchy, per_level, levels) in enumerate(
        itertools.product(
            ("element", "cosine", "bilinear"), ("max", "concat"), (True, False), (True, False), (1, LEVELS)
        )
    )
    if (match, aggregation) not in (("cosine", "max"), ("bilinear", "max"))
    if levels > 1 or (hierarchy and not per_level)  # which need several levels to make a difference
]


def build(*args, seed=0, **flags):
    torch.manual_seed(seed)
    return HeadWiseMatch(*args, **flags).eval()


def vectors(count, size, seed=1):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def relu(x):
    return [max(0.0, float(v)) for v in x]


def affine(weight, bias, x):
    return [
        sum(float(w) * v for w, v in zip(row, x, strict=True)) + float(b) for row, b in zip(weight, bias, strict=True)
    ]


def aggregate(kind, weight, bias, parts):
    joined = (
        [max(column) for column in zip(*parts, strict=True)] if kind == "max" else [v for part in parts for v in part]
    )
    return relu(affine(weight, bias, joined))


def match_by_hand(net, level, s, t):
    number = level if net.match.linear is not None and len(net.match.linear.weight) > 1 else 0
    if net.match.kind == "cosine":
        norms = [sum(v * v for v in x) ** 0.5 for x in (s, t)]
        return [sum(a * b for a, b in zip(s, t, strict=True)) / (norms[0] * norms[1])]
    if net.match.kind == "bilinear":
        table = net.match.bilinear[level if len(net.match.bilinear) > 1 else 0]
        return [sum(s[i] * float(table[i, o]) * t[o] for i in range(len(s)) for o in range(len(t)))]
    features = [*s, *t, *(a - b for a, b in zip(s, t, strict=True)), *(a * b for a, b in zip(s, t, strict=True))]
    return relu(affine(net.match.linear.weight[number], net.match.linear.bias[number], features))


def score_by_hand(net, s, t):
    """Eqs. 6 to 14, number by number, in double precision; s and t have the shape (L, H, D)."""
    levels, kind = len(s), net.head_aggregation.kind
    matched = [
        [match_by_hand(net, lv, a.tolist(), b.tolist()) for a, b in zip(s[lv], t[lv], strict=True)]
        for lv in range(levels)
    ]
    heads = net.head_aggregation.linear
    if levels > 1 and net.joined:
        u = aggregate(kind, heads.weight[0], heads.bias[0], [m for level in matched for m in level])
        return affine(net.output.weight, net.output.bias, u)
    hidden = []
    for level in range(levels):
        at = level if len(heads.weight) > 1 else 0
        o = aggregate(kind, heads.weight[at], heads.bias[at], matched[level])
        if levels == 1:  # single-level: o goes to Eq. 14
            return affine(net.output.weight, net.output.bias, o)
        at = level if len(net.level_linear.weight) > 1 else 0
        hidden.append(relu(affine(net.level_linear.weight[at], net.level_linear.bias[at], o)))
    last = net.level_aggregation.linear
    u = aggregate(kind, last.weight[0], last.bias[0], hidden)
    return affine(net.output.weight, net.output.bias, u)


@torch.no_grad()
@pytest.mark.parametrize(("match", "aggregation", "hierarchy", "per_level", "levels"), KINDS)
def test_scores_are_those_of_the_equations(match, aggregation, hierarchy, per_level, levels):
    net = build(levels, HEADS, WIDTH, CLASSES, match, aggregation, 6, hierarchy, per_level).double()
    first, second = vectors(2, net.vector_size).double(), vectors(2, net.vector_size, 2).double()
    expected = [
        score_by_hand(net, s.view(levels, HEADS, WIDTH), t.view(levels, HEADS, WIDTH))
        for s, t in zip(first, second, strict=True)
    ]
    assert_close(net(first, second), expected, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(("match", "aggregation", "hierarchy", "per_level", "levels"), KINDS)
def test_all_pairs_are_the_pairs_one_by_one_in_blocks_of_any_size(
    match, aggregation, hierarchy, per_level, levels, monkeypatch
):
    net = build(levels, HEADS, WIDTH, CLASSES, match, aggregation, 6, hierarchy, per_level)
    first, second = vectors(5, net.vector_size), vectors(3, net.vector_size, 2)
    expected = [[net(s[None], t[None])[0].tolist() for t in second] for s in first]
    for block in (1 << 18, 16):
        monkeypatch.setattr(head_match, "_BLOCK", block)
        assert_close(net.score_all_pairs(first, second), expected, atol=ATOL)


@torch.no_grad()
def test_all_pairs_of_more_sentences_than_a_block_has_columns():
    net = build(2, 2, 3, CLASSES)
    first, second = vectors(3, net.vector_size), vectors(1100, net.vector_size, 2)
    expected = torch.stack([net(row.expand(len(second), -1), second) for row in first])
    assert_close(net.score_all_pairs(first, second), expected, atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("block", [1 << 18, 4])
def test_classic_match_is_one_comparison_by_element_and_a_linear_layer(block, monkeypatch):
    monkeypatch.setattr(head_match, "_BLOCK", block)
    torch.manual_seed(0)
    net = VectorMatch(WIDTH, CLASSES, 7).eval()
    s, t = vectors(4, WIDTH), vectors(4, WIDTH, 2)
    linear = net.match.linear
    hidden = torch.relu(torch.cat([s, t, s - t, s * t], 1) @ linear.weight[0].T + linear.bias[0])
    assert_close(net(s, t), hidden @ net.output.weight.T + net.output.bias, atol=ATOL)
    one_by_one = torch.stack([net(row.expand(4, -1), t) for row in s])
    assert_close(net.score_all_pairs(s, t), one_by_one, atol=ATOL)
    assert VectorMatch(1024, 3).match.linear.weight.numel() == 4096 * 1024


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_of_bert_large_are_as_many_as_the_equations_say():
    net = build(24, 16, 64, 3)
    assert net.vector_size == 24 * 16 * 64
    assert count(net.match) == 16_448
    assert count(net.head_aggregation) == count(net.level_linear) == count(net.level_aggregation) == 4_160
    concat = build(24, 16, 64, 3, aggregation="concat")
    assert (count(concat.head_aggregation), count(concat.level_aggregation)) == (65_600, 98_368)
    at_once = build(24, 16, 64, 3, aggregation="concat", hierarchy=False)
    assert at_once.level_linear is None
    assert at_once.level_aggregation is None
    assert count(at_once.head_aggregation) == 384 * 64 * 64 + 64
    # A number per head: as wide as there are heads, not heads times their width.
    assert count(build(24, 16, 64, 3, "cosine", "concat").head_aggregation) == 16 * 64 + 64
    assert count(build(24, 16, 64, 3, per_level=True).match) == 24 * 16_448
    single = build(1, 16, 64, 3)  # one layer: nothing to aggregate over
    assert single.level_linear is None
    assert single.level_aggregation is None


@torch.no_grad()
@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_single_level_state_of_an_earlier_version_scores_as_it_did(is_earlier):
    """They had the layer of Eq. 8 behind their only level; states without it stay as they are."""
    new, earlier = build(1, HEADS, WIDTH, CLASSES), build(1, HEADS, WIDTH, CLASSES)
    earlier.level_linear = head_match.LevelLinear(1, WIDTH, WIDTH)
    maker_of_state = earlier if is_earlier else build(1, HEADS, WIDTH, CLASSES)
    state = {f"matcher.{name}": value for name, value in maker_of_state.state_dict().items()}
    net = torch.nn.ModuleDict({"matcher": new})
    net.load_state_dict(state, strict=True)
    first, second = vectors(2, new.vector_size), vectors(2, new.vector_size, 2)
    hidden = new.head_aggregation(new.match(first.view(2, 1, HEADS, WIDTH), second.view(2, 1, HEADS, WIDTH)))
    if is_earlier:
        hidden = torch.relu(earlier.level_linear(hidden))
    assert_close(new(first, second), new.output(hidden.squeeze(1)))
    assert_close(new.score_all_pairs(first, second).diagonal().T, new(first, second), atol=ATOL)


@torch.no_grad()
def test_a_match_is_of_head_i_with_head_i_and_the_order_of_heads_is_lost_in_a_maximum():
    net = build(LEVELS, HEADS, WIDTH, CLASSES)
    s, t = (vectors(2, net.vector_size, seed).view(2, LEVELS, HEADS, WIDTH) for seed in (1, 2))
    before = net(s.flatten(1), t.flatten(1))
    order = torch.tensor([2, 0, 3, 1])
    assert_close(net(s[:, :, order].flatten(1), t[:, :, order].flatten(1)), before, atol=ATOL)
    assert (net(s[:, :, order].flatten(1), t.flatten(1)) - before).abs().max() > 1e-3
    assert (net(t.flatten(1), s.flatten(1)) - before).abs().max() > 1e-3  # s-t has a sign


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cosine_of_nothing_is_finite_in_half_precision(dtype):
    net = build(2, 3, 4, 2, match="cosine", aggregation="concat").to(dtype)
    s, t = (vectors(3, net.vector_size, seed=seed).to(dtype) for seed in (1, 2))
    s[0] = 0
    assert net(s, t).isfinite().all()
    assert net.score_all_pairs(s, t).isfinite().all()


def test_cosine_of_nothing_is_zero():
    match = Match("cosine", 1, 3, 3)
    zero, one = torch.zeros(1, 1, 1, 3), torch.ones(1, 1, 1, 3)
    assert_close(match(zero, one), torch.zeros(1, 1, 1, 1), atol=0)
    assert_close(match(one, one), torch.ones(1, 1, 1, 1), atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("hierarchy", [True, False])
def test_the_winning_head_is_the_one_that_makes_the_maximum(hierarchy):
    net = build(LEVELS, HEADS, WIDTH, CLASSES, hierarchy=hierarchy)
    first, second = vectors(6, net.vector_size), vectors(6, net.vector_size, 2)
    shares = net.winning_heads(first, second)
    assert shares.shape == (6, LEVELS, HEADS)
    matched = net.match(first.view(6, LEVELS, HEADS, WIDTH), second.view(6, LEVELS, HEADS, WIDTH))
    expected = torch.zeros(6, LEVELS, HEADS)
    for row, channel in itertools.product(range(6), range(WIDTH)):
        places = [(lv, h) for lv in range(LEVELS) for h in range(HEADS)]
        groups = [[p for p in places if p[0] == lv] for lv in range(LEVELS)] if hierarchy else [places]
        for group in groups:
            best = max(group, key=lambda place: matched[row, place[0], place[1], channel])
            if matched[row, best[0], best[1], channel] > 0:
                expected[row, best[0], best[1]] += 1 / WIDTH
    assert_close(shares, expected, atol=1e-6)
    assert shares.sum() > 0


def test_dropout_is_for_training_and_gradients_reach_all_parameters():
    net = HeadWiseMatch(LEVELS, HEADS, WIDTH, CLASSES, dropout=0.5)
    s, t = vectors(64, net.vector_size), vectors(64, net.vector_size, 2)
    assert not torch.equal(net(s, t), net(s, t))
    net(s, t).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())
    assert torch.equal(net.eval()(s, t), net(s, t))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2, 3, 2, "dot"), "kind must be one of element, cosine, bilinear, but got 'dot'."),
        ((1, 2, 3, 2, "element", "sum"), "kind must be one of max, concat, but got 'sum'."),
        (
            (1, 2, 3, 2, "cosine", "max"),
            "cosine and bilinear make one number of each head, of which the maximum would leave a single one; "
            "concatenate them.",
        ),
        (
            (0, 2, 3, 2),
            "head-wise match needs layers, heads, widths and classes of at least 1, but got 0, 2, 3 and 3, and 2.",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        HeadWiseMatch(*arguments)


def test_heads_win_only_a_maximum():
    net = build(1, 2, 3, 2, "cosine", "concat")
    with pytest.raises(
        ValueError, match=r"^heads win only where their maximum is taken, but this match concatenates them\.$"
    ):
        net.winning_heads(vectors(1, 6), vectors(1, 6))
