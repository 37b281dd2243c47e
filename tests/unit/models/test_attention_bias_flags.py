"""``--encoder-attention-bias`` and related flags: what they build, and the sentence for each that cannot be."""

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from support.fairseq_commands import parse_training
from support.helpers import assert_close
from support.muse_models import both, build, built, faults_of, logits_of, make_pair

from muse_plugin.models.attention_bias_flags import parse_scales
from muse_plugin.models.muse_config import flat_flags, layer_plans, parse_stages
from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.attention_bias import Scale
from muse_plugin.modules.staged_layer import StagedLayer
from muse_plugin.ops.window_attention import UNLIMITED

MULTI = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "1,N/2"}


def biases_of(net, side="encoder"):
    return [module.bias for module in getattr(net, side).modules() if isinstance(module, SelfAttention)]


def scales_of(net, side="encoder"):
    return [None if bias is None else [str(scale) for scale in bias.scales] for bias in biases_of(net, side)]


# ---- what cannot be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "text", "fault"),
    [
        ("encoder", "1,4", ": a window has a middle, so its scale must be odd, but got 4; use 3 or 5."),
        ("encoder", "0,3", ": a scale must be at least 1 token wide, but got 0."),
        ("encoder", "-3,3", ": a scale must be at least 1 token wide, but got -3."),
        (
            "encoder",
            f"{10**20 + 1}",
            f": a scale must be at most {UNLIMITED}, but got {10**20 + 1}; use all for no limit.",
        ),
        ("encoder", f"N/{10**20}", f": a scale must be at most {UNLIMITED}, but got N/{10**20}; use all for no limit."),
        ("encoder", "1,N/0", ": a scale N/r needs an integer r of at least 1, but got N/0."),
        ("encoder", "1,N/-4", ": a scale N/r needs an integer r of at least 1, but got N/-4."),
        ("decoder", "1,0", ": a scale must be at least 1 token wide, but got 0."),
        ("decoder", "-2,3", ": a scale must be at least 1 token wide, but got -2."),
        ("encoder", "-1,2 as radii", ": a scale must be at least 0 token wide, but got -1."),
    ],
)
def test_scales_that_cannot_be_are_refused(side, text, fault):
    flags = {f"{side}_attention_bias": "multi-scale", f"{side}_attention_scales": text.removesuffix(" as radii")}
    flags["encoder_attention_scale_radii"] = text.endswith("radii")
    assert faults_of(**flags) == [f"--{side}-attention-scales{fault}"]


@pytest.mark.parametrize(
    ("text", "entry"), [("1,N/x", "N/x"), ("1,2.5", "2.5"), ("", ""), ("1,--3", "--3"), ("N4", "N4")]
)
def test_scales_that_cannot_be_read_are_refused(text, entry):
    assert faults_of(**{**MULTI, "encoder_attention_scales": text}) == [
        "--encoder-attention-scales must list integers, fractions of the sentence such as N/4, or all, but got "
        f"{entry!r} in {text!r}."
    ]


@pytest.mark.parametrize(
    ("side", "text"),
    [*(("encoder", text) for text in ("3,1", "3,3", "N/2,N/4", "all,3", "N/4,N/4", "all,all")), ("decoder", "4,2")],
)
def test_scales_must_grow(side, text):
    assert faults_of(**{f"{side}_attention_bias": "multi-scale", f"{side}_attention_scales": text}) == [
        f"--{side}-attention-scales must list different scales from the smallest to the largest, but got {text!r}."
    ]


def test_the_decoder_does_not_know_how_long_its_sentence_will_be():
    assert faults_of(decoder_attention_bias="multi-scale", decoder_attention_scales="1,N/4") == [
        "--decoder-attention-scales: a decoder's scales cannot depend on the length of the sentence, which it does not "
        "know yet, but got N/4; use integers or all."
    ]


@pytest.mark.parametrize("alpha", [float("nan"), float("inf")])
def test_alphas_must_be_finite(alpha):
    (sentence,) = faults_of(**MULTI, encoder_attention_scale_alpha=alpha)
    assert sentence.startswith("--encoder-attention-scales, --encoder-attention-scale-alpha: the alpha")
    assert sentence.endswith(f"must be a finite number, but got {alpha}.")


