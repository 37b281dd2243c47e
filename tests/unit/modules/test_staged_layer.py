"""Layers in stages: against PyTorch's Transformer layers, their cache, attention weights and size."""

import pytest
import torch
from support.helpers import assert_close
from support.layers import make_inputs, run_layer
from torch import nn

from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.attention_bias import MultiScaleWindows, Scale
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.gated_conv import DynamicConv
from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.staged_layer import StagedLayer

WIDTH, HEADS, HIDDEN, LENGTH, BATCH = 8, 2, 12, 6, 3
# float32, sums in another order: the largest difference was 7.2e-7, on numbers of up to 13.
ATOL = 5e-6


def make_branch(name, causal):
    return {
        "self_attention": lambda: SelfAttention(WIDTH, HEADS),
        "windows": lambda: SelfAttention(WIDTH, HEADS, bias=MultiScaleWindows([Scale(1), Scale(3)], causal)),
        "conv": lambda: DynamicConv(WIDTH, HEADS, (3,), causal=causal),
        "cross_attention": lambda: CrossAttention(WIDTH, HEADS, encoder_dim=WIDTH),
        "ffn": lambda: FeedForward(WIDTH, HIDDEN, torch.relu),
    }[name]()


def make_layer(text="self_attention/cross_attention/ffn", causal=True, **options):
    stages = [
        ParallelLayer(WIDTH, {name: make_branch(name, causal) for name in names.split(",")}, **options)
        for names in text.split("/")
    ]
    layer = StagedLayer(stages)
    for name, parameter in layer.named_parameters():
        if "bias" in name or "norm" in name:
            nn.init.normal_(parameter)  # what begins as zeros or ones hides mistakes
    return layer


@torch.no_grad()
def fill_attention(attention, stage, cross=False):
    weight, bias = stage.in_proj_weight, stage.in_proj_bias
    if cross:
        key_value = stage.branches["cross_attention"].key_value_proj
        weight, bias = torch.cat([weight, key_value.weight]), torch.cat([bias, key_value.bias])
    attention.in_proj_weight.copy_(weight)
    attention.in_proj_bias.copy_(bias)
    attention.out_proj.weight.copy_(stage.out_proj_weight)
    attention.out_proj.bias.copy_(stage.out_proj_bias[0])


@torch.no_grad()
def make_torch_layer(layer, normalize_before):
    """PyTorch's own Transformer layer with the same parameters."""
    decodes = len(layer.stages) == 3
    kind = nn.TransformerDecoderLayer if decodes else nn.TransformerEncoderLayer
    twin = kind(WIDTH, HEADS, HIDDEN, dropout=0.0, norm_first=normalize_before)
    fill_attention(twin.self_attn, layer.stages[0])
    if decodes:
        fill_attention(twin.multihead_attn, layer.stages[1], cross=True)
    hidden, out = layer.stages[-1], layer.stages[-1]
    twin.linear1.weight.copy_(hidden.in_proj_weight)
    twin.linear1.bias.copy_(hidden.in_proj_bias)
    twin.linear2.weight.copy_(out.out_proj_weight)
    twin.linear2.bias.copy_(out.out_proj_bias[0])
    for number, stage in enumerate(layer.stages, start=1):
        getattr(twin, f"norm{number}").load_state_dict(stage.layer_norm.state_dict())
    return twin


