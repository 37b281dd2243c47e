"""The parallel layer: against its formula with separate matrices, its noise, its cache, its initial values."""

import math

import pytest
import torch
from support.helpers import Results, assert_close
from support.layers import make_context, make_inputs, run_layer
from torch import nn

from muse_plugin.modules import parallel_layer
from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.branch import Branch, Projection
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.gated_conv import DynamicConv
from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.ops.split import split

WIDTH, HEADS, HIDDEN, LENGTH, BATCH = 8, 2, 12, 5, 3


def make_branches(causal=False, cross=True, width=WIDTH, hidden=HIDDEN, sizes=(3, 5), **conv_options):
    branches = {
        "self_attention": SelfAttention(width, HEADS),
        "conv": DynamicConv(width, HEADS, sizes, causal=causal, **conv_options),
        "cross_attention": CrossAttention(width, HEADS, encoder_dim=width),
        "ffn": FeedForward(width, hidden, torch.relu),
    }
    if not cross:
        del branches["cross_attention"]
    return branches


def make_layer(causal=False, cross=True, width=WIDTH, branch_options=None, **options):
    layer = ParallelLayer(width, make_branches(causal, cross, width, **(branch_options or {})), **options)
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)  # zero biases hide mistakes
    return layer


def cut_slices(layer):
    """The fused parameters as the paper's separate matrices, by the rows and columns that the docstring promises."""
    rows = {p.name: p.size for p in layer.projections}
    weights = layer.in_proj_weight.split(list(rows.values()))
    biases = layer.in_proj_bias.split(list(rows.values()))
    columns = layer.out_proj_weight.split([branch.output_size for branch in layer.branches.values()], dim=1)
    inputs = {name: (weight, bias) for name, weight, bias in zip(rows, weights, biases, strict=True)}
    return inputs, dict(zip(layer.branches, columns, strict=True))


def separate_layer(layer, inputs, causal):
    """The paper's block with one matrix product per matrix."""
    matrices, columns = cut_slices(layer)
    x = inputs["x"]
    read = layer.layer_norm(x) if layer.normalize_before else x
    read = read.transpose(0, 1)
    projected = {name: read @ weight.T + bias for name, (weight, bias) in matrices.items()}
    context = make_context(len(x), causal=causal, **{k: v for k, v in inputs.items() if k != "x"})
    total = x.transpose(0, 1) + layer.out_proj_bias[0]
    for index, group in enumerate(layer.groups[1:]):
        total = total + layer.out_proj_bias[index + 1]
        assert group in ("cross", "ffn")
    for name, branch in layer.branches.items():
        total = total + branch(projected, context) @ columns[name].T
    total = total.transpose(0, 1)
    return total if layer.normalize_before else layer.layer_norm(total)