@pytest.mark.parametrize("text", ["windows", "multi-scale,none", "distance,distance", "", "multi-scale,"])
def test_unknown_and_repeated_biases_are_refused(text):
    (sentence,) = faults_of(encoder_attention_bias=text)
    assert sentence == (
        "--encoder-attention-bias must be none or list biases out of multi-scale, distance, forward, backward, "
        f"bidirectional-split, each at most once, but got {text!r}."
    )


@pytest.mark.parametrize("name", ["forward", "bidirectional-split"])
def test_the_decoder_has_no_directions(name):
    (sentence,) = faults_of(decoder_attention_bias=name)
    assert sentence == (
        "--decoder-attention-bias must be none or list biases out of multi-scale, distance, each at most once, but got "
        f"{name!r}."
    )


def test_a_split_needs_an_even_number_of_heads():
    (sentence,) = faults_of(encoder_attention_bias="bidirectional-split", encoder_attention_heads=1)
    assert sentence.endswith("gives half of the heads to each direction, but got 1 heads; use an even number.")


@pytest.mark.parametrize("text", ["2", "0,0", "a", "-1", "0,", "0.5", "0,,1", " "])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_must_exist(side, text):
    (sentence,) = faults_of(**{f"{side}_attention_bias": "distance", f"{side}_attention_bias_layers": text})
    assert sentence == (
        f"--{side}-attention-bias-layers must list different layers from 0 to 1, e.g. 0,1, but got {text!r}."
    )


def test_tables_of_heads_must_hand_out_all_heads():
    (sentence,) = faults_of(**MULTI, encoder_attention_scale_heads="[[1,1],[2,1]]")
    assert (
        sentence == "--encoder-attention-scale-heads must hand out 2 heads in every layer, but got [2, 1], which is 3."
    )


@pytest.mark.parametrize(("side", "rest"), [("encoder", "conv,ffn"), ("decoder", "conv,cross_attention,ffn")])
def test_a_bias_needs_self_attention(side, rest):
    (sentence,) = faults_of(**{f"{side}_attention_bias": "distance", f"{side}_branches": rest})
    assert sentence == (
        f"--{side}-attention-bias limits self-attention, but got --{side}-branches {rest} without it; add "
        "self_attention or drop the flag."
    )


