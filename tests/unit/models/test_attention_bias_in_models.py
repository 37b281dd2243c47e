"""Limited self-attention in whole models: padding, time, cache, the inference form, reach, training, pruning.

What must hold for every model is in ``test_muse_properties.py``, with short sentences; here they are long enough for
windows to differ.
"""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from support.helpers import assert_close
from support.muse_models import (
    PAD,
    SYMBOLS,
    assert_causal,
    assert_same_training,
    assert_search_of_each_alone,
    both,
    build,
    build_from_config,
    lengths_of,
    logits_of,
    make_batch,
    make_config,
    make_pair,
    make_sentence,
    step_through,
    train_once,
)

from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.parallel_layer import ParallelLayer

HEADS, WIDTH = 4, 16
LENGTHS, TARGETS = (23, 14, 5, 1), (9, 17, 4, 1)
# float32, sums in another order: the largest difference over all cases was 1.1e-6, on numbers of up to 4.
ATOL = 1e-5

WINDOWS = {
    "encoder_attention_bias": "multi-scale",
    "encoder_attention_scales": "1,3,N/8,N/4",
    "decoder_attention_bias": "multi-scale",
    "decoder_attention_scales": "1,2,5,all",
}
DISTANCE = both(attention_bias="distance")
CASES = {
    "windows": WINDOWS,
    "windows_simple": {
        "model": "muse_simple",
        **WINDOWS,
        "encoder_attention_scales": "N/8,N/2,all",
        "decoder_attention_scales": "3",
        **both(attention_scale_alpha=0.0),
    },
    "windows_transformer": {"model": "plain_transformer", **WINDOWS, **both(attention_scale_alpha=-0.5)},
    "words_alone": {**WINDOWS, **both(attention_scales="1")},
    "radii": {**WINDOWS, **both(attention_scale_radii=True, attention_scales="0,1,4")},
    "distance": {"model": "muse_simple", **DISTANCE},
    "geometric": {"model": "plain_transformer", **DISTANCE, **both(distance_slopes="geometric")},
    "learned": {**DISTANCE, **both(distance_slopes="learned", distance_alpha=0.5)},
    "forward": {"model": "muse_simple", "encoder_attention_bias": "forward"},
    "backward_and_itself": {
        "model": "plain_transformer",
        "encoder_attention_bias": "backward",
        "encoder_attention_diagonal": "kept",
    },
    "split": {"encoder_attention_bias": "bidirectional-split"},
    "sum": {
        "model": "plain_transformer",
        **WINDOWS,
        "encoder_attention_bias": "multi-scale, distance, bidirectional-split",
        "encoder_attention_scales": "1,5,N/4,all",
        "decoder_attention_bias": "distance,multi-scale",
        **both(distance_slopes="learned", distance_alpha=0.25),
    },
    "long_short_range": {
        **WINDOWS,
        "encoder_branches": "long_short_range,ffn",
        "decoder_branches": "long_short_range,cross_attention,ffn",
        "encoder_attention_bias": "multi-scale,distance,forward",
    },
    "some_layers": {
        **WINDOWS,
        **both(layers=3),
        "encoder_attention_bias_layers": "0,2",
        "decoder_attention_bias_layers": "1",
    },
    "normalize_before": {**WINDOWS, **both(normalize_before=True)},
}


def make(case, **flags):
    return build(**{**both(attention_heads=HEADS), **CASES[case], **flags})


@cache
def made(case, form="ordinary"):
    net = make(case).eval()
    if form == "inference":
        net.make_generation_fast_()
    return net


# Where the inference form has other sizes, or other branches; that it gives the same is tested for all.
PACKED = ("windows", "windows_simple", "windows_transformer", "words_alone", "sum", "long_short_range", "some_layers")


@pytest.fixture(
    params=[*((case, "ordinary") for case in CASES), *((case, "inference") for case in PACKED)], ids="-".join
)
def net(request):
    """A model in evaluation mode; shared, so do not change it."""
    return made(*request.param)


def attentions_of(net, side):
    return [module for module in getattr(net, side).modules() if isinstance(module, SelfAttention)]


def loss_of(net, lengths=LENGTHS, targets=TARGETS):
    _, rows, source, previous = make_pair(lengths, targets)
    target = make_batch([row.roll(-1) for row in rows])
    return F.cross_entropy(logits_of(net, source, previous).flatten(0, 1), target.flatten(), ignore_index=PAD)


