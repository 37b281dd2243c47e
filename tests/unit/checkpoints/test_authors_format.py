"""Converting checkpoints of the authors' program: names, flags, files, and everything that is refused.

That converted models compute the authors' numbers is shown in ``tests/unit/models/test_reference_numbers.py``.
"""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from support.helpers import assert_close, parse_flags
from support.reference import NAMES, STATE_ATOL, load_reference

from muse_plugin.checkpoints.authors_format import convert_checkpoint, run
from muse_plugin_command import cli

B, D, F, G0, G1 = (
    "b_muse_shared_embeddings",
    "d_single_kernel7",
    "f_masked_padding",
    "g_bigmatrix_fc3_0_fc4_0",
    "g_bigmatrix_fc3_1_fc4_1",
)
ATTENTION, CONV = "self_attention,ffn", "self_attention,conv,ffn"
EXPECTED = {
    B: {"arch": "muse", "conv_padding": "leaky", "kernels": "3,15", "layers": (2, 3), "shared": True},
    D: {"arch": "muse", "conv_padding": "leaky", "kernels": "7", "layers": (3, 2), "shared": False},
    F: {"arch": "muse", "conv_padding": "masked", "kernels": "3,15", "layers": (2, 2), "shared": False},
    G0: {"arch": "muse_simple", "layers": (2, 2), "shared": False},
    G1: {"arch": "muse_simple", "layers": (2, 2), "shared": False},
}


def authors_checkpoint(name=B, **options):
    """A checkpoint as the authors' program writes it, with some options changed; None takes an option away."""
    state = load_reference(name).authors_checkpoint()
    for option, value in options.items():
        setattr(state["args"], option, value)
        if value is None:
            delattr(state["args"], option)
    return state


def loaded(converted, name):
    """The model that fairseq builds from a converted checkpoint."""
    from fairseq.models import build_model

    flags = Namespace(**vars(converted["args"]), _name=converted["args"].arch)
    model = build_model(flags, load_reference(name).task())
    model.load_state_dict(converted["model"], strict=True)
    return model.eval()


@torch.no_grad()
def logits_of(model, name, kind="padded"):
    batch = load_reference(name).batch(kind)
    return model(batch["src_tokens"], batch["src_lengths"], batch["prev_output_tokens"])[0]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_all_five_reference_files_are_expected_here():
    assert sorted(EXPECTED) == NAMES


def test_flags_are_those_of_the_authors_model(name):
    flags, expected = convert_checkpoint(authors_checkpoint(name))["args"], EXPECTED[name]
    assert flags.arch == expected["arch"]
    assert flags.task == "translation"
    assert (flags.source_lang, flags.target_lang) == ("de", "en")
    assert (flags.encoder_layers, flags.decoder_layers) == expected["layers"]
    for side in ("encoder", "decoder"):
        assert getattr(flags, f"{side}_embed_dim") == 32
        assert getattr(flags, f"{side}_ffn_embed_dim") == 64
        assert getattr(flags, f"{side}_attention_heads") == 4
        assert getattr(flags, f"{side}_normalize_before") is False
    simple = flags.arch == "muse_simple"
    assert flags.encoder_branches == ("self_attention,ffn" if simple else "self_attention,conv,ffn")
    assert flags.decoder_branches == flags.encoder_branches.replace("ffn", "cross_attention,ffn")
    assert flags.share_all_embeddings == expected["shared"]
    assert flags.activation_fn == "relu"
    assert (flags.max_source_positions, flags.max_target_positions) == (1024, 1024)
    if simple:
        assert not hasattr(flags, "conv_padding")
    else:
        assert flags.encoder_kernel_sizes == flags.decoder_kernel_sizes == expected["kernels"]
        assert flags.conv_padding == expected["conv_padding"]
        assert flags.no_conv_gate is False
        assert flags.weight_dropout == 0.1  # the authors' program always uses this rate, whatever its flag said


