"""Flags that cannot work: each is refused with the rule, what was received, and the way out."""

import re

import pytest
import torch
from support.helpers import PACKAGE, run_command
from support.muse_models import build, faults_of, lengths_of, make_pair
from support.warm_python import find_python

from muse_plugin.models.layer_builder import branch_names
from muse_plugin.models.muse_config import parse_kernel_sizes


def on_both_sides(*values):
    """Pairs of a side and a value: all of them in the encoder, the first in the decoder, which shares the code."""
    return [*(("encoder", value) for value in values), ("decoder", values[0])]


def test_the_flags_that_the_others_change_one_by_one_are_good():
    build()


@pytest.mark.parametrize(("side", "value"), on_both_sides(0, -4))
@pytest.mark.parametrize("size", ["embed_dim", "ffn_embed_dim"])
def test_build_raises_error_for_a_width_below_one(side, size, value):
    sentence = f"--{side}-{size.replace('_', '-')} must be at least 1, but got {value}."
    assert sentence in faults_of(**{f"{side}_{size}": value})


@pytest.mark.parametrize(("side", "text"), on_both_sides("", "  ", "[]"))
def test_build_raises_error_when_there_are_no_kernel_sizes(side, text):
    (sentence,) = faults_of(**{f"{side}_kernel_sizes": text})
    assert sentence == (
        f"--{side}-kernel-sizes: kernel sizes must hold at least one size, but got an empty list; give e.g. 3,15."
    )


@pytest.mark.parametrize(("text", "even"), [("4", "[4]"), ("3,8,5,2", "[8, 2]"), ("[[3],[6]]", "[6]")])
def test_build_raises_error_when_an_encoder_kernel_is_even(text, even):
    (sentence,) = faults_of(encoder_kernel_sizes=text)
    assert sentence.startswith(
        "--encoder-kernel-sizes: kernel sizes must be odd in the encoder, where a kernel is centred on its token, "
        f"but got {even} in "
    )
    assert sentence.endswith(f"; use odd sizes, e.g. {int(even.strip('[]').split(',')[0]) + 1}.")


def test_even_kernels_are_good_in_the_decoder():
    model = build(decoder_kernel_sizes="2,4")
    assert model.decoder.layers[0].branches["conv"].kernel_sizes == (2, 4)


@pytest.mark.parametrize(("side", "text"), on_both_sides("3.5", "3,0", "-3", "True", "[[3],[5.0]]", "3,'5'"))
def test_build_raises_error_when_a_kernel_size_is_no_positive_integer(side, text):
    (sentence,) = faults_of(**{f"{side}_kernel_sizes": text})
    pattern = rf"--{side}-kernel-sizes: kernel sizes must be integers >= 1, but got \[.*\]; give e\.g\. 3,15\."
    assert re.fullmatch(pattern, sentence)


@pytest.mark.parametrize(
    ("side", "text"), on_both_sides("three", "3;15", "3 15", "03", "{3}", "{[]: 3}", "'3'", "__import__('os').getcwd()")
)
def test_build_raises_error_when_kernel_sizes_cannot_be_read(side, text):
    (sentence,) = faults_of(**{f"{side}_kernel_sizes": text})
    assert sentence == f"--{side}-kernel-sizes must list integers, e.g. 3,15 or '[[3],[7]]', but got {text!r}."


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("text", ["[[3]]", "[[3],[5],[7]]"])
def test_build_raises_error_when_there_are_not_as_many_kernel_lists_as_layers(side, text):
    (sentence,) = faults_of(**{f"{side}_kernel_sizes": text})
    count = text.count("[") - 1
    assert sentence == (
        f"--{side}-kernel-sizes must hold one list per layer, but got {count} lists for 2 layers: {text}."
    )