@pytest.mark.parametrize("normalize_before", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_stages_of_one_branch_are_a_transformer_layer(normalize_before, masked):
    layer = make_layer("self_attention/ffn", normalize_before=normalize_before)
    inputs = make_inputs(LENGTH, WIDTH)
    x, mask = inputs["x"].requires_grad_(), inputs["key_padding_mask"] if masked else None
    actual, weights = run_layer(layer, x, key_padding_mask=mask)
    expected = make_torch_layer(layer, normalize_before)(x, src_key_padding_mask=mask)
    real = torch.ones(LENGTH, BATCH, dtype=torch.bool) if mask is None else ~mask.t()
    assert_close(actual[real], expected[real], atol=ATOL)
    assert weights is None
    gradients = [torch.autograd.grad(out[real].square().sum(), x)[0] for out in (actual, expected)]
    assert_close(*gradients, atol=10 * ATOL, why="sums over all positions")


@pytest.mark.parametrize("normalize_before", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_stages_of_one_branch_are_a_transformer_layer(normalize_before, masked):
    layer, inputs = make_layer(normalize_before=normalize_before), make_inputs(LENGTH, WIDTH)
    if not masked:
        inputs["key_padding_mask"] = None
    actual, _ = run_layer(layer, **inputs, causal=True)
    expected = make_torch_layer(layer, normalize_before)(
        inputs["x"],
        inputs["encoder_out"],
        tgt_mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=inputs["key_padding_mask"],
        memory_key_padding_mask=inputs["encoder_padding_mask"],
    )
    real = ~inputs["key_padding_mask"].t() if masked else torch.ones(LENGTH, BATCH, dtype=torch.bool)
    assert_close(actual[real], expected[real], atol=ATOL)


def test_a_layer_of_one_stage_is_that_stage():
    layer, inputs = make_layer("self_attention,conv,cross_attention,ffn"), make_inputs(LENGTH, WIDTH)
    expected, weights = run_layer(layer.stages[0], **inputs, causal=True, need_weights=True)
    found = run_layer(layer, **inputs, causal=True, need_weights=True)
    assert_close(found[0], expected, atol=0, rtol=0)
    assert_close(found[1], weights, atol=0, rtol=0)


def test_a_stage_reads_what_the_stage_before_wrote():
    layer, inputs = make_layer("self_attention,conv/cross_attention,ffn"), make_inputs(LENGTH, WIDTH)
    x = inputs.pop("x")
    between, _ = run_layer(layer.stages[0], x, **inputs, causal=True)
    expected, _ = run_layer(layer.stages[1], between, **inputs, causal=True)
    assert_close(run_layer(layer, x, **inputs, causal=True)[0], expected, atol=0, rtol=0)


# ---- cache --------------------------------------------------------------------------------------------------------

STAGES = [
    "self_attention/cross_attention/ffn",
    "windows/cross_attention/ffn",
    "self_attention,conv/cross_attention,ffn",
    "conv/self_attention/cross_attention/ffn",  # two histories of values, in stages of their own
]


@pytest.mark.parametrize(("packed", "steps"), [(False, [2, 3, 1]), (False, [6]), (True, [1] * 6)], ids=str)
@pytest.mark.parametrize("text", STAGES)
@torch.no_grad()
def test_any_number_of_new_positions_at_a_time_equals_the_whole(text, packed, steps):
    layer, inputs = make_layer(text).eval(), make_inputs(LENGTH, WIDTH)
    x, mask = inputs.pop("x"), inputs.pop("key_padding_mask")
    whole, weights = run_layer(layer, x, key_padding_mask=mask, **inputs, causal=True, need_weights=True)
    if packed:
        for stage in layer.stages:
            stage.make_generation_fast_()
    cache, start, parts, part_weights = LayerCache(), 0, [], []
    for new in steps:
        end = start + new
        options = {"key_padding_mask": mask[:, :end], "causal": True, "need_weights": True}
        part, part_weight = run_layer(layer, x[start:end], cache=cache, **inputs, **options)
        parts.append(part)
        part_weights.append(part_weight)
        start = end
    real = ~mask
    assert_close(torch.cat(parts).transpose(0, 1)[real], whole.transpose(0, 1)[real], atol=ATOL)
    stepwise = torch.cat(part_weights, dim=2).permute(1, 2, 0, 3)
    assert_close(stepwise[real], weights.permute(1, 2, 0, 3)[real], atol=ATOL)


@pytest.mark.parametrize("order", [[0, 2], [2, 2, 0, 1]], ids=str)
@pytest.mark.parametrize("text", STAGES)
@torch.no_grad()
def test_reordered_rows_continue_like_a_fresh_pass(text, order):
    layer, inputs, rows = make_layer(text).eval(), make_inputs(LENGTH, WIDTH), torch.tensor(order)
    x, encoder_out = inputs["x"], inputs["encoder_out"]
    cache = LayerCache()
    for step in range(3):
        run_layer(layer, x[step : step + 1], encoder_out=encoder_out, cache=cache, causal=True)
    cache.reorder(rows, rows)
    continued = torch.cat([x[:3, rows], torch.randn(3, len(order), WIDTH)])
    parts = [
        run_layer(layer, continued[step : step + 1], encoder_out=encoder_out[:, rows], cache=cache, causal=True)[0]
        for step in range(3, 6)
    ]
    whole, _ = run_layer(layer, continued, encoder_out=encoder_out[:, rows], causal=True)
    assert_close(torch.cat(parts), whole[3:], atol=ATOL)


@torch.no_grad()
def test_every_stage_has_a_history_of_its_own():
    layer, cache = make_layer("conv/self_attention/ffn").eval(), LayerCache()
    x = torch.randn(2, BATCH, WIDTH)
    run_layer(layer, x, cache=cache, causal=True)
    run_layer(layer, x, cache=cache, causal=True)
    assert cache.lengths == {}
    assert [cache.stage(number).lengths for number in range(3)] == [{"value": 4}, {"key": 4, "value": 4}, {}]
    assert cache.stage(1) is cache.stage(1)
    assert cache.stage(3).lengths == {}  # one that was never used


def test_reordering_reaches_the_stages_and_their_encoder():
    cache = LayerCache()
    values, states = torch.arange(6.0).view(3, 2, 1), torch.arange(3.0).view(3, 1, 1)
    cache.stage(1).extend("value", values)
    cache.stage(2).encoder_key_value = states, states + 10
    cache.reorder(torch.tensor([2, 0]), torch.tensor([2, 0]))
    new = torch.full((2, 1, 1), 9.0)
    assert cache.stage(1).extend("value", new).squeeze(2).tolist() == [[4, 5, 9], [0, 1, 9]]
    key, value = cache.stage(2).encoder_key_value
    assert (key.flatten().tolist(), value.flatten().tolist()) == ([2, 0], [12, 10])
    cache.reorder(torch.tensor([1, 0]), None)  # rows move within their sentences
    assert cache.stage(2).encoder_key_value[0].flatten().tolist() == [2, 0]


# ---- attention weights, parameters, noise -------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*STAGES, "cross_attention/self_attention/ffn"])
def test_weights_of_cross_attention_come_back_whichever_stage_it_is(text):
    layer, inputs = make_layer(text), make_inputs(LENGTH, WIDTH)
    _, weights = run_layer(layer, **inputs, causal=True, need_weights=True)
    assert weights.shape == (HEADS, BATCH, LENGTH, 4)
    assert_close(weights.sum(-1), torch.ones(HEADS, BATCH, LENGTH), atol=1e-6)
    assert (weights.permute(1, 3, 0, 2)[inputs["encoder_padding_mask"]] == 0).all()
    assert run_layer(layer, **inputs, causal=True)[1] is None


def test_no_weights_come_back_without_cross_attention():
    assert run_layer(make_layer("self_attention/ffn"), torch.randn(3, 2, WIDTH), need_weights=True)[1] is None


@pytest.mark.parametrize("cross", [False, True])
def test_number_of_parameters_is_that_of_a_transformer_layer(cross):
    layer = make_layer("self_attention/cross_attention/ffn" if cross else "self_attention/ffn")
    d, f = WIDTH, HIDDEN
    attention, ffn, norm = 4 * d * d + 4 * d, 2 * d * f + f + d, 2 * d
    count = sum(p.numel() for p in layer.parameters())
    assert count == attention + norm + ffn + norm + (attention + norm if cross else 0)
    assert count == sum(p.numel() for p in make_torch_layer(layer, False).parameters())


@pytest.mark.parametrize("text", STAGES)
def test_every_parameter_receives_a_gradient(text):
    layer = make_layer(text)
    run_layer(layer, **make_inputs(LENGTH, WIDTH), causal=True)[0].square().sum().backward()
    assert [name for name, p in layer.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_dropped_branches_leave_the_input_of_every_stage():
    layer = make_layer("self_attention/ffn", branch_dropout=1 - 1e-9)
    x = torch.randn(LENGTH, BATCH, WIDTH)
    expected = layer.stages[1].layer_norm(layer.stages[0].layer_norm(x))
    assert_close(run_layer(layer.train(), x)[0], expected, atol=1e-6)


def test_how_training_runs_is_passed_on_to_the_stages():
    layer = make_layer("self_attention/ffn")
    layer.prepare_training(recompute=True)
    assert all(stage._recomputes for stage in layer.stages)