# ---- padding and batch --------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_a_sentence_alone_equals_itself_in_a_batch(case):
    for left in (True, False):
        check_alone(made(case), left)


def check_alone(net, left):
    sources, targets, source, previous = make_pair(LENGTHS, TARGETS, left)
    batch = logits_of(net, source, previous)
    shifted = make_batch(targets, left=True, longer=3)
    padded_before = logits_of(net, make_batch(sources, left, longer=5), shifted)
    for row, (one, target) in enumerate(zip(sources, targets, strict=True)):
        alone = logits_of(net, one[None], target[None])[0]
        assert_close(batch[row, : len(target)], alone, atol=ATOL)
        assert_close(padded_before[row, shifted[row].ne(PAD)], alone, atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_sentences_of_one_word_are_finite_and_independent(case):
    net = made(case)
    source, previous = make_batch([make_sentence(1)] * 2), make_batch([make_sentence(1)] * 2)
    out = logits_of(net, source, previous)
    assert out.isfinite().all()
    assert_close(out[0], out[1], atol=ATOL)


# ---- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_changing_a_token_leaves_earlier_outputs_bit_identical(case):
    assert_causal(made(case), 9, 12, (1, 6, 11))


@torch.no_grad()
def test_steps_equal_one_pass(net):
    _, _, source, previous = make_pair(LENGTHS, TARGETS)
    encoder_out = net.encoder(source, lengths_of(source))
    stepwise = step_through(net, encoder_out, previous, [1, 1, 1, 3, 1, 8, 1, 1])
    real = previous.ne(PAD)
    assert_close(stepwise[real], logits_of(net, source, previous)[real], atol=ATOL)


@torch.no_grad()
def test_reordered_rows_continue_like_a_fresh_pass(net):
    _, _, source, _ = make_pair(LENGTHS, TARGETS)
    previous = torch.stack([make_sentence(12, seed).roll(1) for seed in range(4)])
    for order in ([3, 0, 1], [2, 2, 0, 0, 1, 1]):
        encoder_out, state, rows = net.encoder(source, lengths_of(source)), {}, torch.tensor(order)
        step_through(net, encoder_out, previous[:, :6], [1, 3, 2], state)
        net.decoder.reorder_incremental_state_scripting(state, rows)
        encoder_out = net.encoder.reorder_encoder_out(encoder_out, rows)
        continued = previous[rows]
        continued[:, 6:] = torch.randint(4, SYMBOLS, continued[:, 6:].shape)
        rest = step_through(net, encoder_out, continued, [1, 1, 4], state)
        assert_close(rest, logits_of(net, source[rows], continued)[:, 6:], atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("case", ["windows", "sum"])
def test_beam_search_over_a_padded_batch_equals_each_sentence_alone(case):
    net = made(case, "inference")
    sources, _, source, _ = make_pair((11, 6, 3), (1, 1, 1))
    assert_search_of_each_alone(net, sources, source, atol=ATOL, beam_size=3, max_len_b=2)


# ---- reach --------------------------------------------------------------------------------------------------------


def seen_by(net, side, position, row=0, rows=((23, 14, 9))):
    """Positions of the sentence that layers' output at ``position`` depends on: where the gradient is not zero."""
    net, inputs = net.eval(), []
    layers = getattr(net, side).layers

    def capture(_, args):
        inputs.append(args[0].detach().requires_grad_())
        return (inputs[0], *args[1:])

    handle = layers[0].register_forward_pre_hook(capture)
    sources, _, source, _ = make_pair(rows, (1,) * len(rows))
    outputs = []
    last = layers[-1].register_forward_hook(lambda _, __, result: outputs.append(result))
    logits_of(net, source, source.clone())
    handle.remove()
    last.remove()
    before = source.shape[1] - len(sources[row])  # padding on the left
    weights = torch.randn(WIDTH)
    (gradient,) = torch.autograd.grad((outputs[0][before + position, row] * weights).sum(), inputs[0])
    assert (gradient[:, [other for other in range(len(rows)) if other != row]] == 0).all()
    reached = gradient[:, row].ne(0).any(-1).nonzero().flatten() - before
    return reached.tolist()


def span(first, last, length):
    return list(range(max(first, 0), min(last, length - 1) + 1))


@pytest.mark.parametrize(
    ("flags", "reach"),
    [
        ({"attention_bias": "multi-scale", "attention_scales": "1"}, lambda t, n: (t, t)),
        ({"attention_bias": "multi-scale", "attention_scales": "3"}, lambda t, n: (t - 1, t + 1)),
        ({"attention_bias": "multi-scale", "attention_scales": "1,5"}, lambda t, n: (t - 2, t + 2)),
        (
            {"attention_bias": "multi-scale", "attention_scales": "5", "attention_scale_radii": True},
            lambda t, n: (t - 5, t + 5),
        ),
        # 23 / 4, 14 / 4 and 9 / 4 tokens, made odd.
        (
            {"attention_bias": "multi-scale", "attention_scales": "N/4"},
            lambda t, n: (t - {23: 2, 14: 1, 9: 1}[n], t + {23: 2, 14: 1, 9: 1}[n]),
        ),
        ({"attention_bias": "forward"}, lambda t, n: (0, t)),  # itself by the residual sum
        ({"attention_bias": "backward"}, lambda t, n: (t, n)),
        ({"attention_bias": "multi-scale,backward", "attention_scales": "7"}, lambda t, n: (t, t + 3)),
        ({"attention_bias": "distance"}, lambda t, n: (0, n)),
        ({"attention_bias": "multi-scale,distance", "attention_scales": "3"}, lambda t, n: (t - 1, t + 1)),
    ],
    ids=lambda value: ",".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_an_encoder_layer_sees_its_window_and_nothing_else(flags, reach):
    flags = {f"encoder_{name}": value for name, value in flags.items()}
    net = build(model="plain_transformer", **{**both(layers=1, attention_heads=HEADS), **flags})
    for row, length in enumerate((23, 14, 9)):
        for position in (0, length // 2, length - 1):
            assert seen_by(net, "encoder", position, row) == span(*reach(position, length), length)


@pytest.mark.parametrize(("scales", "reach"), [("1", 0), ("2", 1), ("1,4", 3), ("all", 99)])
def test_a_decoder_layer_sees_the_last_words_and_nothing_else(scales, reach):
    flags = {"decoder_attention_bias": "multi-scale", "decoder_attention_scales": scales}
    net = build(model="muse_simple", **{**both(layers=1, attention_heads=HEADS), **flags})
    for position in (0, 3, 12):
        assert seen_by(net, "decoder", position, rows=(13,)) == span(position - reach, position, 13)


def test_the_reach_of_layers_adds_up_and_layers_without_windows_see_everything():
    flags = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3"}
    assert seen_by(build("muse_simple", **flags), "encoder", 10) == span(8, 12, 23)
    some = build("muse_simple", **flags, encoder_attention_bias_layers="1")
    assert seen_by(some, "encoder", 10) == span(0, 22, 23)


def test_the_convolution_sees_what_the_window_hides():
    flags = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3", "encoder_kernel_sizes": "9"}
    assert seen_by(build(**both(layers=1), **flags), "encoder", 10) == span(6, 14, 23)


# ---- the inference form -------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_the_inference_form_gives_the_same(case):
    ordinary, quick = made(case), made(case, "inference")
    assert all(m.packed is not None for m in quick.modules() if isinstance(m, ParallelLayer))
    assert all(m.packed is None for m in ordinary.modules() if isinstance(m, ParallelLayer))
    for left in (True, False):
        _, _, source, previous = make_pair(LENGTHS, TARGETS, left)
        real = previous.ne(PAD)
        assert_close(logits_of(quick, source, previous)[real], logits_of(ordinary, source, previous)[real], atol=ATOL)


@pytest.mark.parametrize("case", ["windows", "windows_transformer", "words_alone", "radii", "sum", "some_layers"])
def test_heads_of_one_word_have_no_queries_and_keys_in_the_inference_form(case):
    for side in ("encoder", "decoder"):
        check_heads_of_one_word(case, side)


def check_heads_of_one_word(case, side):
    found = []
    for layer in getattr(made(case, "inference"), side).modules():
        if not isinstance(layer, ParallelLayer) or "self_attention" not in layer.branches:
            continue
        attention = layer.branches["self_attention"]
        parts = [] if attention.bias is None else getattr(attention.bias, "biases", [attention.bias])
        scales = [str(scale) for part in parts for scale in getattr(part, "scales", ())]
        alone = scales.count("0" if case == "radii" else "1")
        if case == "sum" and side == "encoder":
            alone = 0  # one's own word is hidden: such heads see nothing at all
        alone = min(alone, HEADS - 1)  # slices are never empty
        sizes = layer.packed.sizes
        assert sizes["query"] == sizes["key"] == (HEADS - alone) * WIDTH // HEADS
        assert sizes["value"] == WIDTH
        assert layer.packed.in_proj(torch.zeros(1, 1, WIDTH)).shape[-1] == sum(sizes.values())
        found.append(alone)
    assert len(found) == (3 if case == "some_layers" else 2)
    assert (max(found) > 0) == ((case, side) != ("sum", "encoder"))


@torch.no_grad()
def test_histories_are_smaller_without_the_keys_of_heads_of_one_word():
    net = made("windows", "inference")
    _, _, source, previous = make_pair(LENGTHS, TARGETS)
    state = {}
    net.decoder(previous[:, :3], net.encoder(source, lengths_of(source)), incremental_state=state)
    history = state["muse_decoder"].layers[0]._histories["key+value"]
    alone = [str(scale) for scale in attentions_of(net, "decoder")[0].bias.scales].count("1")
    assert alone > 0
    assert history.buffer.shape[2] == 2 * WIDTH - alone * WIDTH // HEADS


# ---- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_every_parameter_receives_a_finite_gradient_and_a_step_helps(case):
    net = make(case, attention_dropout=0.1, dropout=0.1).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    loss_of(net).backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []
    assert all(p.grad.isfinite().all() for p in net.parameters())
    before = loss_of(net.eval()).item()
    optimizer.step()
    assert loss_of(net).item() < before


def test_queries_and_keys_of_heads_of_one_word_get_no_gradient():
    net = make("windows").train()
    loss_of(net).backward()
    for side in ("encoder", "decoder"):
        for layer in getattr(net, side).layers:
            scales = [str(scale) for scale in layer.branches["self_attention"].bias.scales]
            used = torch.tensor([scale != "1" for scale in scales]).repeat_interleave(WIDTH // HEADS)
            for part in (0, 1):  # query, key
                rows = layer.in_proj_weight.grad[part * WIDTH : (part + 1) * WIDTH]
                assert torch.equal(rows.ne(0).any(1), used)
            assert layer.in_proj_weight.grad[2 * WIDTH : 3 * WIDTH].ne(0).any(1).all()


@pytest.mark.parametrize("case", ["windows", "sum", "long_short_range", "split"])
def test_activation_checkpointing_gives_the_same_loss_and_gradients(case):
    results = []
    for wrapped in (False, True):
        net = make(case, attention_dropout=0.1, dropout=0.1, checkpoint_activations=wrapped).train()
        bottom = net.encoder.layers[0]
        assert all(stage._recomputes == wrapped for stage in getattr(bottom, "stages", [bottom]))
        results.append(train_once(net, loss_of))
    assert_same_training(*results)


@pytest.mark.parametrize("case", ["windows", "sum", "split"])
def test_autocast_stays_finite_and_near_float32(case):
    net = make(case).train()
    exact = loss_of(net).item()
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            near = loss_of(net)
        assert abs(near.item() - exact) < 0.05
        near.backward()
        assert all(p.grad.isfinite().all() for p in net.parameters())
        net.zero_grad()


@torch.no_grad()
@pytest.mark.parametrize("form", ["ordinary", "inference"])
def test_a_model_in_half_precision_translates(form):
    _, _, source, previous = make_pair(LENGTHS, TARGETS)
    real = previous.ne(PAD)
    for case in ("sum", "windows"):
        exact, net = logits_of(made(case), source, previous), make(case).eval()
        if form == "inference":
            net.make_generation_fast_()
        near = logits_of(net.bfloat16(), source, previous)
        assert near.dtype == torch.bfloat16
        assert_close(
            near[real].float(),
            exact[real],
            atol=0.1,
            why="eight bits: the largest difference was 0.024, on logits of up to 4",
        )


# ---- parameters, checkpoints, pruning -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["windows", "distance", "geometric", "split", "learned", "sum"])
def test_only_learned_alphas_are_parameters(case):
    unbiased = make(case, **both(attention_bias="none"))
    biased = make(case)
    more = {name for name, _ in biased.named_parameters()} - {name for name, _ in unbiased.named_parameters()}
    learned = case in ("learned", "sum")
    assert len(more) == (4 if learned else 0)
    assert all(name.endswith("alphas") for name in more)
    counts = [sum(p.numel() for p in net.parameters()) for net in (biased, unbiased)]
    assert counts[0] - counts[1] == (2 * 2 * HEADS if learned else 0)


@pytest.mark.parametrize("case", ["windows", "windows_transformer", "distance", "split", "long_short_range"])
@torch.no_grad()
def test_a_checkpoint_of_a_model_without_bias_fits_one_with_a_fixed_bias(case):
    unbiased, biased = make(case, **both(attention_bias="none"), seed=8).eval(), make(case).eval()
    assert list(biased.state_dict()) == list(unbiased.state_dict())
    biased.load_state_dict(unbiased.state_dict())
    _, _, source, previous = make_pair(LENGTHS, TARGETS)
    difference = (logits_of(biased, source, previous) - logits_of(unbiased, source, previous)).abs().max()
    assert difference > 1e-3  # the bias does something


def test_learned_alphas_begin_at_the_flag_and_survive_a_checkpoint():
    net, other = make("learned"), make("learned", seed=9)
    other.load_state_dict(net.state_dict())
    for one, two in zip(attentions_of(net, "encoder"), attentions_of(other, "encoder"), strict=True):
        assert_close(two.bias.alphas, one.bias.alphas, atol=0, rtol=0)
    assert_close(loss_of(other.eval()), loss_of(net.eval()), atol=0, rtol=0)


@torch.no_grad()
def test_learned_alphas_of_the_fixed_value_give_the_same():
    fixed, learned = make("distance").eval(), make("distance", **both(distance_slopes="learned")).eval()
    learned.load_state_dict(fixed.state_dict(), strict=False)
    for side in ("encoder", "decoder"):
        for attention in attentions_of(learned, side):
            attention.bias.alphas.fill_(1.5)
    assert_close(loss_of(learned), loss_of(fixed), atol=1e-6)


PRUNING = {
    **WINDOWS,
    **both(layers=4, attention_heads=HEADS, distance_slopes="learned"),
    "encoder_attention_bias": "multi-scale,distance",
    "encoder_attention_bias_layers": "0,1,3",
    "decoder_attention_scale_heads": "[[4,0,0,0],[2,2,0,0],[1,1,1,1],[0,0,1,3]]",
}


def describe(net, side):
    """What heads of each layer see, as text."""
    return [str(attention.bias) for attention in attentions_of(net, side)]


@pytest.mark.parametrize("keep", ["1,2,3", "0,3", "2", "3,1", "0,1,2,3"])
def test_pruned_layers_keep_their_windows(keep):
    full = build_from_config(make_config(**PRUNING))
    kept = sorted(map(int, keep.split(",")))
    config = make_config(**PRUNING, **both(layers_to_keep=keep))
    pruned = build_from_config(config)
    pruned.load_state_dict(full.state_dict(), model_cfg=config)
    # fairseq clears the layers to keep once it has pruned; a stored model is built from what the flags say then.
    assert config.encoder_layers_to_keep is config.decoder_layers_to_keep is None
    again = build_from_config(config)
    again.load_state_dict(pruned.state_dict(), model_cfg=config)
    for side in ("encoder", "decoder"):
        everything = describe(full, side)
        assert len(set(everything)) >= 3
        expected = [everything[number] for number in kept]
        assert describe(pruned, side) == expected
        assert describe(again, side) == expected
    assert_close(loss_of(again.eval()), loss_of(pruned.eval()), atol=0, rtol=0)


def test_pruning_away_all_layers_with_a_bias_leaves_a_plain_model():
    flags = {**PRUNING, "encoder_attention_bias_layers": "0"}
    config = make_config(**flags, encoder_layers_to_keep="1,2", decoder_layers_to_keep="0,1,2,3")
    pruned = build_from_config(config)
    pruned.load_state_dict(build_from_config(make_config(**flags)).state_dict(), model_cfg=config)
    assert describe(pruned, "encoder") == ["None", "None"]
    assert config.encoder_attention_bias == "none"
    assert describe(build_from_config(config), "encoder") == ["None", "None"]
    assert len(set(describe(build_from_config(config), "decoder"))) == 4
