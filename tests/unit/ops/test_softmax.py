"""The softmax over a handful of numbers; how quick it is, `muse-plugin benchmark conv` says."""

import pytest
import torch

from muse_plugin.ops.softmax import softmax


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 15, 16, 17])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_softmax_and_its_gradient_are_those_of_pytorch(size, dtype):
    logits = torch.randn(3, 5, size, dtype=dtype, requires_grad=True)
    expected = torch.softmax(logits, dim=-1, dtype=torch.promote_types(dtype, torch.float32))
    result = softmax(logits)
    assert result.shape == expected.shape
    torch.testing.assert_close(result, expected)
    direction = torch.randn_like(expected)
    gradients = [torch.autograd.grad(x, logits, direction)[0] for x in (result, expected)]
    torch.testing.assert_close(*gradients)


def test_weights_of_hidden_positions_are_zero_and_the_others_add_up_to_one():
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [-torch.inf, -torch.inf, 5.0]])
    result = softmax(logits)
    assert (result[logits.isinf()] == 0).all()
    torch.testing.assert_close(result.sum(-1), torch.ones(2))


def test_lowest_finite_logits_are_equal_weights():
    torch.testing.assert_close(softmax(torch.full((2, 5), torch.finfo(torch.float32).min)), torch.full((2, 5), 0.2))
