"""Steps of static shapes: the same as ordinary ones, whatever happens to the batch, and fit for a CUDA graph."""

import copy
import gc
import threading

import pytest
import torch
from support.helpers import assert_close
from support.muse_models import (
    VARIANTS,
    build,
    built,
    faults_of,
    lengths_of,
    make_batch,
    make_pair,
    make_sentence,
    search,
    step_through,
)
from torch.utils._python_dispatch import TorchDispatchMode

from muse_plugin.models import static_decoding
from muse_plugin.models.decoder_step import DecoderStep, find_cross_attention
from muse_plugin.models.static_decoding import Sizes, StaticStep
from muse_plugin.modules.attention import SelfAttention

# float32, sums in another order; the largest difference of a score was 1.2e-6.
ATOL = 1e-5
DECODERS = [name for name in VARIANTS if name not in ("encoder_ffn_shared", "encoder_without_conv")]


@pytest.fixture
def taken(monkeypatch):
    """The sizes of every static step that is taken."""
    sizes = []
    run = StaticStep.run

    def spy(step, tokens):
        sizes.append((len(step.tokens), step.histories.capacity))
        return run(step, tokens)

    monkeypatch.setattr(StaticStep, "run", spy)
    return sizes


def translate(net, source, **options):
    return search([net], source, **options)


