"""The fused loss: numbers by hand, fairseq's function, gradients, dtypes, and its memory."""

import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from support.helpers import assert_close

from muse_plugin.ops import linear_cross_entropy as linear_cross_entropy_module
from muse_plugin.ops.linear_cross_entropy import linear_cross_entropy


def make(count=7, width=5, words=11, dtype=torch.float32):
    generator = torch.Generator(torch.get_default_device()).manual_seed(3)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(words, width, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    bias = torch.randn(words, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return features, weight, bias, torch.randint(words, (count,), generator=generator)


def fairseq_loss(features, weight, bias, target, smoothing):
    scores = torch.nn.functional.linear(features, weight, bias)
    return label_smoothed_nll_loss(torch.log_softmax(scores.float(), -1), target, smoothing, ignore_index=-1)


def test_three_tokens_by_hand():
    # Scores (0, 0), (log 3, 0), (0, log 3): the probabilities of word 0 are 1/2, 3/4, 1/4. All targets are word 0.
    features = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, math.log(3)]])
    loss, nll, correct, _ = linear_cross_entropy(
        features, torch.eye(2), torch.zeros(3, dtype=torch.long), label_smoothing=0.2, count_correct=True
    )
    by_hand = math.log(2) + math.log(4 / 3) + math.log(4)
    assert_close(nll, by_hand)
    # Two words: spread = 0.2 / 1, so that the loss is 0.6 nll + 0.2 (sum over both words of -log p).
    both = 2 * math.log(2) + 2 * (math.log(4 / 3) + math.log(4))
    assert_close(loss, 0.6 * by_hand + 0.2 * both)
    assert correct.item() == 2  # a tie counts


@pytest.mark.parametrize(
    ("smoothing", "has_bias", "chunk_size"),
    [
        *((0.1, True, chunk_size) for chunk_size in (1, 3, 7, 100, None)),
        *((smoothing, has_bias, 3) for smoothing, has_bias in ((0.0, True), (0.1, False), (0.0, False))),
    ],
)
@pytest.mark.usefixtures("on_device")
def test_loss_and_gradients_are_those_of_fairseq(smoothing, has_bias, chunk_size):
    features, weight, bias, target = make()
    inputs = [features, weight, bias] if has_bias else [features, weight]
    expected, expected_nll = fairseq_loss(features, weight, bias if has_bias else None, target, smoothing)
    expected_grads = torch.autograd.grad(expected * 3, inputs)
    loss, nll, *_ = linear_cross_entropy(features, weight, target, bias if has_bias else None, smoothing, chunk_size)
    assert_close(loss, expected, atol=0, rtol=1e-6)
    assert_close(nll, expected_nll, atol=0, rtol=1e-6)
    for actual, wanted in zip(torch.autograd.grad(loss * 3, inputs), expected_grads, strict=True):
        assert_close(actual, wanted, atol=2e-6, why="a different order of summation")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradcheck(smoothing):
    features, weight, bias, target = make(count=4, width=3, words=5, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda f, w, b: linear_cross_entropy(f, w, target, b, smoothing, 3)[0], (features, weight, bias)
    )


@pytest.mark.parametrize(("has_bias", "chunk_size"), [(True, 1), (True, 4), (True, 5), (False, 14), (True, None)])
@pytest.mark.usefixtures("on_device")
def test_pairs_have_the_loss_of_the_first_state_and_its_divergence_from_the_second(has_bias, chunk_size):
    features, weight, bias, _ = make(count=14)
    target, bias = torch.arange(7), bias if has_bias else None
    inputs = [features, weight, bias] if has_bias else [features, weight]
    expected, expected_nll = fairseq_loss(features[::2], weight, bias, target, 0.1)
    p, q = torch.nn.functional.linear(features, weight, bias).log_softmax(-1).view(7, 2, 11).unbind(1)
    expected_divergence = (p.exp() * (p - q)).sum()
    wanted = torch.autograd.grad((expected + 3 * expected_divergence) * 2, inputs)
    loss, nll, correct, divergence = linear_cross_entropy(
        features, weight, target, bias, 0.1, chunk_size, count_correct=True, divergence_weight=3.0
    )
    assert_close(loss, expected + 3 * expected_divergence, atol=0, rtol=1e-6)
    assert_close(nll, expected_nll, atol=0, rtol=1e-6)
    assert_close(divergence, expected_divergence, atol=0, rtol=1e-6)
    assert correct == (p.argmax(1) == target).sum()
    assert not divergence.requires_grad
    for actual, grad in zip(torch.autograd.grad(loss * 2, inputs), wanted, strict=True):
        assert_close(actual, grad, atol=2e-5, why="a different order of summation, of numbers around 10")
    with torch.no_grad():
        again = linear_cross_entropy(features, weight, target, bias, 0.1, chunk_size, divergence_weight=3.0)
    assert_close(again[0], loss, atol=0, rtol=0)


