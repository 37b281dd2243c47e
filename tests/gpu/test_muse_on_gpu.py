"""The model on a GPU against the same model on the CPU."""

import copy

import pytest
import torch
from support.helpers import assert_close
from support.reference import NAMES, load_reference

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_in_float32_equal_those_of_the_cpu(name, cuda):
    reference = load_reference(name)
    model, batch = reference.converted_model(), reference.batch("padded")
    inputs = [batch[key] for key in ("src_tokens", "src_lengths", "prev_output_tokens")]
    expected, _ = model(*inputs)
    actual, _ = model.to(cuda)(*(tensor.to(cuda) for tensor in inputs))
    real = batch["prev_output_tokens"].ne(1)
    assert_close(actual.cpu()[real], expected[real], atol=1e-4)  # other summation order on the GPU


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_finite_and_near(name, dtype, cuda):
    reference = load_reference(name)
    model, batch = reference.converted_model().to(cuda), reference.batch("padded")
    inputs = [batch[key].to(cuda) for key in ("src_tokens", "src_lengths", "prev_output_tokens")]
    with torch.no_grad():
        expected, _ = model(*inputs)
    half = copy.deepcopy(model).to(dtype)
    logits, _ = half(*inputs)
    logits.float().pow(2).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters())
    real = batch["prev_output_tokens"].to(cuda).ne(1)
    assert_close(logits[real].float(), expected[real], atol=0.3 if dtype is torch.bfloat16 else 0.05)