@pytest.mark.parametrize("normalize_before", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_layer_equals_the_formula_with_separate_matrices(normalize_before, causal, training):
    layer = make_layer(causal, normalize_before=normalize_before).train(training)
    inputs = make_inputs(LENGTH, WIDTH)
    inputs["x"].requires_grad_()
    leaves = [inputs["x"], *layer.parameters()]
    target = torch.randn(LENGTH, BATCH, WIDTH)
    outputs = (run_layer(layer, **inputs, causal=causal)[0], separate_layer(layer, inputs, causal))
    assert_close(*outputs, atol=2e-6)
    for fused, separate in zip(*(torch.autograd.grad((o * target).sum(), leaves) for o in outputs), strict=True):
        assert_close(fused, separate, atol=2e-5)


def test_attention_and_convolution_read_the_same_values():
    layer = make_layer()
    assert [p.name for p in layer.projections] == ["query", "key", "value", "encoder_query", "ffn_hidden"]
    assert layer.in_proj_weight.shape == (4 * WIDTH + HIDDEN, WIDTH)
    separate = make_layer(branch_options={"share_value": False})
    assert [p.name for p in separate.projections][:4] == ["query", "key", "value", "conv_value"]
    assert separate.in_proj_weight.shape == (5 * WIDTH + HIDDEN, WIDTH)


@pytest.mark.parametrize("cross", [False, True])
def test_number_of_parameters_is_the_published_formula(cross):
    layer, d, f = ParallelLayer(WIDTH, make_branches(cross=cross)), WIDTH, HIDDEN
    encoder = 3 * d * d + 3 * d + (2 * d * d + d) + d * HEADS * (3 + 5) + 2 + 2 * d + 2 * d * f + f + d
    # The authors construct another layer norm per decoder layer and never use it.
    expected = encoder + (4 * d * d + 4 * d if cross else 0)
    assert sum(p.numel() for p in layer.parameters()) == expected


def test_every_slice_starts_within_its_published_bound():
    width, hidden = 256, 512
    layer = ParallelLayer(width, make_branches(width=width, hidden=hidden))
    matrices, columns = cut_slices(layer)
    root = math.sqrt(width)
    bounds = dict.fromkeys(("query", "key", "value", "encoder_query", "ffn_hidden"), 1 / root)
    for name, bound in bounds.items():
        assert 0.95 * bound < matrices[name][0].abs().max() <= bound, name
        assert (matrices[name][1] == 0).all()
    bounds = {
        "self_attention": math.sqrt(3 / (2 * width)),  # fan-in 2C: attention and convolution are side by side
        "conv": math.sqrt(3 / (2 * width)),
        "cross_attention": math.sqrt(3 / width),
        "ffn": 1 / math.sqrt(hidden),
    }
    for name, bound in bounds.items():
        assert 0.95 * bound < columns[name].abs().max() <= bound, name
        assert abs(columns[name].mean()) < 0.02 * bound, name
    assert (layer.out_proj_bias == 0).all()


def test_output_of_attention_alone_starts_within_the_bound_for_its_own_width():
    width = 256
    branches = {"self_attention": SelfAttention(width, 4), "ffn": FeedForward(width, 512, torch.relu)}
    _, columns = cut_slices(ParallelLayer(width, branches))
    bound = math.sqrt(3 / width)
    assert 0.95 * bound < columns["self_attention"].abs().max() <= bound


def test_bounds_of_the_speed_model_are_those_of_the_authors_command():
    width, hidden = 256, 512
    for a_in, a_out in ((3.0, 0.0), (5.0, 1.0)):
        layer = ParallelLayer(width, make_branches(width=width, hidden=hidden), input_init=a_in, output_init=a_out)
        matrices, columns = cut_slices(layer)
        bound = math.sqrt(6 / ((1 + a_in) * width))
        for name, (weight, bias) in matrices.items():
            assert 0.95 * bound < weight.abs().max() <= bound, name
            assert (bias == 0).all()
        joined = 2 * width + hidden  # attention, convolution and feed-forward are one matrix there
        bounds = dict.fromkeys(("self_attention", "conv", "ffn"), math.sqrt(6 / ((1 + a_out) * joined)))
        bounds["cross_attention"] = math.sqrt(6 / ((1 + a_out) * width))
        for name, bound in bounds.items():
            assert 0.95 * bound < columns[name].abs().max() <= bound, name


NOISE = [{"branch_dropout": 0.5}, {"input_dropout": 0.5}, {"branch_dropout": 0.5, "input_dropout": 0.5}]


@pytest.mark.parametrize("noise", NOISE, ids=lambda noise: "+".join(noise))
@pytest.mark.parametrize("normalize_before", [False, True])
def test_sliced_products_equal_the_fused_ones_when_dropout_keeps_everything(monkeypatch, noise, normalize_before):
    monkeypatch.setattr(parallel_layer, "dropout", lambda x, *_, **__: x)
    noisy, inputs = make_layer(normalize_before=normalize_before, **noise), make_inputs(LENGTH, WIDTH)
    quiet = make_layer(normalize_before=normalize_before)
    quiet.load_state_dict(noisy.state_dict())
    inputs["x"].requires_grad_()
    found = []
    for layer in (noisy, quiet):
        out, _ = run_layer(layer.train(), **inputs)
        found.append([out, *torch.autograd.grad(out.square().sum(), [inputs["x"], *layer.parameters()])])
    for sliced, fused in zip(*found, strict=True):
        assert_close(sliced, fused, atol=5e-5, rtol=1e-5, why="gradients of up to 280 in another summation order")


@pytest.mark.parametrize("noise", NOISE, ids=lambda noise: "+".join(noise))
def test_noise_is_for_training_only(noise):
    layer, inputs = make_layer(**noise), make_inputs(LENGTH, WIDTH)
    quiet = make_layer()
    quiet.load_state_dict(layer.state_dict())
    assert_close(run_layer(layer.eval(), **inputs)[0], run_layer(quiet, **inputs)[0], atol=0, rtol=0)
    layer.train()
    assert not torch.equal(run_layer(layer, **inputs)[0], run_layer(layer, **inputs)[0])


@pytest.mark.parametrize("share_value", [True, False])
def test_input_dropout_touches_only_self_attention_and_convolution(monkeypatch, share_value):
    options = {"share_value": share_value}
    layer, inputs = make_layer(input_dropout=0.5, branch_options=options), make_inputs(LENGTH, WIDTH)
    blind = make_layer(branch_options=options)  # reads zeros where the noisy layer has its input dropped
    blind.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for name, (weight, _) in cut_slices(blind)[0].items():
            if name in ("query", "key", "value", "conv_value"):
                weight.zero_()
    expected = run_layer(blind, **inputs)[0]
    seen = []

    def drop_everything(x, p=0.5, training=True, inplace=False):
        if p == 0 or not training:
            return x
        seen.append(tuple(x.shape))
        return torch.zeros_like(x)

    monkeypatch.setattr(parallel_layer, "dropout", drop_everything)
    assert_close(run_layer(layer.train(), **inputs)[0], expected, atol=1e-6)
    assert seen == [(LENGTH, BATCH, WIDTH)]  # one mask for all four slices


class ReadsInput(Branch):
    """A branch with projections of its own, which the layer cannot drop anything from."""

    group = "self"

    def __init__(self):
        super().__init__()
        self.output_size = WIDTH

    def forward(self, projected, context):
        return projected["input"]


@pytest.mark.parametrize("with_attention", [True, False])
def test_input_dropout_reaches_a_branch_that_projects_its_input_itself(with_attention):
    branches = {"own": ReadsInput(), "ffn": FeedForward(WIDTH, HIDDEN, torch.relu)}
    if with_attention:
        branches = {"self_attention": SelfAttention(WIDTH, HEADS), **branches}
    layer = ParallelLayer(WIDTH, branches, input_dropout=0.5).train()
    seen = []
    layer.branches["own"].register_forward_pre_hook(lambda _, args: seen.append(args[0]["input"]))
    run_layer(layer, torch.ones(50, 4, WIDTH))
    assert set(seen[0].unique().tolist()) == {0.0, 2.0}


def test_every_group_gets_its_own_dropout_mask(monkeypatch):
    layer, inputs = make_layer(branch_dropout=0.5), make_inputs(LENGTH, WIDTH)
    masks, real_dropout = [], parallel_layer.dropout

    def record(x, p, training=True):
        out = real_dropout(x, p, training)
        if p > 0 and training:
            masks.append(out != 0)
        return out

    monkeypatch.setattr(parallel_layer, "dropout", record)
    run_layer(layer.train(), **inputs)
    assert layer.groups == ["self", "cross", "ffn"]
    assert [tuple(mask.shape) for mask in masks] == [(LENGTH, BATCH, WIDTH)] * 3
    assert all(not torch.equal(masks[i], masks[j]) for i, j in [(0, 1), (0, 2), (1, 2)])
    assert all(0.3 < mask.float().mean() < 0.7 for mask in masks)


def test_dropped_branches_leave_the_input():
    layer, inputs = make_layer(branch_dropout=1 - 1e-9), make_inputs(LENGTH, WIDTH)
    expected = layer.layer_norm(inputs["x"])
    assert_close(run_layer(layer.train(), **inputs)[0], expected, atol=1e-6)


@pytest.mark.parametrize("steps", [[1] * 5, [2, 3], [3, 1, 1], [5]])
@pytest.mark.parametrize("normalize_before", [False, True])
def test_any_number_of_new_positions_at_a_time_equals_the_whole(steps, normalize_before):
    layer = make_layer(causal=True, normalize_before=normalize_before).eval()
    inputs = make_inputs(LENGTH, WIDTH)
    mask, x = inputs.pop("key_padding_mask"), inputs.pop("x")
    whole, weights = run_layer(layer, x, mask, **inputs, causal=True, need_weights=True)
    cache, start, parts, part_weights = LayerCache(), 0, [], []
    for new in steps:
        end = start + new
        out = run_layer(layer, x[start:end], mask[:, :end], **inputs, cache=cache, causal=True, need_weights=True)
        parts.append(out[0])
        part_weights.append(out[1])
        start = end
    real = ~mask  # the result at padding is unspecified
    stepwise, weights = torch.cat(parts).transpose(0, 1), weights.permute(1, 2, 0, 3)
    assert_close(stepwise[real], whole.transpose(0, 1)[real], atol=2e-6, why="measured maximum 4.8e-7")
    assert_close(torch.cat(part_weights, dim=2).permute(1, 2, 0, 3)[real], weights[real], atol=1e-6)
    assert cache.lengths["key"] == cache.lengths["value"] == LENGTH


def test_attention_and_convolution_share_their_history():
    layer, cache = make_layer(causal=True, cross=False), LayerCache()
    run_layer(layer, torch.randn(2, BATCH, WIDTH), cache=cache, causal=True)
    assert cache.lengths == {"key": 2, "value": 2}


def test_causal_layer_does_not_see_the_future():
    layer, inputs = make_layer(causal=True), make_inputs(LENGTH, WIDTH)
    inputs["key_padding_mask"] = None
    before = run_layer(layer, **inputs, causal=True)[0]
    inputs["x"][3:] += 1.0
    after = run_layer(layer, **inputs, causal=True)[0]
    assert_close(after[:3], before[:3], atol=0, rtol=0)
    assert not torch.equal(after[3:], before[3:])


def test_a_sentence_does_not_depend_on_its_padding():
    layer, inputs = make_layer(cross=False), make_inputs(LENGTH, WIDTH)
    batch = run_layer(layer, inputs["x"], inputs["key_padding_mask"])[0]
    alone = run_layer(layer, inputs["x"][2:, 1:2])[0]
    assert_close(batch[2:, 1:2], alone, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("on_device")
def test_rows_of_nothing_but_padding_stay_finite_forward_and_backward(dtype, causal):
    layer = make_layer(causal, branch_dropout=0.1, input_dropout=0.1).to(dtype)
    inputs = make_inputs(LENGTH, WIDTH, dtype)
    inputs["key_padding_mask"][1] = True
    inputs["encoder_padding_mask"][1] = True
    out, weights = run_layer(layer, **inputs, causal=causal, need_weights=True)
    assert out.dtype == dtype
    assert out.isfinite().all()
    assert weights.isfinite().all()
    out.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("noise", [{}, *NOISE], ids=lambda noise: "+".join(noise) or "quiet")
def test_every_parameter_receives_a_gradient(noise):
    layer = make_layer(**noise)
    run_layer(layer, **make_inputs(LENGTH, WIDTH))[0].square().sum().backward()
    missing = [name for name, p in layer.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []


def test_weights_are_returned_only_when_asked_for():
    layer, inputs = make_layer(), make_inputs(LENGTH, WIDTH)
    assert run_layer(layer, **inputs)[1] is None
    assert run_layer(layer, **inputs, need_weights=True)[1].shape == (HEADS, BATCH, LENGTH, 4)
    assert run_layer(make_layer(cross=False), inputs["x"], need_weights=True)[1] is None


def test_printed_model_names_its_slices():
    text = make_layer().extra_repr()
    assert text == (
        "embed_dim=8, in_proj=[query 8, key 8, value 8, encoder_query 8, ffn_hidden 12], "
        "out_proj=[self 16, cross 8, ffn 12]"
    )


def test_constructor_raises_error_without_branches():
    sentence = (
        r"^a parallel layer needs at least one branch that reads its input projection, but got none; add e.g. ffn"
    )
    with pytest.raises(ValueError, match=sentence):
        ParallelLayer(WIDTH, {})


def test_constructor_raises_error_when_branches_disagree_about_a_slice():
    other = FeedForward(WIDTH, HIDDEN, torch.relu)
    other.projections = (Projection("value", WIDTH),)
    with pytest.raises(ValueError, match=r"^branches that share a slice must agree on it, but got .*'value'.* and "):
        ParallelLayer(WIDTH, {"self_attention": SelfAttention(WIDTH, HEADS), "ffn": other})


def test_constructor_raises_error_when_a_group_is_torn_apart():
    branches = make_branches()
    order = ("self_attention", "ffn", "conv")
    sentence = r"^branches of one group must be next to each other, but got the groups \['self', 'ffn', 'self'\]\.$"
    with pytest.raises(ValueError, match=sentence):
        ParallelLayer(WIDTH, {name: branches[name] for name in order})


def test_the_hidden_layer_before_its_activation_is_not_kept_for_the_backward_pass():
    layer = ParallelLayer(8, {"self_attention": SelfAttention(8, 2), "ffn": FeedForward(8, 48, torch.relu)}).train()
    x = torch.randn(65, 2, 8)  # more keys than where attention on a CPU holds its weights and copies what it reads
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run_layer(layer, x)
    numbers = [size / 4 / 130 for size in saved.values()]  # per token
    assert 24 in numbers  # query, key and value
    assert 72 not in numbers  # together with the hidden layer
    assert numbers.count(48) == 1  # after its activation
    layer.eval()
    with torch.no_grad():
        assert len(layer._runs[False, False]) == 1


def test_gradients_of_slices_are_put_together_once_per_matrix_where_calls_cost_time():
    branches = {"self_attention": SelfAttention(8, 2), "ffn": FeedForward(8, 48, torch.relu)}
    layer = ParallelLayer(8, branches, branch_dropout=0.1).to("meta").train()  # any device but the CPU
    result, _ = run_layer(layer, torch.randn(5, 3, 8, device="meta"))
    with Results() as results:
        result.sum().backward()
    copies = [made.numel() for function, made in results.made if function is torch.ops.aten.cat.default]
    assert sorted(copies) == [8 * (8 + 48), 5 * 3 * (3 * 8 + 48)]  # output projection, slices of the input's


def test_the_gradient_of_one_part_is_not_copied():
    x = torch.randn(4, 3, requires_grad=True)
    assert split(x, [3], dim=1) == (x,)
    one, two = split(x, [1, 2], dim=1)
    assert_close(torch.cat([one, two], dim=1), x)