def assert_same_translations(actual, expected):
    assert len(actual) == len(expected)
    for quick, ordinary in zip(actual, expected, strict=True):
        assert [h["tokens"].tolist() for h in quick] == [h["tokens"].tolist() for h in ordinary]
        scores = [torch.stack([h["positional_scores"].sum() for h in own]) for own in (quick, ordinary)]
        assert_close(*scores, atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("variant", DECODERS)
def test_steps_and_translations_are_those_of_ordinary_steps(variant, taken):
    _, _, source, previous = make_pair()
    static, ordinary = built(variant, "static"), built(variant)
    steps = [
        step_through(net, net.encoder(source, lengths_of(source)), previous, [1] * 6) for net in (static, ordinary)
    ]
    assert len(taken) == 6
    assert_close(*steps, atol=ATOL)
    assert_same_translations(translate(static, source), translate(ordinary, source))
    assert len(taken) > 6


@torch.no_grad()
@pytest.mark.parametrize("variant", ["multi_scale", "distance", "everything_limited", "limited_long_short_range"])
def test_windows_as_a_gpu_computes_them_give_the_same(variant, taken):
    net = copy.deepcopy(built(variant, "static"))
    for module in net.modules():
        if isinstance(module, SelfAttention):
            module.window_backend = "dense"
    _, _, source, _ = make_pair()
    assert_same_translations(translate(net, source), translate(built(variant), source))
    assert taken


@torch.no_grad()
def test_a_search_moves_on_as_sentences_finish_and_histories_grow(taken):
    net = build(static_decoding="always", max_target_positions=300).eval()
    net.make_generation_fast_()
    source = make_batch([make_sentence(n, seed=n) for n in (40, 30, 9, 5, 3)], left=True)
    options = {"beam_size": 3, "max_len_a": 0, "max_len_b": 140, "min_len": 80}
    actual = translate(net, source, **options)
    expected = translate(build(max_target_positions=300).eval(), source, **options)
    assert_same_translations(actual, expected)
    assert {rows for rows, _ in taken} >= {24}  # five sentences take the place of eight
    assert {capacity for _, capacity in taken} >= {64, 128}
    # Step by step with rows of one sentence fewer each time, so that smaller steps take over.
    taken.clear()
    check_shrinking(net)
    assert {rows for rows, _ in taken} == {12, 6, 3}


def check_shrinking(net):
    ordinary = build(max_target_positions=300).eval()
    source = make_batch([make_sentence(n, seed=n) for n in (9, 7, 5)], left=True)
    tokens = torch.stack([make_sentence(7, seed).roll(1) for seed in range(9)])
    states = []
    for own in (net, ordinary):
        encoder_out, state, rows, outs = own.encoder(source, lengths_of(source)), {}, torch.arange(9), []
        encoder_out = own.encoder.reorder_encoder_out(encoder_out, torch.arange(3).repeat_interleave(3))
        for end, order in ((1, None), (2, [1, 1, 0, 5, 4, 3, 8, 8, 8]), (4, [2, 0, 1, 6, 7, 8]), (6, [3, 5, 4])):
            if order is not None:
                rows = rows[order]
                own.decoder.reorder_incremental_state_scripting(state, torch.tensor(order))
                encoder_out = own.encoder.reorder_encoder_out(encoder_out, torch.tensor(order))
            outs.append(own.decoder(tokens[rows, :end], encoder_out, incremental_state=state)[0])
        states.append(outs)
    for actual, expected in zip(*states, strict=True):
        assert_close(actual, expected, atol=ATOL)


@torch.no_grad()
def test_two_searches_in_turn_do_not_disturb_each_other():
    net, ordinary = built("muse", "static"), built("muse")
    sources = [make_batch([make_sentence(6, seed)]) for seed in (1, 2)]
    tokens = [make_sentence(5, seed).roll(1)[None] for seed in (3, 4)]
    encoded = [net.encoder(source, lengths_of(source)) for source in sources]
    states = [{}, {}]
    for end in range(1, 6):
        for number in (0, 1):
            actual = net.decoder(tokens[number][:, :end], encoded[number], incremental_state=states[number])[0]
            expected = ordinary(sources[number], lengths_of(sources[number]), tokens[number][:, :end])[0]
            assert_close(actual[:, -1], expected[:, -1], atol=ATOL)
    assert all(state["muse_decoder"].search is not None for state in states)


@torch.no_grad()
def test_a_step_that_another_thread_uses_is_left_alone():
    net = built("muse", "static")
    source, tokens = make_batch([make_sentence(6)]), make_sentence(4, 1).roll(1)[None]
    encoder_out, state, other = net.encoder(source, lengths_of(source)), {}, {}
    first = step_through(net, encoder_out, tokens[:, :2], [1, 1], state)

    def search():
        with torch.no_grad():
            other["out"] = step_through(net, encoder_out, tokens, [1] * 4, other)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    rest = step_through(net, encoder_out, tokens, [1, 1], state)
    assert other["muse_decoder"].search is None
    assert state["muse_decoder"].search is not None
    assert_close(torch.cat([first, rest], 1), other["out"], atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["muse", "plain_transformer", "conv_before_cross_attention"])
@pytest.mark.parametrize("reason", ["attention", "uneven rows", "positions"])
def test_a_search_goes_on_in_ordinary_steps(reason, variant, monkeypatch):
    net = built(variant, "static")
    source = make_batch([make_sentence(n, seed=n) for n in (6, 4)], left=True)
    tokens = torch.stack([make_sentence(6, seed).roll(1) for seed in range(4)])
    encoder_out, state = net.encoder(source, lengths_of(source)), {}
    encoder_out = net.encoder.reorder_encoder_out(encoder_out, torch.tensor([0, 0, 1, 1]))
    step_through(net, encoder_out, tokens[:, :2], [1, 1], state)
    assert state["muse_decoder"].search is not None
    order = torch.tensor([1, 0, 2] if reason == "uneven rows" else [1, 0, 2, 3])
    net.decoder.reorder_incremental_state_scripting(state, order)
    encoder_out = net.encoder.reorder_encoder_out(encoder_out, order)
    if reason == "attention":
        monkeypatch.setattr(net.decoder, "needs_attention", True)
    elif reason == "positions":  # one more step fits
        monkeypatch.setattr(static_decoding.StaticSteps, "longest", 3)
    actual = net.decoder(tokens[order, :5], encoder_out, incremental_state=state)[0]
    assert state["muse_decoder"].search is None
    owners = torch.tensor([0, 0, 1, 1])[order]
    expected = built(variant)(source[owners], lengths_of(source)[owners], tokens[order, :5])[0]
    assert_close(actual, expected[:, 2:], atol=ATOL)


@torch.no_grad()
def test_steps_are_ordinary_where_static_ones_do_not_apply(taken):
    _, _, source, previous = make_pair()
    padded = make_batch([make_sentence(3).roll(1), make_sentence(2).roll(1)], left=True)
    for flags, options, tokens in (
        ({}, {}, previous),  # "auto" on a CPU
        ({"static_decoding": "never"}, {}, previous),
        ({"static_decoding": "always"}, {"need_attn": True}, previous),
        ({"static_decoding": "always"}, {"retain_dropout": True}, previous),
        ({"static_decoding": "always"}, None, previous),  # not prepared
        ({"static_decoding": "always"}, {}, padded),
    ):
        net = build(**flags, dropout=0.1).eval()
        if options is not None:
            net.make_generation_fast_(**options)
        own = source[: len(tokens)]
        step_through(net, net.encoder(own, lengths_of(own)), tokens, [1] * tokens.shape[1])
    net = built("muse", "static")
    with torch.enable_grad():
        assert step_through(net, net.encoder(source, lengths_of(source)), previous, [1] * 6).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step_through(net, net.encoder(source, lengths_of(source)), previous, [1] * 6)
    step_through(net, net.encoder(source, lengths_of(source)), previous, [6])
    assert taken == []


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_steps_made_in_inference_mode_serve_outside_of_it(mode):
    net = copy.deepcopy(built("muse", "static"))
    _, _, source, _ = make_pair()
    with torch.inference_mode():
        first = translate(net, source)
    with mode():
        assert_same_translations(translate(net, source), first)


@torch.no_grad()
def test_steps_are_kept_for_the_next_search_and_dropped_with_the_weights():
    net = copy.deepcopy(built("muse", "static"))
    _, _, source, _ = make_pair()
    translate(net, source)
    kept = dict(net.decoder.packed.steps._kept)
    assert kept
    translate(net, source)
    gc.collect()
    assert net.decoder.packed.steps._kept == kept
    assert net.double().decoder.packed.steps._kept == {}
    assert copy.deepcopy(net).decoder.packed.steps._kept == {}


@torch.no_grad()
def test_steps_that_take_too_much_memory_are_dropped(monkeypatch):
    net = copy.deepcopy(built("muse", "static"))
    monkeypatch.setattr(static_decoding, "_MOST_BYTES", 1)
    _, _, source, _ = make_pair()
    assert_same_translations(translate(net, source), translate(built("muse"), source))
    assert len(net.decoder.packed.steps._kept) == 1


def test_the_flag_goes_with_our_decoder_only():
    (fault,) = faults_of(decoder_layer_type="fairseq", static_decoding="never")
    assert "--static-decoding" in fault
    (fault,) = faults_of(static_decoding="sometimes")
    assert "--static-decoding" in fault


class NothingFromTheCpu(TorchDispatchMode):
    """Fails where a graph could not be captured: numbers are read, or memory of the CPU is touched."""

    operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        given += [x for arg in args if isinstance(arg, (list, tuple)) for x in arg if isinstance(x, torch.Tensor)]
        made = [x for x in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(x, torch.Tensor)]
        for x in (*given, *made):
            assert x.device.type == "meta", f"{func} touches a tensor of the CPU, shape {tuple(x.shape)}"
        self.operations += 1
        return out


@torch.no_grad()
@pytest.mark.parametrize("variant", DECODERS)
def test_a_step_reads_no_number_and_touches_no_tensor_of_the_cpu(variant):
    # Tensors of the device "meta" have a shape alone: whoever asks for their numbers fails.
    net = copy.deepcopy(built(variant, "static")).to("meta")
    sizes = Sizes(2, 3, 64, 32)
    encoded = {
        f"{part}.{name}": torch.zeros(2, 32, branch.output_size, device="meta")
        for name, branch in find_cross_attention(net.decoder.layers)
        for part in ("encoder_key", "encoder_value")
    }
    step = StaticStep(DecoderStep(net.decoder), sizes, encoded)
    step.compute()  # makes the buffers
    with NothingFromTheCpu() as watch:
        features = step.compute()
    assert features.shape == (6, net.decoder.output_embed_dim)
    assert watch.operations > 20


def test_reading_a_number_would_be_noticed():
    x = torch.zeros(2, device="meta")
    with NothingFromTheCpu():
        with pytest.raises((RuntimeError, NotImplementedError)):
            bool((x > 0).any())
        with pytest.raises(AssertionError, match="touches a tensor of the CPU"):
            torch.ones(2)


@torch.no_grad()
def test_a_graph_that_cannot_be_captured_is_done_without(monkeypatch, caplog):
    net = copy.deepcopy(built("muse", "static"))
    steps = net.decoder.packed.steps

    def fail(step, pool):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(StaticStep, "capture", fail)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    # Stands for a GPU: the step is to be captured.
    monkeypatch.setattr(static_decoding, "_captures", lambda device: True)
    _, _, source, _ = make_pair()
    actual = translate(net, source)
    assert_same_translations(actual, translate(built("muse"), source))
    assert steps.captured == 0
    (message,) = [record.getMessage() for record in caplog.records if record.name == static_decoding.__name__]
    assert message.endswith("continues without: CUDA error: operation not permitted when stream is capturing")
