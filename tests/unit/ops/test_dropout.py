"""Dropout: exact rate and expectation, one byte kept per element, resumable, elsewhere as PyTorch has it."""

import pytest
import torch
import torch.nn.functional as F

from muse_plugin.ops.dropout import draw_mask, dropout

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_expectation(rate):
    count = 1_000_000
    y = dropout(torch.ones(count), rate)
    kept = y > 0
    spread = 5 * (rate * (1 - rate) / count) ** 0.5
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=spread)
    assert y.double().mean().item() == pytest.approx(1, abs=spread / (1 - rate))
    assert y[kept].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=2e-5 / (1 - rate))


def test_elements_are_independent():
    # Four neighbours share one random number: none may tell anything of another, in its row or the one below.
    y = (dropout(torch.ones(4000, 251), 0.5) > 0).double() - 0.5
    for i in range(4):
        for j in range(8):
            if i != j:
                assert abs((y[:, i] * y[:, j]).mean().item() * 4) < 0.08
    assert abs((y[1:] * y[:-1]).mean().item() * 4) < 0.005
    assert abs((y[:, 1:] * y[:, :-1]).mean().item() * 4) < 0.005


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((shape, torch.float32) for shape in ((), (1,), (3, 5, 7), (4, 0, 2))),
        *(((3, 5, 7), dtype) for dtype in (torch.float64, torch.bfloat16, torch.float16)),
    ],
)
def test_gradient_is_scaled_like_the_result(shape, dtype):
    x = torch.full(shape, 2.0, dtype=dtype, requires_grad=True)
    y = dropout(x, 0.5)
    y.sum().backward()
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert torch.equal(y, 2 * x.grad)
    assert set(x.grad.flatten().tolist()) <= {0.0, 2.0}


def test_gradient_of_the_gradient():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def run(x):
        torch.manual_seed(1)
        return dropout(x, 0.4).pow(3)

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


def test_strides_do_not_matter():
    x = torch.randn(5, 6, 7).transpose(0, 2)
    torch.manual_seed(1)
    y = dropout(x, 0.3)
    torch.manual_seed(1)
    assert torch.equal(y, dropout(x.contiguous(), 0.3))


def test_same_seed_same_mask_and_state_goes_on():
    torch.manual_seed(1)
    first, state, second = dropout(torch.ones(99), 0.5), torch.get_rng_state(), dropout(torch.ones(99), 0.5)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(second, dropout(torch.ones(99), 0.5))


def test_only_a_mask_of_one_byte_is_kept():
    kept = []
    x = torch.randn(100, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        dropout(x, 0.1)
    assert [(t.dtype, t.untyped_storage().nbytes()) for t in kept] == [(torch.bool, 100)]


@pytest.mark.parametrize("rate", [1e-9, 1 - 1e-9])
def test_rates_near_the_ends_stay_within_them(rate):
    mask, scale = draw_mask((100_000,), rate, CPU)
    assert mask.double().mean().item() == pytest.approx(1 - rate, abs=2e-4)
    assert 1 < scale <= 65536


def test_outside_training_and_without_a_rate_nothing_happens():
    x = torch.randn(3)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0) is x


def test_compiled_is_pytorchs_own():
    x = torch.randn(50, 3)
    compiled = torch.compile(dropout, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    y = compiled(x, 0.3)
    torch.manual_seed(1)
    assert torch.equal(y, F.dropout(x, 0.3))