def test_converted_parameters_are_exactly_those_of_our_model(name):
    converted = convert_checkpoint(authors_checkpoint(name))
    model = loaded(converted, name)
    assert type(model) is ARCH_MODEL_REGISTRY[converted["args"].arch]
    assert {key for key, _ in model.named_parameters(remove_duplicate=False)} <= set(converted["model"])
    extra = set(converted["model"]) - set(model.state_dict())
    assert extra == set()


@pytest.mark.parametrize("name", [B, D, F])
def test_no_number_is_lost_or_made_up(name):
    # In the separate layout every used number has its place: sort both sides and compare.
    state = authors_checkpoint(name)
    unused = "encoder_attn_layer_norm", "version", "_float_tensor", "decoder.embed_tokens" if name == B else "-"
    unused += ("dynamic_gate_para",) if name == D else ()
    theirs = [t.flatten() for key, t in state["model"].items() if not any(part in key for part in unused)]
    model = loaded(convert_checkpoint(state), name)
    ours = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert_close(ours.sort().values, torch.cat(theirs).sort().values, atol=0, rtol=0)


def test_shared_embeddings_stay_one_parameter():
    model = loaded(convert_checkpoint(authors_checkpoint(B)), B)
    assert model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight


def test_the_input_is_not_changed(name):
    state = authors_checkpoint(name)
    before = copy.deepcopy(state)
    convert_checkpoint(state)
    assert state.keys() == before.keys()
    assert state["args"] == before["args"]
    assert list(state["model"]) == list(before["model"])
    for key, tensor in state["model"].items():
        assert_close(tensor, before["model"][key], atol=0, rtol=0)


def test_training_state_is_not_carried_over(name):
    converted = convert_checkpoint(authors_checkpoint(name))
    assert converted["last_optimizer_state"] is None
    assert converted["optimizer_history"][-1]["num_updates"] == 0


# ---- options as the authors' program may have stored them ---------------------------------------------------------


@pytest.mark.parametrize("kernels", [[3, 15], (3, 15), "[3, 15]", "3,15", ["3", "15"]], ids=repr)
def test_kernel_sizes_are_read_in_every_stored_form(kernels):
    flags = convert_checkpoint(authors_checkpoint(B, attn_wide_kernels=kernels))["args"]
    assert flags.encoder_kernel_sizes == flags.decoder_kernel_sizes == "3,15"


@pytest.mark.parametrize(("value", "padding"), [(0, "leaky"), (1, "masked"), (False, "leaky"), (True, "masked")])
def test_padding_leaks_unless_the_authors_masked_it(value, padding):
    assert convert_checkpoint(authors_checkpoint(B, dynamic_padding=value))["args"].conv_padding == padding


def test_optional_options_may_be_absent(name):
    absent = (
        "dynamic_padding dynamic_gate attn_dynamic_cat bm_fc3 bm_fc4 activation_fn activation_dropout input_dropout "
    )
    absent += (
        "encoder_learned_pos decoder_learned_pos no_token_positional_embeddings weight_dropout max_source_positions "
    )
    absent += "max_target_positions encoder_normalize_before decoder_normalize_before"
    kept = {"dynamic_padding": 1} if name == F else {"bm_fc3": 0, "bm_fc4": 0} if name == G0 else {}
    state = authors_checkpoint(name, **{**dict.fromkeys(absent.split()), **kept})
    expected = logits_of(loaded(convert_checkpoint(authors_checkpoint(name)), name), name)
    assert_close(logits_of(loaded(convert_checkpoint(state), name), name), expected, atol=0, rtol=0)


@pytest.mark.parametrize("share", [True, False])
def test_sharing_may_be_absent_when_it_is_off(share):
    state = authors_checkpoint(B if share else D, **({} if share else {"share_all_embeddings": None}))
    assert getattr(convert_checkpoint(state)["args"], "share_all_embeddings", False) == share


def test_rates_are_carried_over_and_the_old_name_of_one_is_understood():
    state = authors_checkpoint(D, dropout=0.4, attention_dropout=0.2, input_dropout=0.3, relu_dropout=0.1)
    del state["args"].activation_dropout
    flags = convert_checkpoint(state)["args"]
    assert (flags.dropout, flags.attention_dropout, flags.input_dropout, flags.activation_dropout) == (
        0.4,
        0.2,
        0.3,
        0.1,
    )


