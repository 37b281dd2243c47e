"""Attention: the fused kernel against the weights it stands for, masks, history, cross-attention's cache."""

import math

import pytest
import torch
from support.helpers import assert_close
from support.layers import make_context

from muse_plugin.modules.attention import CrossAttention, SelfAttention, attend, causal_bias, padding_bias
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.layer_cache import LayerCache

PADDING = torch.tensor([[False] * 5, [True, True, False, False, False], [False, False, False, True, True]])


def make_qkv(length=5, keys=5, batch=3, heads=2, channels=4, dtype=torch.float32):
    return (
        torch.randn(batch, heads, length, channels, dtype=dtype),
        torch.randn(batch, heads, keys, channels, dtype=dtype),
        torch.randn(batch, heads, keys, channels, dtype=dtype),
    )


def slow_attention(query, key, value, hidden):
    """Softmax over the visible keys only, one query at a time; ``hidden(b, t, s)`` says what is invisible."""
    batch, heads, length, channels = query.shape
    out = torch.zeros(batch, heads, length, value.shape[-1])
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                seen = [s for s in range(key.shape[2]) if not hidden(b, t, s)]
                logits = torch.stack([query[b, h, t] @ key[b, h, s] for s in seen]) / math.sqrt(channels)
                weights = torch.exp(logits - logits.max())
                for weight, s in zip(weights / weights.sum(), seen, strict=True):
                    out[b, h, t] += weight * value[b, h, s]
    return out


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("history", [0, 3])
def test_attention_equals_a_loop_over_the_visible_keys(need_weights, masked, causal, history):
    query, key, value = make_qkv(length=5 - history)
    bias = padding_bias(PADDING, torch.float32) if masked else None
    out, weights = attend(query, key, value, bias=bias, causal=causal, need_weights=need_weights)

    def hidden(b, t, s):
        return (masked and bool(PADDING[b, s])) or (causal and s > history + t)

    for b in range(3):
        for t in range(5 - history):
            if all(hidden(b, t, s) for s in range(5)):
                continue  # nothing to see: only finiteness is promised
            one = slow_attention(
                query[b : b + 1, :, t : t + 1],
                key[b : b + 1],
                value[b : b + 1],
                lambda _, __, s, b=b, t=t: hidden(b, t, s),
            )
            assert_close(out[b : b + 1, :, t : t + 1], one, atol=1e-6)
    assert (weights is not None) == need_weights
    if weights is not None:
        assert weights.dtype == torch.float32
        assert_close(weights.sum(-1), torch.ones(3, 2, 5 - history), atol=1e-6)
        assert_close(torch.matmul(weights, value), out, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("history", [0, 3])
def test_fused_kernel_and_weights_path_agree_in_values_and_gradients(masked, causal, history):
    leaves = [x.requires_grad_() for x in make_qkv(length=5 - history)]
    bias = padding_bias(PADDING, torch.float32) if masked else None
    target = torch.randn_like(leaves[0])
    found = []
    for need_weights in (False, True):
        out, _ = attend(*leaves, bias=bias, causal=causal, need_weights=need_weights)
        real = ~PADDING[:, None, history:, None] if masked else torch.ones(())
        found.append([out * real, *torch.autograd.grad((out * target * real).sum(), leaves)])
    for fused, plain in zip(*found, strict=True):
        assert_close(fused, plain, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("on_device")
def test_rows_of_nothing_but_padding_stay_finite_forward_and_backward(dtype, need_weights, causal):
    leaves = [(4 * x).to(dtype).requires_grad_() for x in make_qkv()]
    mask = torch.tensor([[True] * 5, [True] * 4 + [False], [False] * 5])
    out, weights = attend(*leaves, bias=padding_bias(mask, dtype), causal=causal, need_weights=need_weights)
    assert out.dtype == dtype
    assert out.isfinite().all()
    assert weights is None or weights.isfinite().all()
    for gradient in torch.autograd.grad(out.float().sum(), leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("on_device")
def test_a_key_at_padding_has_no_weight_however_well_it_matches(dtype):
    query, key, value = (x.to(dtype) for x in make_qkv())
    key[1, :, :2] = 30 * query[1, :, :2]
    value[1, :, :2] = 1000.0
    bias = padding_bias(PADDING.to(query.device), dtype)
    _, weights = attend(query, key, value, bias=bias, need_weights=True)
    assert_close(weights[1, :, :, :2], torch.zeros(2, 5, 2), atol=0, rtol=0)
    fused, _ = attend(query, key, value, bias=bias)
    assert fused[1].abs().max() < 10


def test_biases_can_be_added_up_without_overflow():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        total = padding_bias(PADDING, dtype) + causal_bias(5, 5, torch.zeros((), dtype=dtype))
        assert total.isfinite().all()
        assert total.shape == (3, 1, 5, 5)


def test_causal_bias_hides_the_future_of_the_last_positions_only():
    assert (causal_bias(2, 5, torch.zeros(())) == 0).tolist() == [[True] * 4 + [False], [True] * 5]


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_drops_weights_and_keeps_their_sum_on_average(need_weights):
    query, key, _ = make_qkv(length=200, keys=50)
    out, weights = attend(query, key, torch.ones(3, 2, 50, 4), dropout=0.5, need_weights=need_weights)
    assert out.std() > 0.01  # without dropout every output is 1
    assert_close(out.mean(), 1.0, atol=0.05, why="mean of 1200 sums of 50 dropped weights")
    if weights is not None:
        assert_close(weights.sum(-1), torch.ones(3, 2, 200), atol=1e-5)  # returned before dropout


def make_projected(length=5, history=0, width=8):
    names = {"query": length, "key": length + history, "value": length + history, "encoder_query": length}
    return {name: torch.randn(3, positions, width) for name, positions in names.items()}


def test_self_attention_splits_neighbouring_channels_into_heads():
    branch, projected = SelfAttention(8, 2), make_projected()
    out = branch(projected, LayerContext(length=5))
    for head in (slice(0, 4), slice(4, 8)):
        parts = [projected[name][:, None, :, head] for name in ("query", "key", "value")]
        assert_close(out[..., head], slow_attention(*parts, lambda b, t, s: False)[:, 0], atol=1e-6)


def test_self_attention_drops_weights_in_training_only():
    branch, projected = SelfAttention(8, 2, dropout=0.5), make_projected()
    context = LayerContext(length=5)
    branch.eval()
    assert_close(branch(projected, context), SelfAttention(8, 2)(projected, context), atol=0, rtol=0)
    branch.train()
    assert not torch.equal(branch(projected, context), branch(projected, context))


def test_cross_attention_reads_only_real_source_tokens_and_reports_its_weights():
    branch, projected = CrossAttention(8, 2, encoder_dim=6), make_projected(length=4)
    encoder_out = torch.randn(5, 3, 6)
    context = make_context(4, encoder_out=encoder_out, encoder_padding_mask=PADDING, need_weights=True, causal=True)
    out = branch(projected, context)
    assert out.shape == (3, 4, 8)
    assert context.attention_weights.shape == (2, 3, 4, 5)
    assert_close(context.attention_weights.sum(-1), torch.ones(2, 3, 4), atol=1e-6)
    for row in range(3):
        real = ~PADDING[row]
        alone = LayerContext(length=4, encoder_out=encoder_out[real, row : row + 1])
        assert_close(out[row : row + 1], branch({"encoder_query": projected["encoder_query"][row : row + 1]}, alone))
        assert (context.attention_weights[:, row][..., ~real] == 0).all()


def test_cross_attention_without_being_asked_reports_no_weights():
    branch = CrossAttention(8, 2, encoder_dim=6)
    context = LayerContext(length=5, encoder_out=torch.randn(4, 3, 6))
    branch(make_projected(), context)
    assert context.attention_weights is None


def test_cross_attention_projects_the_encoder_once_and_then_reads_its_cache():
    branch, projected, cache = CrossAttention(8, 2, encoder_dim=6), make_projected(), LayerCache()
    first = branch(projected, LayerContext(length=5, encoder_out=torch.randn(4, 3, 6), cache=cache))
    again = branch(projected, LayerContext(length=5, encoder_out=None, cache=cache))
    assert_close(again, first, atol=0, rtol=0)


def test_cross_attention_starts_within_the_published_bound():
    branch = CrossAttention(256, 4, encoder_dim=128)
    largest, bound = branch.key_value_proj.weight.abs().max().item(), 1 / math.sqrt(128)
    assert 0.95 * bound < largest <= bound
    assert (branch.key_value_proj.bias == 0).all()


def test_cross_attention_raises_error_without_encoder_states():
    with pytest.raises(ValueError, match=r"^cross_attention needs encoder_out, but got None; drop the branch or pass"):
        CrossAttention(8, 2, encoder_dim=6)(make_projected(), LayerContext(length=5))


@pytest.mark.parametrize("heads", [3, 0])
@pytest.mark.parametrize("build", [SelfAttention, lambda width, heads: CrossAttention(width, heads, 8)])
def test_attention_raises_error_when_the_width_does_not_divide_into_heads(build, heads):
    sentence = (
        rf"^embed_dim must be divisible by the number of attention heads, but got embed_dim=8 and {heads} heads; "
    )
    with pytest.raises(ValueError, match=sentence):
        build(8, heads)