@pytest.mark.parametrize("text", ["self_attention//ffn", "/ffn", "ffn/", "self_attention,ffn/ffn", "a/ffn", "/", "a"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_stages_must_hold_different_known_branches(side, text):
    (sentence,) = faults_of(**{f"{side}_branches": text})
    assert sentence.startswith(f"--{side}-branches must list branches out of self_attention, conv, long_short_range, ")
    assert f"each at most once, but got {text!r}" in sentence


# ---- what can be --------------------------------------------------------------------------------------------------


def test_stages_keep_their_order_and_branches_that_of_the_projections():
    assert parse_stages(" ffn , conv / self_attention", ("self_attention", "conv", "ffn"), "--flag") == [
        ["conv", "ffn"],
        ["self_attention"],
    ]


def test_scales_are_read_in_every_documented_form():
    assert parse_scales(" 1, 3 ,N/16,N/4, N ,all", "encoder") == [
        Scale(1), Scale(3), Scale(divisor=16), Scale(divisor=4), Scale(divisor=1), Scale(),
    ]  # fmt: skip
    assert parse_scales("0,2", "encoder", radii=True) == [Scale(0), Scale(2)]
    assert parse_scales("2,4,all", "decoder") == [Scale(2), Scale(4), Scale()]


def test_alpha_gives_heads_to_scales_and_a_table_overrules_it():
    flags = {"encoder_attention_heads": 8, **MULTI}
    assert scales_of(build(**flags)) == [["1"] * 5 + ["N/2"] * 3, ["1"] * 4 + ["N/2"] * 4]
    assert scales_of(build(**flags, encoder_attention_scale_alpha=0.0)) == [["1"] * 4 + ["N/2"] * 4] * 2
    table = build(**flags, encoder_attention_scale_heads="[[8,0],[1,7]]")
    assert scales_of(table) == [["1"] * 8, ["1"] + ["N/2"] * 7]


def test_layers_are_counted_among_those_with_windows():
    flags = {"encoder_attention_heads": 8, **MULTI, "encoder_layers": 4, "encoder_attention_bias_layers": "1,3"}
    net = build(**flags, encoder_kernel_sizes="3")
    assert scales_of(net) == [None, ["1"] * 5 + ["N/2"] * 3, None, ["1"] * 4 + ["N/2"] * 4]


def test_options_reach_the_modules():
    (first, _) = biases_of(build(encoder_attention_bias="backward", encoder_attention_diagonal="kept"))
    assert first.directions == ("backward", "backward")
    assert not first.masks_diagonal
    (first, _) = biases_of(build(**MULTI, encoder_attention_scale_radii=True))
    assert first.scales_are_radii
    (first, _) = biases_of(build(decoder_attention_bias="multi-scale", decoder_attention_scales="2,4"), "decoder")
    assert first.causal
    flags = {"decoder_attention_bias": "distance", "decoder_distance_slopes": "learned", "decoder_distance_alpha": 0.7}
    net = build(**flags)
    assert [bias.learned for bias in biases_of(net, "decoder")] == [True, True]
    assert [plan.bias.alphas for plan in net.decoder.cfg.decoder.plans] == [(0.7, 0.7)] * 2
    (first, _) = biases_of(build(encoder_attention_bias="distance", encoder_distance_slopes="geometric"))
    assert first.alphas.tolist() == [2.0**-4, 2.0**-8]


@torch.no_grad()
def test_alpha_of_zero_and_open_windows_are_plain_attention():
    _, _, source, previous = make_pair()
    expected = logits_of(built("muse"), source, previous)
    for flags in (
        {"encoder_attention_bias": "distance", "encoder_distance_alpha": 0.0},
        {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "99,all"},
        {"decoder_attention_bias": "multi-scale", "decoder_attention_scales": "99,all"},
        {"decoder_attention_bias": "distance", "decoder_distance_alpha": 0.0},
    ):
        assert_close(logits_of(build(**flags).eval(), source, previous), expected, atol=2e-5)


# ---- on both sides ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_more_scales_than_heads_are_refused_on_both_sides(side):
    (sentence,) = faults_of(**{f"{side}_attention_bias": "multi-scale", f"{side}_attention_scales": "1,3,5"})
    assert sentence == (
        f"--{side}-attention-scales, --{side}-attention-scale-alpha: there must be at least one scale and at most one "
        "per head, but got 3 scales for 2 heads; use fewer scales or more heads."
    )


@pytest.mark.parametrize(
    ("side", "slopes", "alpha"),
    [
        *(("encoder", "fixed", alpha) for alpha in (float("nan"), float("inf"), float("-inf"), -0.25)),
        ("encoder", "learned", -0.25),
        ("decoder", "fixed", -0.25),
    ],
)
def test_an_alpha_of_distance_that_cannot_be_is_refused(side, alpha, slopes):
    flags = {"attention_bias": "distance", "distance_alpha": alpha, "distance_slopes": slopes}
    (sentence,) = faults_of(**{f"{side}_{name}": value for name, value in flags.items()})
    assert sentence.startswith(f"--{side}-")
    assert sentence.endswith(f"the alpha of the distance mask must be a finite number of at least 0, but got {alpha}.")


@pytest.mark.parametrize("text", ["forward,backward", "backward , bidirectional-split", "forward,multi-scale,backward"])
def test_one_direction_is_all_that_is_possible(text):
    (sentence,) = faults_of(encoder_attention_bias=text)
    assert sentence == (
        "--encoder-attention-bias can take one of forward, backward, bidirectional-split, since two leave heads with "
        f"nothing to see, but got {text!r}; bidirectional-split gives each direction half the heads."
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "x",
        "[1,1]",
        "[[1,1]]",
        "[[1,1],[2]]",
        "[[1,1],[0.5,1.5]]",
        "[[1,1],[-1,3]]",
        "[[1,1],[1,1],[1,1]]",
        "[[2],[2]]",
        "[[1,1],[1,0,1]]",
        "[[1,1],(1,1)]",
        "[1,1],[1,1]",
        "[[True,1],[1,1]]",
        "[[1,1],['1',1]]",
        "[[1,1],[1,1]",
        "[[1,1],[1,+]]",
        "[[1,1],[1,0+1]]",
        "[[1,1],[1,int('1')]]",
        "[[1,1],[1,x]]",
        "\0",
        "{[]: 1}",
        "-" * 20000 + "1",
        "[[1,1],[1," + "1+" * 20000 + "1]]",
        "[" * 5000,
    ],
    ids=lambda text: text[:30] or "nothing",
)
def test_whatever_is_no_table_is_refused(text):
    (sentence,) = faults_of(decoder_attention_bias="multi-scale", decoder_attention_scales="1,4", **table(text))
    assert sentence == (
        "--decoder-attention-scale-heads must hold one list per layer with windows, here 2, of one number per scale, "
        f"here 2, e.g. '[[3,1],[2,2]]', but got {text!r}."
    )


def table(text):
    return {"decoder_attention_scale_heads": text}


def test_a_table_is_read_and_never_run(tmp_path):
    path = tmp_path / "written"
    text = f"[[1,1],[1,__import__('pathlib').Path({str(path)!r}).write_text('1')]]"
    (sentence,) = faults_of(**MULTI, encoder_attention_scale_heads=text)
    assert sentence.endswith(f"but got {text!r}.")
    assert not path.exists()


def test_a_table_has_a_row_per_layer_with_windows_only():
    flags = {"encoder_attention_bias_layers": "1", **MULTI}
    assert scales_of(build(**flags, encoder_attention_scale_heads="[[0,2]]")) == [None, ["N/2"] * 2]
    (sentence,) = faults_of(**flags, encoder_attention_scale_heads="[[1,1],[1,1]]")
    assert "one list per layer with windows, here 1, of one number per scale" in sentence


def test_a_bias_of_long_short_range_needs_no_self_attention_beside_it():
    net = build(encoder_branches="long_short_range,ffn", **MULTI)
    assert scales_of(net) == [["1", "1"], ["1", "N/2"]]


def test_flags_of_a_bias_do_not_matter_without_it():
    flags = {"attention_scales": "4", "attention_scale_heads": "nonsense", "distance_alpha": -1.0}
    net = build(**both(**flags, attention_bias_layers="99"))
    assert biases_of(net) == [None, None]
    # A table is as good as an alpha, and geometric slopes need none.
    build(**MULTI, encoder_attention_scale_heads="[[1,1],[1,1]]", encoder_attention_scale_alpha=float("nan"))
    build(**both(attention_bias="distance", distance_slopes="geometric", distance_alpha=-1.0))


# ---- what can be, from the command line and in presets ------------------------------------------------------------


def test_spaces_do_not_matter():
    net = build(
        encoder_attention_bias=" multi-scale ,  distance",
        encoder_attention_scales=" 3 , N/4 ",
        encoder_attention_bias_layers=" 1 , 0",
        encoder_attention_scale_heads=" [[2, 0], [1, 1]] ",
    )
    assert [[str(part) for part in bias.biases] for bias in biases_of(net)] == [
        [f"MultiScaleWindows(scales=[{scales}], causal=False)", "DistancePenalty(alphas=[1.5, 1.5], learned=False)"]
        for scales in ("3, 3", "3, N/4")
    ]


def test_half_of_the_heads_of_every_scale_look_each_way():
    net = build(
        encoder_attention_heads=8,
        encoder_attention_bias="multi-scale,bidirectional-split",
        encoder_attention_scales="3,N/4",
        encoder_attention_scale_alpha=0.0,
    )
    windows, direction = biases_of(net)[0].biases
    pairs = list(zip(map(str, windows.scales), direction.directions, strict=True))
    assert {pair: pairs.count(pair) for pair in pairs} == {
        (scale, way): 2 for scale in ("3", "N/4") for way in ("forward", "backward")
    }


def test_the_command_line_knows_the_flags():
    words = (
        "--encoder-attention-bias distance,multi-scale,backward --encoder-attention-scales 0,N/4,all "
        "--encoder-attention-scale-radii --encoder-attention-scale-alpha -0.5 --encoder-attention-bias-layers 0,2 "
        "--encoder-distance-slopes learned --encoder-distance-alpha 0.25 --encoder-attention-diagonal kept "
        "--decoder-attention-bias multi-scale --decoder-attention-scales 1,4 "
        "--decoder-attention-scale-heads [[3,1],[2,2],[1,3],[0,4]]"
    )
    flat = flat_flags(parse_training("data", "--arch", "muse_tiny", *words.split()))
    encoder, decoder = ([plan.bias for plan in layer_plans(flat, side)] for side in ("encoder", "decoder"))
    assert [plan is None for plan in encoder] == [False, True, False, True]
    first = encoder[0]
    assert [str(scale) for scale in first.scales] == ["0", "N/4", "all", "all"]  # alpha below 0: mostly the widest
    assert (first.scales_are_radii, first.causal, first.directions) == (True, False, ("backward",) * 4)
    assert (first.alphas, first.learned, first.masks_diagonal) == ((0.25,) * 4, True, False)
    counts = [[str(scale) for scale in plan.scales].count("1") for plan in decoder]
    assert counts == [3, 2, 1, 0]
    assert all(plan.causal and plan.alphas is None for plan in decoder)
    with pytest.raises(SystemExit):
        parse_training("data", "--arch", "muse_tiny", "--encoder-distance-slopes", "steep")


def preset(name):
    return flat_flags(MODEL_DATACLASS_REGISTRY[name](), MODEL_DATACLASS_REGISTRY[name])


# By 12, 16 or 4 heads; alpha = 0.5, and 0 in the top layer.
TWELVE = "1,3,N/16,N/8,N/4", [6, 3, 2, 1, 0], [3, 2, 3, 2, 2], 12
SIXTEEN = "1,3,N/16,N/8,N/4", [7, 5, 2, 2, 0], [4, 3, 3, 3, 3], 16
FOUR = "3,N/4,N/2,all", [2, 1, 1, 0], [1, 1, 1, 1], 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("muse_multi_scale_iwslt_de_en", TWELVE),
        ("transformer_multi_scale_iwslt_de_en", TWELVE),
        ("muse_multi_scale_wmt_en_de", SIXTEEN),
        ("muse_multi_scale_tiny", FOUR),
        ("transformer_multi_scale_tiny", FOUR),
    ],
)
def test_presets_of_windows_hand_out_their_heads_by_the_published_rule(name, expected):
    text, lowest, top, heads = expected
    plans = [plan.bias for plan in layer_plans(preset(name), "encoder")]
    for plan, counts in ((plans[0], lowest), (plans[-1], top)):
        assert [[str(scale) for scale in plan.scales].count(scale) for scale in text.split(",")] == counts
    for plan in plans:
        assert len(plan.scales) == heads
        assert (plan.alphas, plan.directions, plan.scales_are_radii, plan.causal) == (None, None, False, False)
    assert all(plan.bias is None for plan in layer_plans(preset(name), "decoder"))


@pytest.mark.parametrize("name", ["plain_transformer", "plain_transformer_tiny", "transformer_distance_tiny"])
def test_the_plain_transformer_has_a_branch_per_stage(name):
    flat = preset(name)
    for plan in layer_plans(flat, "encoder"):
        assert plan.stages == [["self_attention"], ["ffn"]]
    for plan in layer_plans(flat, "decoder"):
        assert plan.stages == [["self_attention"], ["cross_attention"], ["ffn"]]


def test_layers_of_several_stages_are_built_as_such():
    net = build(model="plain_transformer")
    assert all(isinstance(layer, StagedLayer) for layer in (*net.encoder.layers, *net.decoder.layers))
    assert [list(stage.branches) for stage in net.decoder.layers[0].stages] == [
        ["self_attention"],
        ["cross_attention"],
        ["ffn"],
    ]
    mixed = build(encoder_branches="conv , self_attention / ffn")
    assert [list(stage.branches) for stage in mixed.encoder.layers[0].stages] == [["self_attention", "conv"], ["ffn"]]
    assert not isinstance(mixed.decoder.layers[0], StagedLayer)
