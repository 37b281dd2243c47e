"""What must hold for every MUSE model, whatever its flags: padding, batch, time, cache, gradients, storage."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from support.helpers import assert_close
from support.muse_models import (
    ATOL,
    PAD,
    SYMBOLS,
    VARIANTS,
    assert_causal,
    assert_same_training,
    assert_search_of_each_alone,
    both,
    build,
    build_from_config,
    built,
    lengths_of,
    logits_of,
    make_batch,
    make_config,
    make_pair,
    make_sentence,
    step_through,
    train_once,
)
from torch import nn

from muse_plugin.modules.parallel_layer import ParallelLayer

# Windows and distance have longer sentences in test_attention_bias_in_models.py; here, one model has all of them.
WINDOWED = ("multi_scale", "transformer_multi_scale", "distance", "limited_long_short_range")
# What differs in embeddings and output layer alone, apart from positions.
OUTSIDE = (
    "embedding_norm",
    "other_output_width",
    "adaptive_softmax",
    "share_all_embeddings",
    "share_decoder_embeddings",
)
DISTINCT = [variant for variant in VARIANTS if variant not in WINDOWED]
LAYERS = [variant for variant in DISTINCT if variant not in OUTSIDE]
ENCODERS = [variant for variant in LAYERS if variant not in ("even_decoder_kernel", "other_widths")]
_ENCODER_ALONE = ("encoder_ffn_shared", "encoder_without_conv", "multi_scale_layers", "distance_layers")
DECODERS = [variant for variant in LAYERS if variant not in _ENCODER_ALONE]
# What no branch decides: a variant for each shape of the parts around the layers.
AROUND = ("muse", "normalize_before", "other_widths", "other_output_width", "adaptive_softmax")
# Where the form for inference has other products, caches or sizes; that it gives the same is tested for all.
PACKED = (
    "muse",
    "muse_simple",
    "lightweight",
    "even_decoder_kernel",
    "separate_projection",
    "no_gate",
    "ffn_shared",
    "decoder_without_conv",
    "conv_without_attention",
    "long_short_range",
    "plain_transformer",
    "conv_before_cross_attention",
    "everything_limited",
    "other_widths",
)
HALVES = (torch.bfloat16, torch.float16)
# Where parameters have other names or shapes.
STORED = (
    *("muse", "muse_simple", "lightweight", "depthwise", "standard", "separate_projection", "no_gate", "ffn_shared"),
    *("long_short_range", "plain_transformer", "conv_before_cross_attention", "distance", "normalize_before"),
    *("learned_positions", "multi_scale_layers", "distance_layers", *OUTSIDE),
)


@pytest.fixture(
    params=[
        *((variant, "ordinary") for variant in DECODERS),
        *((variant, "inference") for variant in PACKED),
        *((variant, "static") for variant in (*DECODERS, *WINDOWED, *OUTSIDE)),
    ],
    ids="-".join,
)
def decoding_net(request):
    """A model as trained, and as prepared for generation, whose products are other ones."""
    return built(*request.param)


@pytest.fixture(params=AROUND)
def net_around(request):
    """A model in evaluation mode; shared, so do not change it."""
    return built(request.param)


def loss_of(net, *lengths):
    _, targets, source, previous = make_pair(*lengths)
    target = make_batch([row.roll(-1) for row in targets])
    out = net(source, lengths_of(source), previous)
    if net.decoder.adaptive_softmax is not None:  # as fairseq's adaptive_loss
        parts = zip(*net.decoder.adaptive_softmax(out[0], target.flatten()), strict=True)
        return sum(F.cross_entropy(logits, words, ignore_index=PAD) for logits, words in parts)
    lprobs = net.get_normalized_probs(out, log_probs=True)
    return -lprobs.gather(-1, target[..., None])[target.ne(PAD)].mean()


# ---- what is next to a sentence ----------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", ENCODERS)
def test_longer_padding_of_the_source_changes_nothing(variant):
    net = built(variant)
    sources, _, _, previous = make_pair()
    for left in (True, False):
        short, long = (make_batch(sources, left, longer) for longer in (0, 9))
        states = [net.encoder(tokens, lengths_of(tokens))["encoder_out"][0].transpose(0, 1) for tokens in (short, long)]
        assert_close(states[1][long.ne(PAD)], states[0][short.ne(PAD)], atol=ATOL, why=f"{left=}")
        assert_close(logits_of(net, long, previous), logits_of(net, short, previous), atol=ATOL, why=f"{left=}")


@torch.no_grad()
@pytest.mark.parametrize("variant", DECODERS)
def test_longer_padding_of_the_target_changes_nothing(variant):
    net = built(variant)
    _, targets, source, short = make_pair()
    expected = logits_of(net, source, short)[short.ne(PAD)]
    for left in (True, False):
        long = make_batch(targets, left, longer=9)
        assert_close(logits_of(net, source, long)[long.ne(PAD)], expected, atol=ATOL, why=f"{left=}")


@torch.no_grad()
@pytest.mark.parametrize("variant", DISTINCT)
def test_a_sentence_alone_equals_itself_in_a_batch(variant):
    net = built(variant)
    sources, targets, source, previous = make_pair()
    batch = logits_of(net, source, previous)
    for row, (one, target) in enumerate(zip(sources, targets, strict=True)):
        assert_close(logits_of(net, one[None], target[None])[0], batch[row, : len(target)], atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("variant", LAYERS)
def test_the_form_for_inference_computes_what_was_trained(variant):
    _, _, source, previous = make_pair()
    ordinary, inference = built(variant), built(variant, "inference")
    assert all(layer.packed is not None for layer in inference.modules() if isinstance(layer, ParallelLayer))
    assert_close(logits_of(inference, source, previous), logits_of(ordinary, source, previous), atol=ATOL)


@torch.no_grad()
def test_published_padding_leaks_and_is_off_by_default():
    sources, targets, source, previous = make_pair()
    for flags, leaks in (({}, False), ({"conv_padding": "masked"}, False), ({"conv_padding": "leaky"}, True)):
        net = build(**flags).eval()
        alone = logits_of(net, sources[2][None], targets[2][None])[0]
        difference = (logits_of(net, source, previous)[2, : len(targets[2])] - alone).abs().max()
        assert (difference > 1e-3) == leaks
        assert leaks or difference < ATOL


# ---- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", DECODERS)
def test_changing_a_token_leaves_earlier_outputs_bit_identical(variant):
    assert_causal(built(variant), 7, 6, (1, 3, 5))


@torch.no_grad()
def test_steps_of_any_size_equal_one_pass(decoding_net):
    net = decoding_net
    _, _, source, previous = make_pair()
    encoder_out = net.encoder(source, lengths_of(source))
    whole = logits_of(net, source, previous)
    for steps in ([1] * 6, [6], [4, 1, 1], [1, 3, 2]):
        stepwise = step_through(net, encoder_out, previous, steps)
        assert_close(stepwise[previous.ne(PAD)], whole[previous.ne(PAD)], atol=ATOL, why=f"{steps=}")


@torch.no_grad()
def test_prefixes_padded_on_the_left_continue_like_the_sentence_alone(decoding_net):
    net = decoding_net
    sources, targets, source, _ = make_pair()
    previous = make_batch(targets, left=True)
    encoder_out = net.encoder(source, lengths_of(source))
    pairs = zip(sources, targets, strict=True)
    alone = [logits_of(net, one[None], target[None])[0] for one, target in pairs]
    for steps in ([1] * 6, [4, 2], [2, 1, 3]):
        stepwise = step_through(net, encoder_out, previous, steps)
        assert stepwise.isfinite().all()
        for row, expected in enumerate(alone):
            assert_close(stepwise[row, previous[row].ne(PAD)], expected, atol=ATOL, why=f"{steps=}")


@torch.no_grad()
def test_reordered_rows_continue_like_a_fresh_pass(decoding_net):
    for order in ([2, 0, 1], [1, 1, 1], [0, 2], [2, 2, 0, 1, 1], [1]):
        check_reordering(decoding_net, torch.tensor(order))


def check_reordering(net, order):
    _, _, source, _ = make_pair()
    previous = torch.stack([make_sentence(6, seed).roll(1) for seed in (1, 2, 3)])
    encoder_out, state = net.encoder(source, lengths_of(source)), {}
    net.decoder(previous[:, :2], encoder_out, incremental_state=state)
    net.decoder(previous[:, :3], encoder_out, incremental_state=state)
    # The calls of fairseq's beam search between two steps.
    net.decoder.reorder_incremental_state_scripting(state, order)
    encoder_out = net.encoder.reorder_encoder_out(encoder_out, order)
    continued = previous[order]
    continued[:, 3:] = torch.randint(4, SYMBOLS, continued[:, 3:].shape)
    fourth = net.decoder(continued[:, :4], encoder_out, incremental_state=state)[0]
    rest = net.decoder(continued, encoder_out, incremental_state=state)[0]
    whole = logits_of(net, source[order], continued)
    assert_close(torch.cat([fourth, rest], dim=1), whole[:, 3:], atol=ATOL, why=f"order {order.tolist()}")


@torch.no_grad()
@pytest.mark.parametrize("form", ["ordinary", "inference"])
@pytest.mark.parametrize("variant", ["muse", "muse_simple", "no_gate", "long_short_range", "other_widths"])
def test_beam_search_over_a_padded_batch_equals_each_sentence_alone(variant, form):
    net = built(variant, form)
    sources, _, source, _ = make_pair()
    assert_search_of_each_alone(net, sources, source)


@torch.no_grad()
def test_full_context_alignment_sees_later_words_but_no_padding():
    net = build("muse_simple").eval()
    source, previous = make_batch([make_sentence(7)]), make_batch([make_sentence(4, 1)])
    encoder_out = net.encoder(source, lengths_of(source))

    def states(tokens):
        return net.decoder(tokens, encoder_out, full_context_alignment=True, features_only=True)[0]

    changed = previous.clone()
    changed[0, 3] = 5 if changed[0, 3] != 5 else 6
    assert (states(changed)[:, :3] - states(previous)[:, :3]).abs().max() > 1e-3
    padded = make_batch([previous[0]], longer=3)
    assert_close(states(padded)[:, :4], states(previous), atol=ATOL)


# ---- what callers of fairseq models rely on -----------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(
    "variant", ["muse", "no_gate", "plain_transformer", "long_short_range", "normalize_before", "other_widths"]
)
def test_alignment_is_a_distribution_over_real_source_tokens(variant):
    net = built(variant)
    _, _, source, previous = make_pair()
    _, extra = net(source, lengths_of(source), previous)
    (attention,) = extra["attn"]
    assert attention.shape == (*previous.shape, source.shape[1])
    assert (attention >= 0).all()
    assert_close(attention.sum(-1), torch.ones(previous.shape), atol=1e-5)
    assert (attention.transpose(1, 2)[source.eq(PAD)] == 0).all()


@torch.no_grad()
def test_alignment_comes_from_the_asked_layer_and_heads():
    net = built("muse")
    _, _, source, previous = make_pair()
    found = {
        (layer, heads): net(source, lengths_of(source), previous, alignment_layer=layer, alignment_heads=heads)
        for layer in (0, 1, None)
        for heads in (1, None)
    }
    attention = {key: extra["attn"][0] for key, (_, extra) in found.items()}
    assert torch.equal(attention[None, None], attention[1, None])  # the last layer unless asked otherwise
    assert not torch.allclose(attention[0, None], attention[1, None], atol=1e-4)
    assert not torch.allclose(attention[1, 1], attention[1, None], atol=1e-4)
    assert_close(found[0, 1][0], found[None, None][0], atol=ATOL)  # the prediction is the same


@torch.no_grad()
def test_training_computes_no_alignment_unless_asked():
    net = copy.deepcopy(built("muse")).train()
    _, _, source, previous = make_pair()
    assert net(source, lengths_of(source), previous)[1]["attn"] == [None]
    assert net(source, lengths_of(source), previous, alignment_layer=0)[1]["attn"][0] is not None


@torch.no_grad()
def test_extract_features_is_the_state_before_the_output_layer(net_around):
    net = net_around
    _, _, source, previous = make_pair()
    features, extra = net.extract_features(source, lengths_of(source), previous)
    assert features.shape[:2] == previous.shape
    logits = logits_of(net, source, previous)
    assert_close(net.decoder.output_layer(features), logits, atol=0, rtol=0)
    assert_close(net(source, lengths_of(source), previous, features_only=True)[0], features, atol=0, rtol=0)
    assert len(extra["inner_states"]) == 3  # the embedded input and two layers
    assert all(state.shape[:2] == previous.shape[::-1] for state in extra["inner_states"])


@torch.no_grad()
def test_encoder_returns_every_layers_states_when_asked(net_around):
    net = net_around
    _, _, source, _ = make_pair()
    out = net.encoder(source, lengths_of(source), return_all_hiddens=True)
    assert len(out["encoder_states"]) == 3
    assert torch.equal(out["encoder_padding_mask"][0], source.eq(PAD))
    if net.encoder.layer_norm is None:
        assert torch.equal(out["encoder_states"][-1], out["encoder_out"][0])


def test_probabilities_add_up_to_one(net_around):
    _, _, source, previous = make_pair()
    out = net_around(source, lengths_of(source), previous)
    probabilities = net_around.get_normalized_probs(out, log_probs=False)
    assert probabilities.shape == (*previous.shape, SYMBOLS)
    assert_close(probabilities.sum(-1), torch.ones(previous.shape), atol=1e-5)


@pytest.mark.parametrize("flags", [{}, {"no_token_positional_embeddings": True}, both(learned_pos=True)])
def test_max_positions_are_those_of_the_flags(flags):
    net = build(max_source_positions=33, max_target_positions=44, **flags)
    assert net.max_positions() == (33, 44)
    assert net.encoder.max_positions() == 33
    assert net.decoder.max_positions() == 44
    assert build(**flags).max_positions() == (1024, 1024)


def test_tied_embeddings_are_one_parameter():
    net = built("share_all_embeddings")
    assert net.encoder.embed_tokens.weight is net.decoder.embed_tokens.weight
    assert net.decoder.output_projection.weight is net.encoder.embed_tokens.weight
    half = built("share_decoder_embeddings")
    assert half.decoder.output_projection.weight is half.decoder.embed_tokens.weight
    assert half.encoder.embed_tokens.weight is not half.decoder.embed_tokens.weight


def test_gate_weights_name_every_layer_that_has_a_gate():
    gates = built("muse").gate_weights()
    names = [f"{side}.layers.{n}.branches.conv" for side in ("encoder", "decoder") for n in range(2)]
    assert sorted(gates) == sorted(names)
    assert all(abs(float(weights.sum()) - 1) < 1e-6 and not weights.requires_grad for weights in gates.values())
    assert built("muse_simple").gate_weights() == {}
    assert built("single_kernel").gate_weights() == {}


# ---- training -----------------------------------------------------------------------------------------------------

NOISE = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, "input_dropout": 0.1}


@pytest.mark.parametrize("variant", DISTINCT)
def test_every_parameter_receives_a_finite_gradient(variant):
    net = build(**{**VARIANTS[variant], **NOISE}).train()
    loss_of(net).backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []
    assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(
    ("variant", "noise", "offload"),
    [
        ("muse", {}, False),
        ("muse", NOISE, False),
        ("muse", NOISE, True),
        ("muse_simple", {}, False),
        ("long_short_range", NOISE, False),
        ("normalize_before", {}, False),
        ("multi_scale_layers", NOISE, False),
        ("distance_layers", NOISE, True),
    ],
)
def test_activation_checkpointing_gives_the_same_loss_and_gradients(variant, noise, offload):
    results = []
    for flags in ({}, {"checkpoint_activations": True, "offload_activations": offload}):
        net = build(**{**VARIANTS[variant], **noise, **flags}).train()
        assert net.encoder.layers[0]._recomputes == bool(flags)
        assert net.decoder.layers[0]._recomputes == bool(flags)
        results.append(train_once(net, loss_of))
    assert_same_training(*results)


@torch.no_grad()
def test_activation_checkpointing_does_not_disturb_decoding():
    plain, wrapped = build().eval(), build(checkpoint_activations=True).eval()
    _, _, source, previous = make_pair()
    encoder_out = plain.encoder(source, lengths_of(source))
    actual = step_through(wrapped, encoder_out, previous, [1, 2, 3])
    assert_close(actual, step_through(plain, encoder_out, previous, [1, 2, 3]), atol=0, rtol=0)


@pytest.mark.parametrize(
    "windows", [{}, {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3,N/4"}]
)
def test_layers_that_torch_compiles_train_alike(windows):
    plain, compiled = (build(**both(layers=1), **windows, weight_dropout=0.0).train() for _ in range(2))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for layer in [*compiled.encoder.layers, *compiled.decoder.layers]:
        layer.compile(backend="eager", dynamic=True)  # without the code generator, which takes a minute
    for lengths in (((7, 5, 3), (4, 6, 2)), ((12, 5, 3, 4), (9, 6, 2, 3))):
        results = []
        for net in (plain, compiled):
            net.zero_grad()
            results.append(train_once(net, lambda net, lengths=lengths: loss_of(net, *lengths)))
        assert_same_training(*results, atol=ATOL)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def test_layerdrop_skips_layers_in_training_only_and_trains():
    net = build(**both(layers=3, layerdrop=0.5))
    calls = []
    for side in (net.encoder, net.decoder):
        for layer in nn.ModuleList.__iter__(side.layers):
            layer.register_forward_hook(lambda *_: calls.append(1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    counts, losses = set(), []
    for _ in range(40):
        calls.clear()
        optimizer.zero_grad()
        loss = loss_of(net.train())
        loss.backward()
        optimizer.step()
        counts.add(len(calls))
        losses.append(loss.item())
    assert len(counts) > 2
    assert min(counts) < 6
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    calls.clear()
    loss_of(net.eval())
    assert len(calls) == 6


PRUNING = both(layers=3, kernel_sizes="[[3], [5], [7, 9]]")


def test_pruned_model_holds_the_layers_to_keep():
    full = build(**PRUNING)
    config = make_config(**PRUNING, **both(layers_to_keep="0,2"))
    pruned = build_from_config(config)
    assert [layer.branches["conv"].kernel_sizes for layer in pruned.encoder.layers] == [(3,), (7, 9)]
    assert [layer.branches["conv"].kernel_sizes for layer in pruned.decoder.layers] == [(3,), (7, 9)]
    pruned.load_state_dict(full.state_dict(), model_cfg=config)
    for side in ("encoder", "decoder"):
        kept = getattr(pruned, side).layers
        for new, old in ((0, 0), (1, 2)):
            expected = getattr(full, side).layers[old].state_dict()
            for name, tensor in kept[new].state_dict().items():
                assert_close(tensor, expected[name], atol=0, rtol=0)
    assert loss_of(pruned.eval()).isfinite()


def test_pruned_model_can_be_stored_and_built_again():
    # fairseq clears the layers to keep in the flags once it has pruned; the number of layers must follow.
    config = make_config(**PRUNING, **both(layers_to_keep="0,2"))
    pruned = build_from_config(config)
    pruned.load_state_dict(build(**PRUNING).state_dict(), model_cfg=config)
    again = build_from_config(config)
    again.load_state_dict(pruned.state_dict(), model_cfg=config)
    assert_close(loss_of(again.eval()), loss_of(pruned.eval()), atol=1e-6)


def test_a_model_that_was_trained_with_fewer_layers_is_read_again():
    # From scratch nothing was pruned: the flags of the checkpoint still name the layers to keep.
    config = make_config(**PRUNING, **both(layers_to_keep="0,2"))
    trained = build_from_config(config).eval()
    assert (config.encoder_layers, config.decoder_layers_to_keep) == (3, "0,2")
    again = build_from_config(config)
    again.load_state_dict(trained.state_dict(), model_cfg=config)
    assert (config.encoder_layers, config.decoder_layers_to_keep) == (2, None)
    assert_close(loss_of(again.eval()), loss_of(trained), atol=0, rtol=0)


# ---- number formats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [
        ("muse", torch.float16),
        *((variant, torch.bfloat16) for variant in ("muse", "muse_simple", "lightweight", "standard", "no_gate")),
        ("long_short_range", torch.bfloat16),
        *((variant, dtype) for variant in ("multi_scale_layers", "distance_layers") for dtype in HALVES),
    ],
)
def test_autocast_stays_finite_and_near_float32(variant, dtype):
    net = build(**{**VARIANTS[variant], **NOISE}).train()
    exact = loss_of(net.eval()).item()
    with torch.autocast("cpu", dtype=dtype):
        near = loss_of(net).item()
        loss = loss_of(net.train())
    loss.backward()
    assert abs(near - exact) < 0.1
    assert all(p.grad.isfinite().all() for p in net.parameters())


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(
    "variant",
    [
        *("muse", "muse_simple", "plain_transformer", "lightweight", "depthwise", "standard", "long_short_range"),
        *("multi_scale", "distance", "multi_scale_layers", "distance_layers"),
    ],
)
@pytest.mark.usefixtures("on_device")
def test_model_in_every_precision_stays_finite_and_decodes(variant, dtype):
    net = build(**VARIANTS[variant]).eval().to(dtype)
    _, _, source, previous = make_pair()
    whole = logits_of(net, source, previous)
    assert whole.dtype == dtype
    assert whole.isfinite().all()
    stepwise = step_through(net, net.encoder(source, lengths_of(source)), previous, [1] * 6)
    real = previous.ne(PAD)
    assert_close(stepwise[real], whole[real], atol=0.05, why="numbers of size 3 with 8 bits, measured maximum 0.016")


@pytest.mark.parametrize("normalize_before", [False, True])
def test_deep_model_stays_finite_on_a_constant_input(normalize_before):
    net = build(**both(layers=12, normalize_before=normalize_before))
    source = torch.full((2, 40), 7)
    logits = logits_of(net, source, source)
    assert logits.isfinite().all()
    assert logits.abs().max() < 100
    logits.logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())


# ---- storage ------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", STORED)
def test_state_dict_round_trip_gives_the_same_outputs(variant):
    net, other = built(variant), build(seed=8, **VARIANTS[variant]).eval()
    _, _, source, previous = make_pair()
    expected = logits_of(net, source, previous)
    assert not torch.equal(logits_of(other, source, previous), expected)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert_close(logits_of(other, source, previous), expected, atol=0, rtol=0)


def test_parameters_keep_their_names():
    # A checkpoint stores these names: changing one makes old checkpoints useless.
    layer = {
        "in_proj_weight",
        "in_proj_bias",
        "out_proj_weight",
        "out_proj_bias",
        "layer_norm.weight",
        "layer_norm.bias",
    }
    conv = {"branches.conv.gate", "branches.conv.kernel_weight"}
    cross = {f"branches.cross_attention.key_value_proj.{kind}" for kind in ("weight", "bias")}
    names = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"}
    for side, parts in (("encoder", layer | conv), ("decoder", layer | conv | cross)):
        names |= {f"{side}.layers.{number}.{part}" for number in range(2) for part in parts}
    net = build()
    assert {name for name, _ in net.named_parameters()} == names
    buffers = set(net.state_dict()) - names
    assert {name.rsplit(".", 1)[1] for name in buffers} <= {"version", "_float_tensor"}


@torch.no_grad()
def test_deep_copy_and_pickle_give_the_same_outputs(net_around):
    net = net_around
    _, _, source, previous = make_pair()
    expected = logits_of(net, source, previous)
    twins = [copy.deepcopy(net)]
    if "train" not in vars(net):  # fairseq puts a local function there before generation, which cannot be pickled
        twins.append(pickle.loads(pickle.dumps(net)))
    for twin in twins:
        assert_close(logits_of(twin, source, previous), expected, atol=0, rtol=0)


def test_model_built_from_hydra_flags_can_be_pickled():
    net = build_from_config(OmegaConf.merge(make_config(), {"activation_fn": "gelu"}))
    twin = pickle.loads(pickle.dumps(net))
    assert_close(loss_of(twin.eval()), loss_of(net.eval()), atol=0, rtol=0)
