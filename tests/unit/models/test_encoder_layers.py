"""Layers of sentence models as encoders of translation: sizes, what they see, decoders, pruning, flags.

What must hold for every model is in ``test_muse_properties.py``.
"""

import copy

import pytest
import torch
from fairseq.models import build_model
from fairseq.models.transformer import TransformerDecoderBase
from support.fairseq_commands import parse_training
from support.helpers import assert_close
from support.muse_models import (
    ATOL,
    PAD,
    SYMBOLS,
    VARIANTS,
    assert_search_of_each_alone,
    both,
    build,
    build_from_config,
    built,
    faults_of,
    lengths_of,
    logits_of,
    make_batch,
    make_config,
    make_pair,
    make_sentence,
    make_task,
    search,
)

from muse_plugin.models import presets
from muse_plugin.models.muse_decoder import MuseDecoder
from muse_plugin.modules.distance_attention import DistanceAttentionBlock
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer
from muse_plugin.modules.parallel_layer import ParallelLayer

KINDS = {"multi_scale": MultiScaleLayer, "distance": DistanceAttentionBlock}
LAYERS = ("multi_scale_layers", "distance_layers")
ENCODERS = {name: settings for name, (_, settings) in presets.PRESETS.items() if "_encoder_" in name}


def build_preset(name):
    """Without memory for its parameters."""
    args = parse_training("data", "--arch", name)
    with torch.device("meta"):
        return build_model(args, make_task())


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def count_weights(layers):
    """Entries of matrices: neither biases nor layer norms."""
    return sum(parameter.numel() for parameter in layers.parameters() if parameter.dim() == 2)


# ---- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "layers", "width", "heads", "head_dim"),
    [("tiny", 4, 128, 8, 32), ("iwslt_de_en", 12, 384, 24, 32), ("wmt_en_de", 12, 768, 36, 64)],
)
def test_multi_scale_layers_have_the_parameters_of_a_count_by_hand(ending, layers, width, heads, head_dim):
    inner = heads * head_dim
    by_hand = 3 * (width * inner + inner) + inner * width + width + 2 * width  # W^Q, W^K, W^V; W^O; layer norm
    encoder = build_preset(f"multi_scale_encoder_{ending}").encoder
    assert count(encoder.layers) == layers * by_hand
    assert [len(encoder.layers), encoder.embed_positions] == [layers, None]


@pytest.mark.parametrize(
    ("ending", "layers", "width", "ffn"),
    [("tiny", 2, 128, 64), ("iwslt_de_en", 4, 384, 960), ("wmt_en_de", 6, 768, 1920)],
)
def test_distance_layers_have_the_parameters_of_a_count_by_hand(ending, layers, width, ffn):
    head = width // (16 if ending == "wmt_en_de" else 4)
    attention = 3 * width**2 + width**2 + width
    gate = 2 * width**2 + width
    network = 2 * width * ffn + ffn + width
    norms = 3 * 2 * head + 5 * 2 * width  # q, k, v; W^O, both projections of the gate, gate, result
    merged = 2 * width * width + width + 2 * width
    encoder = build_preset(f"distance_encoder_{ending}").encoder
    assert count(encoder.layers) == layers * (2 * (attention + gate + network + norms) + merged)
    assert [len(encoder.layers), encoder.embed_positions] == [layers, None]


@pytest.mark.parametrize("ending", ["tiny", "iwslt_de_en"])
def test_the_encoders_have_as_many_weights_as_the_plain_transformers(ending):
    plain = build_preset(f"plain_transformer_{ending}")
    expected = sum(
        layer.in_proj_weight.numel() + layer.out_proj_weight.numel()
        for layer in plain.encoder.modules()
        if isinstance(layer, ParallelLayer)
    )
    for kind in KINDS:
        net = build_preset(f"{kind}_encoder_{ending}")
        assert count_weights(net.encoder.layers) == expected
        assert count(net.decoder) == count(plain.decoder)


