"""Low-rank attention against loops over its equations; what its norm and its heads cannot do."""

import logging
import math
import re

import pytest
import torch
from support.helpers import assert_close
from support.layers import pad_rows

from muse_plugin.modules.low_rank_attention import LowRankAttention

LENGTHS = (5, 1, 3)
WIDTH, WORDS, HEADS = 4, 3, 3
SETTINGS = {
    "published": {},
    "rank_two": {"rank": 2},
    "mean": {"context": "mean", "context_size": WORDS},
    "no_norm": {"l2_norm": False},
    "all": {"rank": 3, "context": "mean", "context_size": WORDS, "l2_norm": False},
}


def make_pooling(std=0.8, **settings):
    torch.manual_seed(5)
    pooling = LowRankAttention(WIDTH, **{"num_heads": HEADS, **settings}).double()
    for parameter in pooling.parameters():
        torch.nn.init.normal_(parameter, std=std)  # weights far from even
    return pooling


def make_batch(filling=50.0, longer=0):
    """States and words of sentences, and both padded; the mask of the padding."""
    generators = [torch.Generator(torch.get_default_device()).manual_seed(n) for n in LENGTHS]
    rows = [
        tuple(torch.randn(n, width, generator=g).double() for width in (WIDTH, WORDS))
        for n, g in zip(LENGTHS, generators, strict=True)
    ]
    states, _, mask = pad_rows([states for states, _ in rows], filling, longer)
    words, _, _ = pad_rows([words for _, words in rows], filling, longer)
    return rows, states, words, mask


def dot(left, right):
    return sum(float(x) * float(y) for x, y in zip(left, right, strict=True))


def weights_by_hand(pooling, states, words):
    """A, head by head, of one sentence: the equations word by word."""
    if pooling.context is None:
        context = [sum(float(word[d]) for word in words) / len(words) for d in range(words.shape[1])]
    else:
        context = pooling.context
    heads, rank = pooling.num_heads, pooling.rank
    scores = []
    for state in states:
        hidden = [
            math.tanh(dot(row, state) + float(bias))
            for row, bias in zip(pooling.hidden.weight, pooling.hidden.bias, strict=True)
        ]
        score = []
        for head in range(heads):
            total = 0.0
            for r in range(rank):
                p, q = pooling.context_factors.weight[head * rank + r], pooling.state_factors.weight[head * rank + r]
                total += dot(p, context) * dot(q, hidden)
            score.append(math.tanh(total))
        norm = math.sqrt(sum(x * x for x in score))
        scores.append([x / max(norm, pooling.epsilon) for x in score] if pooling.l2_norm else score)
    weights = []
    for head in range(heads):
        exps = [math.exp(score[head]) for score in scores]
        weights.append([e / sum(exps) for e in exps])
    return torch.tensor(weights).double()


@torch.no_grad()
@pytest.mark.parametrize("name", SETTINGS)
def test_weights_and_vectors_are_those_of_the_equations_and_padding_is_not_read(name):
    pooling = make_pooling(**SETTINGS[name])
    for filling, longer in ((50.0, 0), (math.nan, 4), (-math.inf, 1)):
        rows, states, words, mask = make_batch(filling, longer)
        heads = pooling(states, mask, words)
        out = heads.vectors.flatten(1)
        for i, (own_states, own_words) in enumerate(rows):
            expected = weights_by_hand(pooling, own_states, own_words)
            n = len(own_states)
            assert_close(heads.weights[i, :, :n], expected, atol=1e-7)
            assert_close(heads.weights[i, :, n:], torch.zeros(HEADS, states.shape[1] - n).double(), atol=0, rtol=0)
            vectors = torch.stack([sum(w * s for w, s in zip(row, own_states, strict=True)) for row in expected])
            assert_close(heads.vectors[i], vectors, atol=1e-6)
            assert_close(out[i], torch.cat([*vectors]), atol=1e-6)
            assert_close(pooling(own_states[None], None, own_words[None]).vectors[0].flatten(), out[i], atol=1e-12)


