"""The form that fairseq-generate asks for: what it changes, what it must not change, and what switches it off.

Every property of ``test_muse_properties.py`` is checked for both forms.

"""

import copy
import pickle
from argparse import Namespace

import pytest
import torch
from support.helpers import assert_close
from support.layers import run_layer
from support.muse_models import ATOL, EOS, build, built, lengths_of, logits_of, make_pair, search

from muse_plugin.modules.parallel_layer import ParallelLayer

VARIANTS_THAT_SEARCH = (
    "muse muse_simple no_gate learned_positions other_output_width plain_transformer multi_scale "
    "transformer_multi_scale distance everything_limited"
).split()


def generation(**options):
    options = {"print_alignment": None, "replace_unk": None, "beam": 4, "no_beamable_mm": False, **options}
    return Namespace(generation=Namespace(**options))


def layers_of(net):
    return [module for module in net.modules() if isinstance(module, ParallelLayer)]


def prepared(seed=3, **flags):
    net = build(seed=seed, **flags).eval()
    net.prepare_for_inference_(generation())
    return net


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS_THAT_SEARCH)
def test_hypotheses_are_those_of_the_ordinary_form(variant):
    _, _, source, _ = make_pair()
    pairs = zip(*(search([built(variant, form)], source) for form in ("ordinary", "inference")), strict=True)
    for ordinary, quick in pairs:
        assert [hypothesis["tokens"].tolist() for hypothesis in quick] == [h["tokens"].tolist() for h in ordinary]
        assert_close(torch.stack([h["score"] for h in quick]), torch.stack([h["score"] for h in ordinary]), atol=ATOL)


@torch.no_grad()
def test_encoder_keys_and_values_are_kept_per_sentence_and_the_beam_shares_them():
    net = prepared()
    _, _, source, _ = make_pair()
    sentences, beam = source.shape[0], 4
    encoder_out = net.encoder(source, lengths_of(source))
    tiled = net.encoder.reorder_encoder_out(encoder_out, torch.arange(sentences).repeat_interleave(beam))
    assert tiled["encoder_out"][0] is encoder_out["encoder_out"][0]
    state = {}
    tokens = torch.full((sentences * beam, 1), EOS)
    net.decoder(tokens, tiled, incremental_state=state)
    key, value = state["muse_decoder"].layers[0].encoder_key_value
    assert key.shape[0] == value.shape[0] == sentences
    # A step within every beam leaves them alone; a finished sentence takes its own away.
    within = torch.arange(sentences * beam).view(sentences, beam).flip(1).flatten()
    net.decoder.reorder_incremental_state_scripting(state, within)
    assert state["muse_decoder"].layers[0].encoder_key_value[0] is key
    net.decoder.reorder_incremental_state_scripting(state, within[beam:])
    assert_close(state["muse_decoder"].layers[0].encoder_key_value[0], key[1:], atol=0, rtol=0)


@torch.no_grad()
def test_a_step_with_rows_of_no_sentence_is_refused():
    net = prepared()
    _, _, source, _ = make_pair()
    encoder_out = net.encoder(source, lengths_of(source))
    with pytest.raises(ValueError, match=r"same number of rows, but got 4 rows for 3 encoded sentences; reorder"):
        net.decoder(torch.full((4, 1), EOS), encoder_out)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["muse", "conv_heads", "separate_projection"])