def test_the_presets_are_those_of_both_papers_in_three_sizes():
    endings = ("tiny", "iwslt_de_en", "wmt_en_de")
    assert set(ENCODERS) == {f"{kind}_encoder_{ending}" for kind in KINDS for ending in endings}
    for name in ENCODERS:
        net = build_preset(name)
        kind = KINDS[name.split("_encoder")[0]]
        assert sum(isinstance(module, kind) for module in net.encoder.modules()) >= len(net.encoder.layers)
        assert isinstance(net.decoder, MuseDecoder)
        assert len(net.decoder.layers[0].stages) == 3


# ---- what they compute ---------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", LAYERS)
@pytest.mark.parametrize("left", [True, False])
def test_states_are_those_of_the_sentence_models_layers(variant, left):
    net = built(variant)
    sentences = [make_sentence(n, seed=n) for n in (9, 4, 1)]
    source = make_batch(sentences, left, longer=2)
    out = net.encoder(source, lengths_of(source))["encoder_out"][0].transpose(0, 1)
    assert out.isfinite().all()
    for row, one in enumerate(sentences):
        x = net.encoder.embed_scale * net.encoder.embed_tokens(one[None])
        for layer in net.encoder.layers:
            x = layer.layer(x, torch.tensor([len(one)]))
        assert_close(out[row, source[row].ne(PAD)], x[0], atol=ATOL)


def states_of(net, one):
    return net.encoder(one[None], lengths_of(one[None]))["encoder_out"][0][:, 0]


@torch.no_grad()
@pytest.mark.parametrize("variant", LAYERS)
def test_without_positions_the_encoder_still_tells_the_order(variant):
    net, one = built(variant), make_sentence(9, seed=1)
    assert net.encoder.embed_positions is None
    assert net.decoder.embed_positions is not None
    assert net.max_positions() == (1024, 1024)
    mirrored = torch.cat([one[:-1].flip(0), one[-1:]])  # the sign for the end stays where it is
    assert (states_of(net, one)[:-1] - states_of(net, mirrored)[:-1].flip(0)).abs().max() > 1e-2
    # Windows are the same on both sides, so that nothing but that sign tells left from right.
    difference = (states_of(net, one) - states_of(net, one.flip(0)).flip(0)).abs().max()
    assert (difference < ATOL) == (variant == "multi_scale_layers")


@torch.no_grad()
def test_positions_of_the_encoder_can_be_left_out_of_any_model():
    net = build(encoder_positions="none", encoder_branches="self_attention,ffn").eval()
    one = make_sentence(9, seed=1)
    assert_close(states_of(net, one), states_of(net, one.flip(0)).flip(0), atol=ATOL)


@torch.no_grad()
def test_a_window_of_three_words_hides_the_others():
    flags = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3", "encoder_positions": "none"}
    net = build(encoder_layer_type="multi_scale", encoder_layers=1, encoder_head_dim=5, **flags).eval()
    one = make_sentence(9, seed=1)
    other = one.clone()
    other[4] = 4 + (other[4] - 3) % (SYMBOLS - 4)
    changed = (states_of(net, one) - states_of(net, other)).abs().amax(-1).gt(1e-6).nonzero().flatten().tolist()
    assert changed == [3, 4, 5]


def test_dropout_reaches_the_layers():
    net = build(encoder_layer_type="multi_scale", dropout=0.2, branch_dropout=0.3, attention_dropout=0.1)
    assert {(layer.layer.dropout, layer.layer.attention_dropout) for layer in net.encoder.layers} == {(0.3, 0.1)}
    net = build(encoder_layer_type="distance", dropout=0.2)
    blocks = [module for module in net.encoder.modules() if isinstance(module, DistanceAttentionBlock)]
    assert {(block.dropout, block.gate.dropout) for block in blocks} == {(0.2, 0.2)}


# ---- decoders ------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", [*LAYERS, "muse", "plain_transformer"])
@pytest.mark.parametrize("decoder", ["parallel", "fairseq"])
def test_beam_search_over_a_padded_batch_equals_each_sentence_alone(variant, decoder):
    net = build(**VARIANTS[variant], decoder_layer_type=decoder).eval()
    assert isinstance(net.decoder, MuseDecoder) == (decoder == "parallel")
    assert isinstance(net.decoder, TransformerDecoderBase)
    net.make_generation_fast_()
    sources, _, source, _ = make_pair()
    assert_search_of_each_alone(net, sources, source)