@torch.no_grad()
def test_weights_of_a_head_sum_to_one_and_differ_by_at_most_e_squared():
    for norm in (True, False):
        pooling = make_pooling(std=9.0, l2_norm=norm)
        weights = pooling(torch.randn(2, 40, WIDTH).double() * 9).weights
        assert_close(weights.sum(dim=2), torch.ones(2, HEADS).double(), atol=1e-12)
        ratio = (weights.amax(dim=2) / weights.amin(dim=2)).max()
        assert 2 < ratio <= math.exp(2) + 1e-9


def test_one_head_with_the_norm_cannot_learn_and_says_so_once(caplog):
    with caplog.at_level(logging.WARNING):
        pooling = make_pooling(num_heads=1)
        for _ in range(2):
            pooling.float()(torch.randn(3, 6, WIDTH)).vectors.square().sum().backward()
            pooling.double()(torch.randn(3, 6, WIDTH).double()).vectors.square().sum().backward()
        make_pooling(num_heads=1, l2_norm=False)
        make_pooling(num_heads=2)
    assert [record.getMessage() for record in caplog.records] == [
        "low-rank attention with one head and the l2 norm cannot learn where to look: each score is +1 or -1 and its "
        "gradient zero; use more heads, or no norm."
    ]
    for factors in (pooling.context_factors, pooling.state_factors):
        assert not factors.weight.grad.any()
    free = make_pooling(num_heads=1, l2_norm=False)
    free(torch.randn(3, 6, WIDTH).double()).vectors.square().sum().backward()
    assert free.state_factors.weight.grad.abs().max() > 1e-3


@torch.no_grad()
def test_the_norm_of_one_head_is_that_of_the_equation():
    pooling, free = make_pooling(num_heads=1, epsilon=0.1), make_pooling(num_heads=1, l2_norm=False)
    states = torch.randn(9, 40, WIDTH).double()
    scores = free.score(states, None, None)
    assert 0 < (scores.abs() < 0.1).sum() < scores.numel()  # both sides of epsilon
    assert_close(pooling.score(states, None, None), scores / scores.abs().clamp(min=0.1), atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "epsilon"),
    [
        (torch.float64, 1e-12),
        (torch.float32, 1e-12),
        (torch.bfloat16, 1e-12),
        (torch.float16, 1e-3),  # gradients grow by 1 / epsilon, and float16 ends at 65,504
    ],
)
def test_scores_of_zero_stay_zero_and_give_finite_gradients(dtype, epsilon):
    """A context of zeros: every word of every head scores 0, so that all weigh the same."""
    pooling = make_pooling(context="mean", context_size=WORDS, epsilon=epsilon).to(dtype)
    states, words = torch.randn(2, 5, WIDTH).to(dtype), torch.zeros(2, 5, WORDS, dtype=dtype, requires_grad=True)
    heads = pooling(states, None, words)
    assert_close(heads.weights.double(), torch.full((2, HEADS, 5), 0.2).double(), atol=1e-7)
    heads.vectors.sum().backward()
    assert words.grad.any()
    assert words.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in pooling.parameters())


def test_tiny_scores_are_not_blown_up_to_unit_length():
    tiny = make_pooling(std=1e-5, epsilon=10.0)
    assert tiny(torch.randn(2, 5, WIDTH).double()).weights.std() < 1e-6


