"""Twelve and twelve layers in half precision on hard inputs: numbers stay finite, and near those of float32.

bfloat16 and float16 are tested with torch's own arithmetic on the CPU, as parameters of that type (as ``--bf16`` and
``--fp16`` train) and under autocast (``--amp``); the same on a GPU where there is one. float16 losses are multiplied by
128, the first loss scale of fairseq.
"""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from support.helpers import Results, assert_close
from support.muse_models import PAD, SYMBOLS, VARIANTS, both, build

from muse_plugin.modules.attention import attend
from muse_plugin.ops.dynamic_conv import dynamic_conv

POSITIONS = 64
ROWS = 3
LOSS_SCALE = 128.0
PRECISIONS = {
    "bf16": (torch.bfloat16, False),
    "fp16": (torch.float16, False),
    "bf16_autocast": (torch.bfloat16, True),
}
MODELS = {
    "muse": {},
    "muse_normalize_before": both(normalize_before=True),
    "muse_simple": {"model": "muse_simple"},
    "plain_transformer": {"model": "plain_transformer"},
    "multi_scale": both(attention_bias="multi-scale", attention_scales="1,all"),
    "distance": {"encoder_attention_bias": "distance,bidirectional-split", "encoder_distance_slopes": "learned"},
    "multi_scale_layers": VARIANTS["multi_scale_layers"],
    "distance_layers": VARIANTS["distance_layers"],
}
# Layers add up and normalise; the largest difference of a loss was 0.2 %, of bfloat16 where one word is repeated.
LOSS_RTOL = 0.01


def make_sentences(kind, seed):
    """Token ids as long as the model may read, shape (B, T); the rows of ``padded`` are full, empty and half."""
    tokens = torch.randint(4, SYMBOLS, (ROWS, POSITIONS), generator=torch.Generator().manual_seed(seed))
    if kind == "one_word":
        tokens[:] = 7
    if kind == "padded":
        tokens[1] = PAD
        tokens[2, POSITIONS // 2 :] = PAD
    return tokens


def make_model(variant, embedding_scale):
    flags = {"encoder_layers": 12, "decoder_layers": 12}
    net = build(**flags, max_source_positions=POSITIONS, max_target_positions=POSITIONS, **MODELS[variant])
    with torch.no_grad():
        for side in (net.encoder, net.decoder):
            side.embed_tokens.weight.mul_(embedding_scale)
    return net


def compute_loss(net, kind, autocast=None):
    device = next(net.parameters()).device
    source, target = (make_sentences(kind, seed).to(device) for seed in (1, 2))
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        logits = net(source, source.ne(PAD).sum(1), target.roll(1, 1))[0]
    assert logits.isfinite().all()
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=PAD)


@cache
def exact_loss(variant, kind, embedding_scale):
    with torch.no_grad():
        return compute_loss(make_model(variant, embedding_scale), kind)


def check(variant, precision, kind, embedding_scale, device):
    dtype, under_autocast = PRECISIONS[precision]
    net = make_model(variant, embedding_scale).to(device)
    if not under_autocast:
        net = net.to(dtype)
    loss = compute_loss(net, kind, dtype if under_autocast else None)
    (loss * (LOSS_SCALE if dtype == torch.float16 else 1.0)).backward()
    assert_close(loss.cpu(), exact_loss(variant, kind, embedding_scale), atol=0, rtol=LOSS_RTOL, why=f"loss of {kind}")
    ruined = [name for name, p in net.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    assert ruined == []
    assert all(p.grad is not None for layer in net.encoder.layers for p in layer.parameters())
    assert all(any(p.grad.any() for p in layer.parameters()) for layer in net.encoder.layers)


KINDS = [("random", 1.0), ("one_word", 1.0), ("padded", 1.0), ("random", 1e3), ("random", 1e-6)]


@pytest.mark.parametrize(("kind", "embedding_scale"), KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_hard_inputs_give_finite_numbers_near_float32(precision, kind, embedding_scale):
    check("muse", precision, kind, embedding_scale, "cpu")


@pytest.mark.parametrize(("precision", "kind"), [("bf16", "padded"), ("fp16", "one_word"), ("fp16", "padded")])
@pytest.mark.parametrize("variant", [name for name in MODELS if name != "muse"])
def test_other_models_give_finite_numbers_near_float32(variant, precision, kind):
    check(variant, precision, kind, 1.0, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "embedding_scale"), KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("variant", MODELS)
def test_hard_inputs_give_finite_numbers_on_a_gpu(cuda, variant, precision, kind, embedding_scale):
    check(variant, precision, kind, embedding_scale, cuda)


# ---- taps and attention weights -----------------------------------------------------------------------------------

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = (3, 15)
LARGE = 60.0  # logits: e^60 is beyond float16


def rounding(dtype):
    """Half the distance of neighbouring numbers, relative to them."""
    return torch.finfo(dtype).eps / 2


def make_logits(dtype, scale):
    generator = torch.Generator().manual_seed(4)
    values = torch.randn(2, 2, 9, 4, generator=generator).to(dtype)  # (B, H, S, D)
    return values, (scale * torch.randn(2, 2, 9, sum(SIZES), generator=generator)).to(dtype)


@pytest.mark.parametrize("scale", [1.0, LARGE])
@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
def test_taps_of_half_precision_weigh_as_those_of_float32(dtype, scale):
    values, logits = make_logits(dtype, scale)
    settings = {"padding_left": [1, 7], "kernel_sizes": SIZES, "normalize": True}
    out = dynamic_conv(values, logits, **settings)
    expected = dynamic_conv(values.float(), logits.float(), **settings)
    assert out.dtype == dtype
    assert_close(
        out.float(), expected, atol=8 * rounding(dtype), rtol=8 * rounding(dtype), why="of numbers up to 4, two sizes"
    )


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
def test_attention_weights_of_half_precision_are_float32_and_near(dtype, scale):
    generator = torch.Generator().manual_seed(4)
    query, key, value = (torch.randn(2, 2, 9, 4, generator=generator).mul(scale).to(dtype) for _ in range(3))
    out, weights = attend(query, key, value, need_weights=True)
    fused, _ = attend(query, key, value)
    expected, expected_weights = attend(query.float(), key.float(), value.float(), need_weights=True)
    assert weights.dtype == torch.float32
    assert_close(weights.sum(-1), torch.ones(2, 2, 9), atol=1e-6)
    # A logit of size x is rounded to x * eps / 2, and a weight changes by as much, relatively.
    logits = torch.matmul(query.float(), key.float().transpose(-2, -1)).abs().max() / 2
    tolerance = float(3 * logits * rounding(dtype))
    assert_close(weights, expected_weights, atol=tolerance / 4, rtol=tolerance)
    largest = float(value.abs().max())
    for result in (out, fused):
        assert result.dtype == dtype
        assert_close(result.float(), expected, atol=tolerance * largest, rtol=tolerance, why="a mean of values")


@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
@pytest.mark.parametrize("conv_type", ["dynamic", "lightweight"])
def test_kernels_and_gates_are_normalised_in_float32(conv_type, dtype):
    net = build(**both(conv_type=conv_type)).to(dtype).eval()
    source = make_sentences("random", 1)[:, :9]
    with Results() as results, torch.no_grad():
        net(source, source.ne(PAD).sum(1), source)
    dtypes = [made.dtype for function, made in results.made if function is torch.ops.aten._softmax.default]
    assert len(dtypes) >= 4 * 2  # layers; kernel and gate
    assert set(dtypes) == {torch.float32}
    assert {weights.dtype for weights in net.gate_weights().values()} == {torch.float32}