def test_build_raises_error_when_lists_and_numbers_are_mixed():
    (sentence,) = faults_of(encoder_kernel_sizes="[[3],7]")
    assert "--encoder-kernel-sizes" in sentence
    assert "[[3],7]" in sentence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", [(7,), (7,)]),
        ("3,15", [(3, 15), (3, 15)]),
        (" 3 , 15 ", [(3, 15), (3, 15)]),
        ("[3,15]", [(3, 15), (3, 15)]),
        ("(3,15)", [(3, 15), (3, 15)]),
        ("[[3],[7,15]]", [(3,), (7, 15)]),
        ("[3],[7,15]", [(3,), (7, 15)]),
        ([3, 15], [(3, 15), (3, 15)]),
    ],
)
def test_kernel_sizes_are_read_in_every_documented_form(text, expected):
    assert parse_kernel_sizes(text, 2, "--encoder-kernel-sizes", causal=False) == expected


def test_kernel_sizes_do_not_matter_where_nothing_convolves():
    build(encoder_branches="self_attention,ffn", encoder_kernel_sizes="none of your business")


@pytest.mark.parametrize(("side", "heads"), on_both_sides(3, 0, -2))
@pytest.mark.parametrize("kind", ["attention", "conv"])
def test_build_raises_error_when_the_width_does_not_divide_into_heads(side, kind, heads):
    (sentence,) = faults_of(**{f"{side}_{kind}_heads": heads})
    assert sentence == (
        f"--{side}-embed-dim must be divisible by --{side}-{kind}-heads, but got 16 and {heads}; change one of them."
    )


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_build_raises_error_for_an_unknown_branch_and_lists_the_known_ones(side):
    (sentence,) = faults_of(**{f"{side}_branches": "self_attention,recurrence,ffn"})
    assert sentence == (
        f"--{side}-branches must list branches out of {', '.join(branch_names(side))}, each at most once, "
        "but got 'self_attention,recurrence,ffn' with the unknown recurrence."
    )


def test_build_raises_error_for_cross_attention_in_the_encoder():
    (sentence,) = faults_of(encoder_branches="self_attention,cross_attention")
    assert sentence.endswith("with the unknown cross_attention.")


@pytest.mark.parametrize(("side", "text"), on_both_sides("conv,ffn,conv", "", ","))
def test_build_raises_error_for_a_repeated_branch_or_none(side, text):
    (sentence,) = faults_of(**{f"{side}_branches": text})
    assert sentence.startswith(f"--{side}-branches must list branches out of ")
    assert sentence.endswith(f", each at most once, but got {text!r}.")


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        *(("input_dropout", rate) for rate in (-0.1, 1.0, float("nan"))),
        *((f"{name}_dropout", 1.5) for name in ("attention", "activation", "branch", "weight")),
    ],
)
def test_build_raises_error_when_a_dropout_is_no_probability_below_one(name, rate):
    (sentence,) = faults_of(**{name: rate})
    assert sentence == f"--{name.replace('_', '-')} must lie in [0, 1), but got {rate}."


