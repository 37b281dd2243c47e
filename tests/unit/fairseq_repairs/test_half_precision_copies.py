"""Gradients and weights of half precision are copied all at once, as fairseq copies them one by one."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
from torch import nn

SHAPES = [(3, 4), (5,), (1, 1, 7), (2, 3)]


@pytest.fixture
def optimizer():
    """fairseq's layout for a GPU, one tensor of float32 for all weights of a device, on the CPU; the last one extra."""
    params = [nn.Parameter(torch.randn(shape).half()) for shape in SHAPES]
    for p in params[:2] + params[3:]:
        p.grad = torch.randn_like(p)
    params[1].grad = torch.randn(10).half()[::2]  # not contiguous
    flat = nn.Parameter(torch.randn(sum(p.numel() for p in params) + 5))
    flat.grad = torch.full_like(flat, 9)
    return SimpleNamespace(fp32_params={None: flat}, fp16_params=params, has_flat_params=True, _needs_sync=True)


def test_gradients_reach_the_one_tensor_once(optimizer):
    params, flat = optimizer.fp16_params, optimizer.fp32_params[None]
    _FP16OptimizerMixin._sync_fp16_grads_to_fp32(optimizer)
    expected = [torch.zeros(p.numel()) if p.grad is None else p.grad.float().flatten() for p in params]
    assert torch.equal(flat.grad, torch.cat([*expected, torch.full((5,), 9.0)]))
    assert not optimizer._needs_sync
    flat.grad.zero_()
    _FP16OptimizerMixin._sync_fp16_grads_to_fp32(optimizer)
    assert not flat.grad.any()


def test_weights_come_back_from_the_one_tensor(optimizer):
    _FP16OptimizerMixin._sync_fp32_params_to_fp16(optimizer)
    weights = torch.cat([p.data.flatten() for p in optimizer.fp16_params])
    assert torch.equal(weights, optimizer.fp32_params[None].data[:-5].half())


@pytest.mark.parametrize("name", ["_sync_fp16_grads_to_fp32", "_sync_fp32_params_to_fp16"])
def test_one_call_copies_all(optimizer, monkeypatch, name):
    calls = []
    copy = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *lists: calls.append(len(lists[0])) or copy(*lists))
    getattr(_FP16OptimizerMixin, name)(optimizer)
    assert calls == [len(SHAPES)]


def test_a_copy_for_each_parameter_is_fairseqs_own():
    params = [nn.Parameter(torch.randn(2).bfloat16()) for _ in range(2)]
    params[0].grad = torch.ones(2).bfloat16()
    copies = [nn.Parameter(torch.full((2,), value)) for value in (0.5, 0.25)]
    optimizer = SimpleNamespace(fp32_params=copies, fp16_params=params, has_flat_params=False, _needs_sync=True)
    _FP16OptimizerMixin._sync_fp16_grads_to_fp32(optimizer)
    assert [copy.grad.tolist() for copy in copies] == [[1, 1], [0, 0]]
    _FP16OptimizerMixin._sync_fp32_params_to_fp16(optimizer)
    assert [p.tolist() for p in params] == [[0.5, 0.5], [0.25, 0.25]]
