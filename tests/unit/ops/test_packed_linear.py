"""Packed weights: every back end against the plain product, and what a named back end refuses."""

import pytest
import torch
import torch.nn.functional as F
from support.helpers import assert_close

from muse_plugin.ops import packed_linear
from muse_plugin.ops.packed_linear import PackedLinear


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(24, 16, generator=generator), torch.randn(24, generator=generator)


@pytest.mark.parametrize("backend", ["auto", "plain", "onednn"])
@pytest.mark.parametrize(
    ("shape", "has_bias"), [((1, 16), True), ((5, 16), False), ((3, 2, 16), True), ((0, 16), True)], ids=str
)
@torch.no_grad()
def test_exact_back_ends_equal_the_product(weights, backend, has_bias, shape):
    weight, bias = weights[0], weights[1] if has_bias else None
    x = torch.randn(shape)
    assert_close(PackedLinear(weight, bias, backend)(x), F.linear(x, weight, bias))


@torch.no_grad()
def test_strided_input_is_read_right(weights):
    x = torch.randn(4, 3, 16).transpose(0, 1)
    for backend in ("plain", "onednn", "int8"):
        packed = PackedLinear(*weights, backend)
        assert_close(packed(x), packed(x.contiguous()), atol=0 if backend == "int8" else 1e-5)


@torch.no_grad()
def test_eight_bits_stay_within_their_rounding(weights):
    weight, bias = weights
    x = torch.randn(6, 16)
    exact, rounded = F.linear(x, weight, bias), PackedLinear(weight, bias, "int8")(x)
    # Half a step of the weight (1/127 of its row's largest) and of x (7 bits of its range), over 16 terms.
    step_w, step_x = weight.abs().amax(1) / 127 / 2, (x.max() - x.min()) / 127 / 2
    bound = 16 * (step_w * x.abs().max() + step_x * weight.abs().amax(1) + step_w * step_x)
    assert ((rounded - exact).abs() <= bound).all()
    assert not torch.equal(rounded, exact)
    assert F.cosine_similarity(rounded.flatten(), exact.flatten(), dim=0) > 0.999


@torch.no_grad()
def test_later_changes_of_the_weight_have_no_effect(weights):
    weight, bias = (tensor.clone() for tensor in weights)
    x = torch.randn(2, 16)
    packed = {backend: PackedLinear(weight, bias, backend) for backend in ("plain", "onednn", "int8")}
    before = {backend: linear(x) for backend, linear in packed.items()}
    weight.zero_()
    bias.zero_()
    for backend, linear in packed.items():
        assert_close(linear(x), before[backend], atol=0, rtol=0, why=backend)


def test_auto_leaves_other_dtypes_to_the_plain_product(weights):
    assert PackedLinear(weights[0]).backend == "onednn"
    assert PackedLinear(weights[0].double()).backend == "plain"
    assert PackedLinear(weights[0].bfloat16()).backend == "plain"


@pytest.mark.parametrize(
    ("dtype", "backend", "sentence"),
    [
        (torch.float64, "onednn", r"needs float32 on a CPU .*, but got torch.float64 on cpu; use backend='plain'"),
        (
            torch.float16,
            "int8",
            r"need a float32 model on the CPU, but got torch.float16 on cpu; compute there",
        ),
    ],
)
def test_a_named_back_end_that_cannot_run_raises_and_does_not_fall_back(weights, dtype, backend, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        PackedLinear(weights[0].to(dtype), None, backend)


def test_an_unknown_back_end_is_refused_with_the_choices(weights):
    with pytest.raises(ValueError, match=r"must be one of auto, plain, onednn, int8, but got 'mkl'"):
        PackedLinear(weights[0], backend="mkl")


def test_without_onednn_auto_is_plain(weights, monkeypatch):
    monkeypatch.setattr(packed_linear, "_runs_onednn", lambda weight: False)
    assert PackedLinear(weights[0]).backend == "plain"