def test_one_kernel_may_come_as_a_list():
    state = authors_checkpoint(D, attn_dynamic_type=2, attn_wide_kernels=[7], kernel_size=0)
    expected = logits_of(loaded(convert_checkpoint(authors_checkpoint(D)), D), D)
    assert_close(logits_of(loaded(convert_checkpoint(state), D), D), expected, atol=0, rtol=0)


def test_one_kernel_may_have_no_gate():
    state = authors_checkpoint(D, dynamic_gate=0)
    for key in [key for key in state["model"] if key.endswith("dynamic_gate_para")]:
        del state["model"][key]
    assert convert_checkpoint(state)["model"].keys() == convert_checkpoint(authors_checkpoint(D))["model"].keys()


def without_gate(name):
    """The gated model in the layout without gate: each kernel has its own output matrix, here W^out times its gate."""
    state = authors_checkpoint(name, dynamic_gate=0)
    gates = {key: tensor for key, tensor in state["model"].items() if key.endswith("dynamic_gate_para")}
    for key, gate in gates.items():
        output = key.replace("dynamic_gate_para", "out_proj.weight")
        attention, conv = state["model"][output].chunk(2, dim=1)
        state["model"][output] = torch.cat([attention, *(conv * weight for weight in gate.softmax(0))], dim=1)
        assert state["model"][output].shape == (32, 3 * 32)
    return state, gates


@pytest.mark.parametrize("stored", [False, True], ids=["gate not stored", "gate stored and unused"])
@pytest.mark.parametrize("name", [B, F])
def test_several_kernels_without_gate_stand_side_by_side(name, stored):
    state, gates = without_gate(name)
    if not stored:
        for key in gates:
            del state["model"][key]
    converted = convert_checkpoint(state)
    assert converted["args"].no_conv_gate is True
    assert not [key for key in converted["model"] if key.endswith("gate")]
    real = load_reference(name).batch("nopad")["prev_output_tokens"].ne(1)
    expected = load_reference(name).tensor("nopad/logits")[real]
    assert_close(logits_of(loaded(converted, name), name, "nopad")[real], expected, atol=STATE_ATOL)


def test_half_precision_is_kept():
    state = authors_checkpoint(D)
    state["model"] = {key: tensor.half() for key, tensor in state["model"].items()}
    converted = convert_checkpoint(state)
    kept = {key: tensor.dtype for key, tensor in converted["model"].items() if not key.endswith("version")}
    assert set(kept.values()) == {torch.float16}


def test_learned_positions_are_carried_over():
    state = authors_checkpoint(D, encoder_learned_pos=True, max_source_positions=30)
    table = torch.randn(30 + 2, 32)
    state["model"]["encoder.embed_positions.weight"] = table
    del state["model"]["encoder.embed_positions._float_tensor"]
    model = loaded(convert_checkpoint(state), D)
    assert_close(model.encoder.embed_positions.weight, table, atol=0, rtol=0)


# ---- files --------------------------------------------------------------------------------------------------------


def convert_file(source, target):
    return run(parse_flags("convert", source, target))


def write_dictionaries(reference, folder):
    task = reference.task()
    task.source_dictionary.save(str(folder / "dict.de.txt"))
    task.target_dictionary.save(str(folder / "dict.en.txt"))


def test_converted_file_loads_with_fairseq_and_computes_the_same(name, tmp_path, capsys):
    reference = load_reference(name)
    left_pad = "True" if name == B else True  # as the authors' program may have stored it, whatever the model
    write_dictionaries(reference, tmp_path)
    state = authors_checkpoint(
        name, left_pad_source=left_pad, left_pad_target=type(left_pad)(False), data=["elsewhere"]
    )
    source, target = tmp_path / "authors.pt", tmp_path / "ours.pt"
    torch.save(state, source)
    assert convert_file(source, target) == 0
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(target)], {"data": str(tmp_path)})
    assert task.cfg.left_pad_source is True
    assert task.cfg.left_pad_target is False
    expected = logits_of(loaded(convert_checkpoint(state), name), name)
    assert_close(logits_of(model.eval(), name), expected, atol=0, rtol=0)

    printed = capsys.readouterr().out
    count = sum(parameter.numel() for parameter in model.parameters())
    assert str(target) in printed
    assert f"{EXPECTED[name]['arch']}, " in printed
    assert f"{count:,} parameters" in printed
    assert ("--conv-padding leaky" in printed) == (name in (B, D))


