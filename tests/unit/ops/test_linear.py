"""Products by oneDNN against PyTorch's own, on any CPU whose PyTorch has oneDNN."""

import pytest
import torch
import torch.nn.functional as F

from muse_plugin.modules.linear import Linear
from muse_plugin.ops import linear as module
from muse_plugin.ops.linear import linear, weight_gradient

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN")


@pytest.fixture(autouse=True)
def onednn(monkeypatch):
    """oneDNN multiplies, however small the matrices and whatever the processor; counts its products."""
    calls = []
    original = module._lay_out
    monkeypatch.setattr(module, "is_onednn_faster", lambda: True)
    monkeypatch.setattr(module, "_SMALLEST", 0)
    monkeypatch.setattr(module, "_lay_out", lambda x: calls.append(1) or original(x))
    return calls


def layouts(rows, columns):
    """A matrix in the three ways in which layers hold theirs: as it is, transposed, and as a slice of columns."""
    whole = torch.randn(rows, 3 * columns)
    return {
        "plain": torch.randn(rows, columns),
        "transposed": torch.randn(columns, rows).t(),
        "slice": whole[:, columns : 2 * columns],
    }


@pytest.mark.parametrize("layout", ["plain", "transposed", "slice"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("outputs", [5, 40])
def test_result_and_gradients_are_those_of_pytorch(onednn, layout, has_bias, outputs):
    x = torch.randn(7, 4, 24).transpose(0, 1).requires_grad_()
    weight = layouts(outputs, 24)[layout].requires_grad_()
    inputs = [x, weight, torch.randn(outputs, requires_grad=True) if has_bias else None]
    expected, result = F.linear(*inputs), linear(*inputs)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    direction = torch.randn_like(expected)
    wanted = [tensor for tensor in inputs if tensor is not None]
    for got, own in zip(*(torch.autograd.grad(y, wanted, direction) for y in (result, expected)), strict=True):
        torch.testing.assert_close(got, own, rtol=1e-5, atol=1e-5)
    assert len(onednn) >= 4  # two operands each, forward and backward


def test_gradient_of_the_gradient_is_that_of_pytorch():
    x, weight = torch.randn(20, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)

    def penalty(map_):
        (grad,) = torch.autograd.grad((map_(x, weight) ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad(grad.norm(), weight)[0]

    torch.testing.assert_close(penalty(linear), penalty(F.linear))


@pytest.mark.parametrize(("outputs", "inputs"), [(40, 8), (8, 40)])
def test_weight_gradient_is_the_product_whatever_its_layout(outputs, inputs):
    grad, x = torch.randn(32, outputs), torch.randn(32, inputs)
    torch.testing.assert_close(weight_gradient(grad, x), grad.t() @ x)


def test_other_dtypes_autocast_tracing_and_few_rows_stay_with_pytorch(onednn):
    weight = torch.randn(5, 8)
    linear(torch.randn(2, 8), weight)
    linear(torch.randn(32, 8).double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(torch.randn(32, 8), weight).dtype == torch.bfloat16
    torch.jit.trace(lambda x: linear(x, weight), torch.randn(32, 8), check_trace=False)
    assert onednn == []


def test_a_training_step_multiplies_by_onednn(onednn):
    from muse_plugin.ops.linear_cross_entropy import linear_cross_entropy

    features, weight = torch.randn(40, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    target = torch.randint(30, (40,))
    loss = linear_cross_entropy(features, weight, target, label_smoothing=0.1, chunk_size=16)[0]
    loss.backward()
    assert onednn
    log_probs = F.log_softmax(F.linear(features, weight), dim=-1)
    eps = 0.1 / 29
    nll = -log_probs.gather(1, target[:, None]).sum()
    torch.testing.assert_close(loss, (1 - 0.1 - eps) * nll - eps * log_probs.sum())


def test_layers_multiply_by_onednn_in_training_alone(onednn):
    layer = Linear(8, 5)
    x = torch.randn(32, 8)
    trained = layer(x)
    assert len(onednn) == 2
    torch.testing.assert_close(layer.eval()(x), trained)
    assert len(onednn) == 2