def test_pairs_pass_gradcheck():
    features, weight, bias, target = make(count=6, width=3, words=5, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda f, w, b: linear_cross_entropy(f, w, target[:3], b, 0.1, 4, divergence_weight=0.7)[0],
        (features, weight, bias),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("on_device")
def test_half_precision_is_as_close_to_float32_as_the_plain_form(dtype):
    exact = make(count=40, width=32, words=50)
    half = [t.detach().to(dtype).requires_grad_() for t in exact[:3]]
    reference = [t.detach().float().requires_grad_() for t in half]
    truth = torch.autograd.grad(fairseq_loss(*reference, exact[3], 0.1)[0], reference)
    plain = torch.autograd.grad(fairseq_loss(*half, exact[3], 0.1)[0], half)
    loss = linear_cross_entropy(half[0], half[1], exact[3], half[2], 0.1)[0]
    assert loss.dtype == torch.float32
    for actual, other, wanted in zip(torch.autograd.grad(loss, half), plain, truth, strict=True):
        assert actual.dtype == dtype
        assert (actual.float() - wanted).abs().max() <= 2 * (other.float() - wanted).abs().max() + 1e-3


def test_autocast_multiplies_in_its_dtype_and_returns_gradients_in_that_of_the_parameters():
    features, weight, bias, target = make(count=40, width=32, words=50)
    exact = linear_cross_entropy(features, weight, target, bias, 0.1)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(features, weight, target, bias, 0.1)[0]
    assert loss.dtype == torch.float32
    assert 0 < abs(loss - exact) < 0.02 * exact
    assert all(grad.dtype == torch.float32 for grad in torch.autograd.grad(loss, [features, weight, bias]))


def test_never_holds_scores_of_more_rows_than_a_chunk(monkeypatch):
    features, weight, _, target = make(count=64, width=4, words=1000)
    sizes = []
    linear = linear_cross_entropy_module.linear
    monkeypatch.setattr(
        linear_cross_entropy_module, "linear", lambda *args: sizes.append(max(args[0].shape)) or linear(*args)
    )
    linear_cross_entropy(features, weight, target, None, 0.1, 16)[0].backward()
    assert sizes == [16, 1000] * 4  # scores, and the gradient of the features from those of the scores
    assert 64 not in sizes


def test_without_gradient_nothing_is_computed_for_it(monkeypatch):
    features, weight, bias, target = make()
    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr("muse_plugin.ops.linear_cross_entropy.add_weight_gradient", None)
        loss, *_ = linear_cross_entropy(features, weight, target, bias, 0.1)
    assert not loss.requires_grad
    frozen = linear_cross_entropy(features.detach(), weight, target, bias.detach(), 0.1)[0]
    (grad,) = torch.autograd.grad(frozen, [weight])
    assert grad.shape == weight.shape


def test_no_token_is_no_loss():
    loss, nll, correct, _ = linear_cross_entropy(torch.zeros(0, 4), torch.ones(5, 4), torch.zeros(0, dtype=torch.long))
    assert (loss.item(), nll.item(), correct.item()) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("shapes", "smoothing", "sentence"),
    [
        (((3, 4), (5, 6), (3,)), 0.1, r"features must have shape \(N, C\).*\(3, 4\), \(5, 6\) and \(3,\)"),
        (((3, 4), (5, 4), (2,)), 0.1, r"target \(N,\), but got \(3, 4\), \(5, 4\) and \(2,\)"),
        (((3, 4), (5, 4), (3,)), 1.0, r"label_smoothing must lie in \[0, 1\), but got 1.0"),
    ],
)
def test_wrong_input_is_named(shapes, smoothing, sentence):
    features, weight, target = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=sentence):
        linear_cross_entropy(features, weight, target.long(), None, smoothing)


def test_pairs_need_two_states_of_each_token():
    features, weight, _, target = make()
    with pytest.raises(ValueError, match=r"features must have shape \(2N, C\).*\(7, 5\), \(11, 5\) and \(7,\)"):
        linear_cross_entropy(features, weight, target, divergence_weight=1.0)