def test_big_matrix_file_is_about_as_large_as_what_it_holds(tmp_path):
    # Slices of a joined matrix are views: torch.save would store the whole matrix for each.
    source, target = tmp_path / "authors.pt", tmp_path / "ours.pt"
    torch.save(authors_checkpoint(G0), source)
    convert_file(source, target)
    assert target.stat().st_size < 1.2 * source.stat().st_size


def test_the_authors_file_is_not_replaced(tmp_path, capsys):
    source = tmp_path / "authors.pt"
    source.write_bytes(b"theirs")
    assert cli.main(["convert", str(source), str(source)]) == 2
    assert f"OUT.pt must not replace what is read, but {source} is read too" in capsys.readouterr().err
    assert source.read_bytes() == b"theirs"


def test_a_refused_file_leaves_no_output(tmp_path):
    source, target = tmp_path / "authors.pt", tmp_path / "ours.pt"
    torch.save({"args": Namespace(arch="transformer"), "model": {}}, source)
    with pytest.raises(ValueError, match="convert needs a checkpoint of the MUSE authors' program"):
        convert_file(source, target)
    assert list(tmp_path.iterdir()) == [source]


# ---- what is refused ----------------------------------------------------------------------------------------------


def test_another_models_checkpoint_is_refused_with_its_name():
    sentence = (
        r"^convert needs a checkpoint of the MUSE authors' program, whose options include combine, bm, "
        r"attn_dynamic_type, but this one has none of them \(its architecture is 'lstm'\); "
        r"checkpoints of this plugin and of current fairseq need no conversion\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        convert_checkpoint({"args": Namespace(arch="lstm"), "model": {}})


@pytest.mark.parametrize("args", [{"args": None}, {}])
def test_a_checkpoint_without_options_is_refused(args):
    # Current fairseq stores its options elsewhere and leaves "args" empty.
    with pytest.raises(
        ValueError, match=r"^convert needs .* but this one has none of them; checkpoints of this plugin"
    ):
        convert_checkpoint({**args, "model": {}})


def test_our_own_checkpoint_is_refused():
    with pytest.raises(ValueError, match=r"\(its architecture is 'muse'\); checkpoints of this plugin .* need no conv"):
        convert_checkpoint(convert_checkpoint(authors_checkpoint(B)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"combine": 0}, ["combine=0 with bm=0"]),
        ({"attn_dynamic_cat": 0}, ["attn_dynamic_cat=0"]),
        ({"encoder_attention_heads": None}, ["no encoder_attention_heads"]),
        (
            {"combine": 0, "attn_dynamic_cat": 0, "decoder_attention_heads": None},
            ["combine=0 with bm=0", "attn_dynamic_cat=0", "no decoder_attention_heads"],
        ),
        ({"attn_wide_kernels": None}, ["attn_wide_kernels"]),
        ({"attn_dynamic_type": 1, "kernel_size": None}, ["kernel_size"]),
        ({"attn_dynamic_type": 5}, ["attn_dynamic_type=5"]),
    ],
    ids=repr,
)
def test_settings_without_counterpart_are_refused_and_all_named(options, named):
    with pytest.raises(ValueError, match=r"^these settings have no counterpart in this plugin: .*\.$") as caught:
        convert_checkpoint(authors_checkpoint(B, **options))
    for setting in named:
        assert setting in str(caught.value)