def test_kernels_come_out_of_the_input_projection(variant):
    net = built(variant, "inference")
    for layer in layers_of(net):
        conv = layer.branches["conv"]
        x = torch.randn(3, 2, layer.embed_dim)
        projected = layer.packed.project_in(x, None)
        folded = projected[conv.folded_name].unflatten(-1, (conv.num_heads, len(conv.kernel_sizes), -1))
        taps = torch.split(conv.taps(projected, 3), list(conv.kernel_sizes), dim=-1)  # each (B, H, T, size)
        for i, expected in enumerate(taps):
            actual = folded[..., i, :].transpose(1, 2)
            real = torch.isfinite(actual[0, 0, 0])  # the others are taps that this size does not have
            assert int(real.sum()) == conv.kernel_sizes[i]
            assert_close(actual[..., real], expected, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("option", [None, "hard"])
def test_attention_is_computed_only_if_somebody_asks(option):
    net = build().eval()
    net.prepare_for_inference_(generation(print_alignment=option))
    _, _, source, previous = make_pair()
    attention = net(source, lengths_of(source), previous)[1]["attn"][0]
    assert (attention is not None) == (option is not None)


def test_words_are_replaced_only_where_they_are_aligned():
    net = build().eval()
    with pytest.raises(ValueError, match=r"^--replace-unk copies .* but there is no --print-alignment; add it\.$"):
        net.prepare_for_inference_(generation(replace_unk="<unk>"))
    net.prepare_for_inference_(generation(replace_unk="<unk>", print_alignment="hard"))
    assert net.decoder.needs_attention


def test_words_cannot_be_aligned_without_cross_attention():
    net = build(decoder_branches="self_attention,conv,ffn").eval()
    with pytest.raises(ValueError, match=r"^--print-alignment reads cross-attention, but the decoder has none; drop"):
        net.prepare_for_inference_(generation(print_alignment="hard"))


@torch.no_grad()
def test_the_form_follows_dtype_and_is_dropped_by_loading():
    _, _, source, previous = make_pair()
    net, other = prepared(), build(seed=9).eval()
    half = copy.deepcopy(net).bfloat16()
    assert half.decoder.packed.project.backend == "plain"
    assert logits_of(half, source, previous).dtype == torch.bfloat16
    assert_close(logits_of(half.float(), source, previous), logits_of(net, source, previous), atol=0.2)
    net.load_state_dict(other.state_dict())
    assert net.decoder.packed is None
    assert all(layer.packed is None for layer in layers_of(net))
    assert_close(logits_of(net, source, previous), logits_of(other, source, previous), atol=ATOL)


def test_names_in_a_checkpoint_stay_and_pickling_a_layer_keeps_its_form():
    ordinary, net = build(), prepared()
    assert list(net.state_dict()) == list(ordinary.state_dict())
    layer = net.decoder.layers[0]
    twin = pickle.loads(pickle.dumps(layer))
    x = torch.randn(2, 3, 16)
    encoder_out = torch.randn(4, 3, 16)
    assert twin.packed is not None
    after, before = (run_layer(own, x, encoder_out=encoder_out)[0] for own in (twin, layer))
    assert_close(after, before, atol=0, rtol=0)


@torch.no_grad()
def test_eight_bits_change_little_and_are_off_in_training():
    _, _, source, previous = make_pair()
    exact = logits_of(build().eval(), source, previous)
    net = prepared(int8_inference=True)
    assert {layer.packed.in_proj.backend for layer in layers_of(net)} == {"int8"}
    rounded = logits_of(net, source, previous)
    assert 0 < (rounded - exact).abs().max() < 0.1 * exact.abs().max()
    unprepared = build(int8_inference=True).eval()
    assert_close(logits_of(unprepared, source, previous), exact, atol=0, rtol=0)


@torch.no_grad()
def test_positions_of_a_step_are_not_looked_up_for_the_whole_prefix(monkeypatch):
    net = prepared()
    _, _, source, previous = make_pair()
    encoder_out, state = net.encoder(source, lengths_of(source)), {}
    looked_up = []
    forward = net.decoder.embed_positions.forward

    def spy(*args, **kwargs):
        out = forward(*args, **kwargs)
        looked_up.append(out.shape[1])
        return out

    monkeypatch.setattr(net.decoder.embed_positions, "forward", spy)
    for end in (2, 3, 4):
        net.decoder(previous[:, :end], encoder_out, incremental_state=state)
    assert looked_up == [2, 1, 1]


def test_modules_that_retain_dropout_must_be_there():
    net = build()
    names = "ParallelLayer,SelfAttention"
    net.prepare_for_inference_(generation(retain_dropout=True, retain_dropout_modules=names))
    with pytest.raises(ValueError, match=r"^--retain-dropout-modules must .* ParallelLayer, Self.*ParalelLayer"):
        net.prepare_for_inference_(generation(retain_dropout=True, retain_dropout_modules="ParalelLayer"))
    net.prepare_for_inference_(generation(retain_dropout=False, retain_dropout_modules="ParalelLayer"))