@torch.no_grad()
def test_large_products_that_cancel_are_not_nan_in_float16():
    pooling = make_pooling(rank=2)
    torch.nn.init.constant_(pooling.hidden.bias, 5.0)
    for parameter, value in (
        (pooling.hidden.weight, 0.0),
        (pooling.context, 1.0),
        (pooling.context_factors.weight, 100.0),
    ):
        torch.nn.init.constant_(parameter, value)
    pooling.state_factors.weight[0::2], pooling.state_factors.weight[1::2] = 100.0, -100.0
    heads = pooling.half()(torch.randn(1, 5, WIDTH).half())  # 400 * 400 - 400 * 400, and float16 ends at 65,504
    assert_close(heads.weights, torch.full((1, HEADS, 5), 0.2), atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_document_without_words_gets_zeros_and_no_gradient_reaches_padding(name):
    pooling = make_pooling(**SETTINGS[name])
    _, states, words, mask = make_batch()
    mask[1] = True
    states.requires_grad_()
    words.requires_grad_()
    heads = pooling(states, mask, words)
    assert_close(heads.vectors[1], torch.zeros(HEADS, WIDTH).double(), atol=0, rtol=0)
    assert not heads.weights[1].any()
    (heads.vectors.square().sum() + heads.weights.square().sum()).backward()
    for read in (states, words) if pooling.context is None else (states,):
        assert read.grad.isfinite().all()
        assert not read.grad[mask].any()
        assert read.grad[~mask].any()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in pooling.parameters())


def test_gradients_are_those_of_the_function():
    pooling = make_pooling(rank=2, context="mean", context_size=WORDS)
    _, states, words, mask = make_batch(filling=0.0)
    inputs = (states.requires_grad_(), words.requires_grad_())
    assert torch.autograd.gradcheck(lambda s, w: pooling(s, mask, w), inputs)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.bfloat16) for name in SETTINGS), (next(iter(SETTINGS)), torch.float16)]
)
@pytest.mark.usefixtures("on_device")
def test_half_precision_stays_what_it_is_and_near(dtype, name):
    pooling = make_pooling(**SETTINGS[name])
    _, states, words, mask = make_batch(filling=0.0)
    expected = pooling(states, mask, words).vectors
    heads = pooling.to(dtype)(states.to(dtype), mask, words.to(dtype))
    assert heads.vectors.dtype == dtype
    assert heads.weights.dtype == torch.float32
    assert_close(heads.vectors.double(), expected, atol=0.05, why="bfloat16 has 8 bits, on numbers up to 2")


def test_it_starts_with_small_normal_numbers_and_has_the_parameters_of_the_paper():
    pooling = LowRankAttention(100, 15)
    counts = {name: p.numel() for name, p in pooling.named_parameters()}
    assert counts == {
        "context": 100,
        "hidden.weight": 10_000,
        "hidden.bias": 100,
        "context_factors.weight": 1_500,
        "state_factors.weight": 1_500,
    }
    for parameter in pooling.parameters():
        assert 0.08 < parameter.std() < 0.12
    assert sum(p.numel() for p in LowRankAttention(100, 15, rank=4, context="mean").parameters()) == 10_100 + 12_000
    assert str(LowRankAttention(8, 2, 3, "mean", 5)).splitlines()[1].strip() == (
        "heads=2, rank=3, context=mean, norm=l2, epsilon=1e-06"
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, but got 0."),
        ({"rank": 0}, "rank must be at least 1, but got 0."),
        *(
            (
                {"epsilon": epsilon},
                f"epsilon must be finite and at least 1e-12, but got {epsilon}.",
            )
            for epsilon in (0.0, 1e-13, math.nan, math.inf)
        ),
        ({"context": "max"}, "context must be one of learned, mean, but got 'max'."),
    ],
)
def test_raises_error_for_settings_that_cannot_work(settings, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        LowRankAttention(WIDTH, **settings)


def test_raises_error_for_vectors_of_another_width_and_missing_words():
    pooling = make_pooling(context="mean", context_size=WORDS)
    states = torch.randn(2, 5, WIDTH).double()
    for arguments, start in (
        ((torch.randn(2, 5, 6).double(),), "these heads were made for states of width 4, but got width 6; "),
        ((states, None, states), "this context was made for words of width 3, but got width 4; "),
        ((states,), "the context mean is the mean of the embedded words, but only states were given; "),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(start)}"):
            pooling(*arguments)