MISSING = {
    B: ["encoder.embed_tokens.weight", "encoder.layers.1.fc2.bias", "decoder.layers.0.self_attn.dynamic_gate_para"],
    D: ["decoder.embed_out", "decoder.layers.1.self_attn.dynamics.0.weight_linear.weight"],
    F: ["decoder.embed_tokens.weight", "decoder.layers.0.encoder_attn.in_proj_bias"],
    G0: ["encoder.layers.0.self_attn.fc1.weight", "decoder.layers.1.encoder_attn.kv_fc.bias"],
    G1: ["decoder.layers.0.fc3.weight", "decoder.layers.0.fc4.bias", "encoder.layers.0.layer_norm.bias"],
}


def test_missing_and_unknown_parameters_are_all_listed(name):
    state = authors_checkpoint(name)
    for key in MISSING[name]:
        del state["model"][key]
    unknown = ["encoder.layers.0.self_attn.q_norm.weight", "decoder.layers.1.moe.3", "lm_head"]
    state["model"].update(dict.fromkeys(unknown, torch.zeros(1)))
    with pytest.raises(ValueError, match=r"^the parameters do not fit the options of a MUSE checkpoint") as caught:
        convert_checkpoint(state)
    missing, extra = ", ".join(sorted(MISSING[name])), ", ".join(sorted(unknown))
    assert str(caught.value).endswith(f": missing {missing}; unknown {extra}.")


def test_unknown_parameters_alone_are_listed():
    state = authors_checkpoint(D)
    state["model"]["encoder.layers.0.self_attn.dynamics.1.weight_linear.weight"] = torch.zeros(60, 32)
    with pytest.raises(ValueError, match=r": missing none; unknown encoder\.layers\.0\.self_attn\.dynamics\.1\."):
        convert_checkpoint(state)


def test_a_file_without_layers_is_refused():
    state = authors_checkpoint(D)
    state["model"] = {key: tensor for key, tensor in state["model"].items() if ".layers." not in key}
    with pytest.raises(ValueError, match=r": missing decoder\.layers\.0\..*, encoder\.layers\.0\..*; unknown none\.$"):
        convert_checkpoint(state)


@pytest.mark.parametrize(("side", "number"), [("encoder", 1), ("encoder", 2), ("decoder", 0), ("decoder", 1)])
def test_a_missing_layer_is_noticed_even_if_it_is_the_last(side, number):
    state = authors_checkpoint(D)
    prefix = f"{side}.layers.{number}."
    state["model"] = {key: tensor for key, tensor in state["model"].items() if not key.startswith(prefix)}
    with pytest.raises(ValueError, match=rf"missing .*{side}\.layers\.{number}\."):
        convert_checkpoint(state)


WRONG_SHAPES = [
    (D, "encoder.layers.0.self_attn.in_proj_weight"),
    (D, "encoder.layers.0.self_attn.out_proj.weight"),
    (D, "encoder.layers.2.fc1.bias"),
    (D, "decoder.layers.1.fc2.weight"),
    (D, "decoder.layers.0.encoder_attn.in_proj_weight"),
    (D, "decoder.layers.0.encoder_attn.out_proj.bias"),
    (D, "decoder.layers.0.self_attn.dynamics.0.weight_linear.weight"),
    (D, "decoder.embed_out"),
    (B, "encoder.layers.0.self_attn.dynamic_gate_para"),
    (B, "encoder.layers.0.self_attn_layer_norm.weight"),
    (B, "decoder.layers.2.self_attn_layer_norm.bias"),
    (G0, "encoder.layers.0.self_attn.fc1.weight"),
    (G0, "decoder.layers.1.fc2.weight"),
    (G1, "decoder.layers.0.fc3.bias"),
]


@pytest.mark.parametrize(("name", "key"), WRONG_SHAPES, ids=lambda value: value)
def test_a_parameter_of_the_wrong_shape_is_refused_and_its_layer_named(name, key):
    for change in ("one row more", "one column less"):
        state = authors_checkpoint(name)
        tensor = state["model"][key]
        state["model"][key] = torch.cat([tensor, tensor[:1]]) if change == "one row more" else tensor[..., :-1]
        with pytest.raises(ValueError, match="shape") as caught:
            convert_checkpoint(state)
        assert ".".join(key.split(".")[:3]) in str(caught.value) or key == "decoder.embed_out", change