@pytest.mark.parametrize("name", ["input_init", "output_init"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_build_raises_error_when_an_initialisation_is_no_number_from_0_on(name, value):
    flag = f"--{name.replace('_', '-')}"
    assert faults_of(**{name: value}) == [f"{flag} must be a number of at least 0, but got {value}."]


@pytest.mark.parametrize(
    ("side", "flags"),
    [
        ("encoder", {}),
        ("decoder", {}),
        ("encoder", {"encoder_conv_projection": "separate", "encoder_branches": "self_attention,ffn"}),
        ("encoder", {"encoder_conv_projection": "separate", "encoder_branches": "self_attention,conv/ffn"}),
    ],
)
def test_build_raises_error_when_there_is_no_projection_of_a_convolution_to_read(side, flags):
    (sentence,) = faults_of(**{f"{side}_ffn_projection": "conv", **flags})
    assert sentence.startswith(f"--{side}-ffn-projection conv reads the separate projection of a convolution")
    assert sentence.endswith(
        f"but got --{side}-conv-projection {'separate' if flags else 'shared'} and --{side}-branches "
        f"{flags.get('encoder_branches', 'self_attention,conv,' + 'cross_attention,' * (side == 'decoder') + 'ffn')}; "
        f"add --{side}-conv-projection separate and the branch conv, or use shared."
    )


def test_build_raises_error_for_an_unknown_choice_and_lists_the_known_ones():
    assert faults_of(decoder_conv_type="causal") == [
        "--decoder-conv-type must be one of dynamic, lightweight, depthwise, standard, but got 'causal'."
    ]


@pytest.mark.parametrize("others", [{}, {"branch_dropout": 0.1}])
def test_a_wrong_dropout_is_reported_once(others):
    # Where --branch-dropout is not given, naming it would send the user looking for a flag that is not there.
    assert faults_of(dropout=1.0, **others) == ["--dropout must lie in [0, 1), but got 1.0."]


def test_build_raises_error_when_shared_embeddings_have_different_dictionaries():
    (sentence,) = faults_of(target_symbols=25, share_all_embeddings=True)
    assert sentence == (
        "--share-all-embeddings needs one dictionary for both languages, but got a source dictionary of 20 and a "
        "different target dictionary of 25 symbols; preprocess with --joined-dictionary or drop the flag."
    )


def test_equal_dictionaries_may_be_two_objects():
    build(target_symbols=20, share_all_embeddings=True)


def test_build_raises_error_when_shared_embeddings_have_different_widths():
    (sentence,) = faults_of(share_all_embeddings=True, decoder_embed_dim=8)
    assert sentence.startswith(
        "--share-all-embeddings needs --encoder-embed-dim to equal --decoder-embed-dim, but got 16 and 8"
    )


@pytest.mark.parametrize("shares", ["share_all_embeddings", "share_decoder_input_output_embed"])
def test_build_raises_error_when_a_shared_output_layer_has_another_width(shares):
    (sentence,) = faults_of(**{shares: True}, decoder_output_dim=10)
    assert sentence == (
        "--decoder-output-dim must equal --decoder-embed-dim where the output layer shares the embeddings, but got 10 "
        "and 16; drop it, or do not share them."
    )
    build(**{shares: True}, decoder_output_dim=16)


@pytest.mark.parametrize("text", ["14,8", "8,8", "-3", "0,5", "21", "[]", "[None]"])
def test_build_raises_error_when_an_adaptive_softmax_cannot_be_cut(text):
    (sentence,) = faults_of(adaptive_softmax_cutoff=text)
    assert sentence == (
        "--adaptive-softmax-cutoff must list rising numbers of words, at most the 20 of the target dictionary, e.g. "
        f"2000,8000, but got {text!r}."
    )


def test_build_raises_error_when_the_cut_of_an_adaptive_softmax_cannot_be_read():
    (sentence,) = faults_of(adaptive_softmax_cutoff="many")
    assert sentence.startswith("--adaptive-softmax-cutoff: ")
    assert "'many'" in sentence


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf")])
def test_build_raises_error_when_an_adaptive_softmax_cannot_shrink(factor):
    (sentence,) = faults_of(adaptive_softmax_cutoff="8,20", adaptive_softmax_factor=factor)
    assert sentence == f"--adaptive-softmax-factor must be a number above 0, but got {factor}; 4 is usual."


@pytest.mark.parametrize("flag", ["tie_adaptive_weights", "tie_adaptive_proj"])
def test_build_raises_error_for_ties_to_adaptive_inputs(flag):
    (sentence,) = faults_of(**{flag: True}, adaptive_softmax_cutoff="8")
    assert sentence.startswith(f"--{flag.replace('_', '-')} is refused, since it ties an adaptive softmax to adaptive")


def test_build_raises_error_when_embeddings_should_have_a_width_of_their_own():
    (sentence,) = faults_of(decoder_input_dim=10)
    assert sentence.startswith("--decoder-input-dim is refused, since a translation model embeds words in the width of")
    build(decoder_input_dim=16)


@pytest.mark.parametrize("name", ["max_source_positions", "max_target_positions", "decoder_output_dim"])
@pytest.mark.parametrize("value", [0, -5])
def test_build_raises_error_for_a_size_below_one(name, value):
    assert faults_of(**{name: value}) == [f"--{name.replace('_', '-')} must be at least 1, but got {value}."]


@pytest.mark.parametrize(("side", "keep"), on_both_sides("0,2", "a", "0,-3", "0,0.5"))
def test_build_raises_error_when_a_layer_to_keep_does_not_exist(side, keep):
    (sentence,) = faults_of(**{f"{side}_layers_to_keep": keep})
    assert f"--{side}-layers-to-keep" in sentence
    assert keep in sentence


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_build_raises_error_when_half_the_width_does_not_divide_into_heads(side):
    branches = "long_short_range,ffn" if side == "encoder" else "long_short_range,cross_attention,ffn"
    (sentence,) = faults_of(**{f"{side}_branches": branches, f"{side}_attention_heads": 16})
    # 16 heads do divide the width of 16: the user must learn which branch wants more, and from which flag.
    assert "long_short_range" in sentence
    assert f"--{side}" in sentence


@pytest.mark.parametrize(
    ("side", "flag", "value"),
    [
        ("encoder", "branches", "conv,long_short_range,ffn"),
        ("encoder", "conv_type", "lightweight"),
        ("decoder", "conv_type", "lightweight"),
    ],
)
def test_build_raises_error_when_long_short_range_meets_another_convolution(side, flag, value):
    (sentence,) = faults_of(**{f"{side}_branches": "long_short_range,ffn", f"{side}_{flag}": value})
    assert "long_short_range has a dynamic convolution of its own" in sentence
    assert f"--{side}-{flag.replace('_', '-')} {value}" in sentence


@pytest.mark.parametrize(
    ("flags", "beginnings"),
    [
        (
            {
                "encoder_kernel_sizes": "4",
                "decoder_kernel_sizes": "",
                "encoder_attention_heads": 3,
                "decoder_conv_heads": 5,
                "input_dropout": 2.0,
                "weight_dropout": -1.0,
            },
            [
                "--encoder-kernel-sizes: kernel sizes must be odd",
                "--encoder-embed-dim must be divisible by --encoder-attention-heads, but got 16 and 3",
                "--decoder-kernel-sizes: kernel sizes must hold at least one size",
                "--decoder-embed-dim must be divisible by --decoder-conv-heads, but got 16 and 5",
                "--input-dropout must lie in [0, 1), but got 2.0",
                "--weight-dropout must lie in [0, 1), but got -1.0",
            ],
        ),
        (
            {
                "encoder_attention_bias": "everything",
                "encoder_kernel_sizes": "4",
                "input_dropout": 2.0,
                "decoder_attention_bias": "multi-scale",
                "decoder_attention_scales": "1,N/2",
            },
            ["--encoder-attention-bias", "--encoder-kernel-sizes", "--decoder-attention-scales", "--input-"],
        ),
        (
            {"encoder_branches": "conv,recurrence", "encoder_kernel_sizes": "4"},
            ["--encoder-branches", "--encoder-kernel-sizes"],
        ),
        (
            {"target_symbols": 25, "share_all_embeddings": True, "input_dropout": 2.0},
            ["--share-all-embeddings", "--input-dropout"],
        ),
    ],
    ids=["of both sides", "with a bias", "of one side", "with embeddings"],
)
def test_all_faults_are_reported_together(flags, beginnings):
    sentences = faults_of(**flags)
    assert len(sentences) == len(beginnings)
    for beginning in beginnings:
        assert sum(sentence.startswith(beginning) for sentence in sentences) == 1, beginning


def test_training_command_ends_with_the_sentence(tmp_path):
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("a 1\nb 1\n")
    words = ["--user-dir", str(PACKAGE), "--arch", "muse_tiny", "--source-lang", "de", "--target-lang", "en", "--cpu"]
    words += ["--encoder-kernel-sizes", "3,4", "--max-tokens", "100", "--optimizer", "adam"]
    process = run_command([find_python(), "-m", "fairseq_cli.train", str(tmp_path), *words], cwd=tmp_path)
    assert process.returncode != 0
    assert (
        "--encoder-kernel-sizes: kernel sizes must be odd in the encoder, where a kernel is centred on its token, "
        "but got [4] in [3, 4]; use odd sizes, e.g. 5."
    ) in process.stderr


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_flags_of_a_bias_that_is_not_chosen_are_named(side, caplog):
    build(**{f"{side}_attention_scales": "1,3", f"{side}_distance_alpha": 9.0})
    assert sorted(caplog.messages) == [
        f"--{side}-attention-scales has no effect with --{side}-attention-bias none, but got 1,3; drop it.",
        f"--{side}-distance-alpha has no effect with --{side}-attention-bias none, but got 9.0; drop it.",
    ]
    caplog.clear()
    build(**{f"{side}_attention_scales": "1,3", f"{side}_attention_bias": "multi-scale"})
    assert caplog.messages == []


@pytest.mark.parametrize(("radii", "alone"), [(False, "1"), (True, "0")])
def test_heads_that_see_nothing_are_counted(radii, alone, caplog):
    flags = {"encoder_attention_bias": "multi-scale,bidirectional-split", "encoder_attention_scale_radii": radii}
    table = {"encoder_attention_scales": f"{alone},3,all", "encoder_attention_scale_heads": "[[2,0,0],[1,1,0]]"}
    build(**flags, **table)
    assert caplog.messages == [
        f"heads that see nothing: 3; scale {alone} shows a word itself alone, and a direction hides it; use "
        f"--encoder-attention-diagonal kept, or --encoder-attention-scales without {alone}."
    ]
    caplog.clear()
    build(**flags, **table, encoder_attention_diagonal="kept")
    build(**flags, encoder_attention_scales="3,all")
    assert caplog.messages == []


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_flags_of_a_convolution_that_is_not_there_are_named(side, caplog):
    branches = "self_attention,cross_attention,ffn" if side == "decoder" else "self_attention,ffn"
    build(**{f"{side}_branches": branches})
    assert caplog.messages == []
    build(**{f"{side}_branches": branches, f"{side}_kernel_sizes": "7", f"{side}_conv_type": "depthwise"})
    assert caplog.messages == [
        f"--{side}-kernel-sizes has no effect without a convolution in --{side}-branches, but got 7; drop it.",
        f"--{side}-conv-type has no effect without a convolution in --{side}-branches, but got depthwise; drop it.",
    ]
    caplog.clear()
    build(**{f"{side}_branches": branches.replace("ffn", "conv"), f"{side}_ffn_embed_dim": 24, f"{side}_conv_heads": 2})
    assert caplog.messages == [
        f"--{side}-ffn-embed-dim has no effect without ffn in --{side}-branches, but got 24; drop it."
    ]
    caplog.clear()
    build(**{f"{side}_conv_type": "depthwise", f"{side}_conv_heads": 2})
    assert caplog.messages == [
        f"--{side}-conv-heads has no effect with --{side}-conv-type depthwise, but got 2; drop it."
    ]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"encoder_positions": "none", "encoder_learned_pos": True},
            "--encoder-learned-pos has no effect with --encoder-positions none, but got True; drop it.",
        ),
        (
            {"encoder_layer_type": "multi_scale", "encoder_ffn_embed_dim": 24},
            "--encoder-ffn-embed-dim has no effect with --encoder-layer-type multi_scale, but got 24; drop it.",
        ),
    ],
)
def test_flags_that_an_encoder_does_not_read_are_named(flags, sentence, caplog):
    build(**flags)
    assert sentence in caplog.messages


def test_training_raises_error_when_a_loss_cannot_train_an_adaptive_softmax():
    net = build(adaptive_softmax_cutoff="3,6")
    _, _, source, previous = make_pair()
    output = net(source, lengths_of(source), previous)
    with pytest.raises(ValueError, match=r"^--adaptive-softmax-cutoff trains with --criterion adaptive_loss alone;"):
        net.get_normalized_probs(output, log_probs=True)
    with torch.no_grad():  # of a translation
        assert torch.isfinite(net.get_normalized_probs(output, log_probs=True)).all()