@torch.no_grad()
def test_hypotheses_of_fairseqs_decoder_have_the_scores_of_one_pass():
    net = build(**VARIANTS["distance_layers"], decoder_layer_type="fairseq").eval()
    source = make_pair()[2]
    for row, (best, *_) in enumerate(search([net], source, max_len_a=1, max_len_b=4)):
        tokens = best["tokens"]
        scores = logits_of(net, source[row][None], tokens.roll(1)[None])[0].log_softmax(-1)
        total = scores.gather(-1, tokens[:, None]).sum()
        assert_close(total / len(tokens), best["score"], atol=ATOL)


def test_fairseqs_decoder_is_as_large_as_that_of_its_transformer():
    sizes = {**both(layers=2, embed_dim=16, ffn_embed_dim=24, attention_heads=2), "decoder_layer_type": "fairseq"}
    net, fairseqs = build("plain_transformer", **sizes), build("transformer", **sizes)
    assert type(net.decoder) is TransformerDecoderBase
    assert count(net.decoder) == count(fairseqs.decoder)


# ---- pruning, flags ------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", LAYERS)
def test_pruned_layers_keep_their_windows_and_can_be_built_again(variant):
    flags = {**VARIANTS[variant], "encoder_layers": 3}
    full = build(**flags).eval()
    config = make_config(**flags, encoder_layers_to_keep="0,2", decoder_layers_to_keep="0,1")
    pruned = build_from_config(config)
    pruned.load_state_dict(full.state_dict(), model_cfg=config)
    again = build_from_config(config).eval()
    again.load_state_dict(pruned.state_dict(), model_cfg=config)
    _, _, source, previous = make_pair()
    bottom_and_top = copy.deepcopy(full)
    del bottom_and_top.encoder.layers[1]
    assert_close(logits_of(again, source, previous), logits_of(bottom_and_top, source, previous), atol=ATOL)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("parallel", "encoder_head_dim", 4),
        ("distance", "encoder_head_dim", 4),
        ("multi_scale", "encoder_branches", "self_attention,ffn"),
        ("distance", "encoder_normalize_before", True),
        ("distance", "encoder_distance_slopes", "learned"),
        ("fairseq", "decoder_attention_bias", "distance"),
        ("fairseq", "int8_inference", True),
    ],
)
def test_flags_that_a_kind_of_layer_does_not_read_are_named(kind, name, value):
    side = "decoder" if kind == "fairseq" else "encoder"
    assert faults_of(**{f"{side}_layer_type": kind, name: value}) == [
        f"--{name.replace('_', '-')} has no effect with --{side}-layer-type {kind}, but got {value}; drop it."
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        (0, "--encoder-attention-heads must be at least 1, but got 0."),
        (
            3,
            "--encoder-embed-dim must be divisible by --encoder-attention-heads, but got 16 and 3; change one of them.",
        ),
    ],
)
def test_heads_that_the_width_cannot_have_are_named(kind, heads, sentence):
    assert faults_of(encoder_layer_type=kind, encoder_attention_heads=heads) == [sentence]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"encoder_layer_type": "window"},
            "--encoder-layer-type must be one of parallel, multi_scale, distance, but got 'window'.",
        ),
        ({"decoder_layer_type": "muse"}, "--decoder-layer-type must be one of parallel, fairseq, but got 'muse'."),
        (
            {"encoder_layer_type": "multi_scale", "encoder_head_dim": 0},
            "--encoder-head-dim must be at least 1, but got 0.",
        ),
        (
            {"encoder_layer_type": "distance", "encoder_attention_bias": "distance"},
            "--encoder-layer-type distance has masks of its own, but got --encoder-attention-bias distance; drop one",
        ),
        (
            {"encoder_layer_type": "distance", "encoder_distance_alpha": -1.0},
            "--encoder-distance-alpha: the alpha of the distance mask must be a finite number of at least 0, but got",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_named(flags, sentence):
    faults = faults_of(**flags)
    assert len(faults) == 1
    assert faults[0].startswith(sentence)
