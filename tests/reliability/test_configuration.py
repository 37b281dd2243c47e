"""Command lines that are wrong: misspelt flags get the right one proposed, and options that contradict are refused."""

import os
import subprocess
import sys
from argparse import Namespace

import pytest
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.models import build_model
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from support.fairseq_commands import USER_DIR, make_data
from support.helpers import REPOSITORY
from support.muse_models import build
from support.sentence_models import build as build_sentence_model
from support.sentence_models import make_task

from muse_plugin import fairseq_repairs
from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.fairseq_repairs import misspelt_flags
from muse_plugin_command import cli
from muse_plugin_command.flag_suggestions import SuggestingParser

# ---- misspelt flags -----------------------------------------------------------------------------------------------

PARSERS = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": options.get_interactive_generation_parser,
    "validate": options.get_validation_parser,
}


def refuse(capsys, parser, *words):
    """The last line of what a command of fairseq prints as it refuses its flags."""
    with pytest.raises(SystemExit) as caught:
        options.parse_args_and_arch(PARSERS[parser](), ["data", *words])
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_the_repair_is_in_place():
    assert misspelt_flags.REPAIR in fairseq_repairs.REPAIRS
    assert not misspelt_flags.REPAIR.is_needed()


@pytest.mark.parametrize(
    ("parser", "words", "expected"),
    [
        ("train", "--encoder-kernel-size 3,15", "--encoder-kernel-sizes"),
        ("train", "--encoder-kernel-size=3,15", "--encoder-kernel-sizes"),
        ("train", "--conv-paddin leaky", "--conv-padding"),
        ("train", "--warmup-update 4000 --lr-scheduler inverse_sqrt", "--warmup-updates"),
        ("train", "--encoder-layer 3", "--encoder-layers"),  # no abbreviation either
        ("train", "--label-smothing 0.1 --criterion label_smoothed_cross_entropy", "--label-smoothing"),
        ("generate", "--bean 5 --path x.pt", "--beam"),
        ("interactive", "--bufer-size 5 --path x.pt", "--buffer-size"),
        ("validate", "--valid-subsets test --path x.pt --task translation", "--valid-subset"),
    ],
)
def test_a_misspelt_flag_gets_the_nearest_one_proposed(capsys, parser, words, expected):
    arch = ["--arch", "muse_tiny"] if parser == "train" else []
    line = refuse(capsys, parser, *arch, *words.split())
    given = words.split()[0].partition("=")[0]
    assert f"error: unrecognized arguments: {given}" in line
    assert line.endswith(f"; did you mean {expected}?")


def test_several_misspelt_flags_are_told_apart(capsys):
    line = refuse(capsys, "train", "--arch", "muse_tiny", "--drpout", "0.1", "--zzz", "--encoder-layrs", "3")
    assert line.endswith("; did you mean --dropout for --drpout, --encoder-layers for --encoder-layrs?")


def test_a_flag_that_is_near_to_none_is_refused_without_a_proposal(capsys):
    assert refuse(capsys, "train", "--arch", "muse_tiny", "--zzz", "1").endswith("unrecognized arguments: --zzz 1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--arch muse_tinny", "muse_tiny"),
        ("--arch muse_tiny --conv-padding leeky", "leaky"),
        ("--arch muse_tiny --task transltion", "translation"),
        ("--arch muse_tiny --optimizer adm", "adam"),
    ],
)
def test_a_misspelt_choice_gets_the_nearest_one_proposed(capsys, words, expected):
    line = refuse(capsys, "train", *words.split())
    assert f"invalid choice: '{words.split()[-1]}'" in line
    assert line.endswith(f"; did you mean {expected}?")


def test_a_good_command_line_is_read_as_before():
    words = ["data", "--arch", "muse_tiny", "--encoder-kernel-sizes", "5"]
    parser = options.get_training_parser()
    assert options.parse_args_and_arch(parser, words).encoder_kernel_sizes == "5"
    assert "error" not in vars(parser)
    args = options.parse_args_and_arch(options.get_training_parser(), words, suppress_defaults=True)
    assert args.encoder_kernel_sizes == "5"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["average", "--ouput", "x.pt"],
            "error: the following arguments are required: --inputs, --output; did you mean --output for --ouput?",
        ),
        (["average", "--inputs", "a", "--output", "b", "--chekpoint"], "unrecognized arguments: --chekpoint"),
        (["match", "scoer"], "(choose from 'encode', 'score', 'search', 'explain'); did you mean score?"),
        (["avarage"], "; did you mean average?"),
        (["doctor", "--traceback"], "unrecognized arguments: --traceback"),
        (["path", "--hep"], "unrecognized arguments: --hep; did you mean --help?"),
        (["average", "--inputs", "a", "--output", "b", "--helpp"], "--helpp; did you mean --help?"),
    ],
)
def test_commands_of_the_plugin_propose_the_nearest_word(capsys, words, expected):
    assert cli.main(words) == 2
    assert expected in capsys.readouterr().err.replace(
        "choose from encode, score, search, explain", "choose from 'encode', 'score', 'search', 'explain'"
    )


def test_commands_of_the_plugin_take_no_abbreviated_flags(capsys):
    assert cli.main(["average", "--input", "a", "--output", "b"]) == 2
    assert "did you mean --inputs for --input?" in capsys.readouterr().err
    parser = SuggestingParser()
    parser.add_argument("--output")
    child = parser.add_subparsers().add_parser("child")
    child.add_argument("--size")
    for chosen in (["--out", "x"], ["child", "--si", "3"]):
        with pytest.raises(SystemExit):
            parser.parse_args(chosen)


# ---- contradictions -----------------------------------------------------------------------------------------------

SIDES = ("encoder", "decoder")
CONTRADICTIONS = {
    # flags of a translation model -> the sentence's parts
    "shared_embeddings_of_two_widths": (
        {"share_all_embeddings": True, "decoder_embed_dim": 8},
        ("--share-all-embeddings needs --encoder-embed-dim to equal --decoder-embed-dim, but got 16 and 8",),
    ),
    "compiled_layers_with_offloading": (
        {"compile_layers": True, "checkpoint_activations": True, "offload_activations": True},
        ("--compile-layers", "--offload-activations; drop one of them."),
    ),
    **{
        f"{side}_windows_without_attention": (
            {
                f"{side}_attention_bias": "multi-scale",
                f"{side}_attention_scales": "1,all",
                f"{side}_branches": "conv,ffn",
            },
            (f"--{side}-attention-bias limits self-attention, but got --{side}-branches conv,ffn without it",),
        )
        for side in SIDES
    },
    **{
        f"{side}_long_short_range_with_conv": (
            {f"{side}_branches": "long_short_range,conv,ffn"},
            ("long_short_range has a dynamic convolution of its own", f"--{side}-branches conv,long_short_range,ffn"),
        )
        for side in ("encoder",)
    },
    **{
        f"{side}_long_short_range_with_other_kernels": (
            {f"{side}_branches": "long_short_range,ffn", f"{side}_conv_type": "lightweight"},
            ("long_short_range has a dynamic convolution of its own", f"--{side}-conv-type lightweight"),
        )
        for side in SIDES
    },
    **{
        f"{side}_lists_for_other_layers": (
            {f"{side}_kernel_sizes": "[[3],[5],[7]]"},
            (f"--{side}-kernel-sizes must hold one list per layer, but got 3 lists for 2 layers",),
        )
        for side in SIDES
    },
    **{
        f"{side}_more_scales_than_heads": (
            {f"{side}_attention_bias": "multi-scale", f"{side}_attention_scales": "1,3,all"},
            (f"--{side}-attention-scales", "3 scales for 2 heads"),
        )
        for side in SIDES
    },
    **{
        f"{side}_{kind}_heads_that_do_not_divide": (
            {f"{side}_{kind}_heads": 3},
            (f"--{side}-embed-dim must be divisible by --{side}-{kind}-heads, but got 16 and 3",),
        )
        for side in SIDES
        for kind in ("attention", "conv")
    },
    "two_directions": (
        {"encoder_attention_bias": "forward,backward"},
        ("--encoder-attention-bias can take one of", "'forward,backward'"),
    ),
    "direction_in_the_decoder": (
        {"decoder_attention_bias": "backward"},
        ("--decoder-attention-bias must be none or list biases out of", "'backward'"),
    ),
}


@pytest.mark.parametrize(("flags", "parts"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_options_of_translation_models_that_contradict_are_named(flags, parts):
    with pytest.raises(ValueError, match=r"^(--|the branch )") as caught:
        build(**flags)
    (sentence,) = str(caught.value).splitlines()
    for part in parts:
        assert part in sentence


SENTENCE_CONTRADICTIONS = {
    "frozen_without_vectors": (
        {"model": "sentence_cnn", "freeze_word_vectors": True},
        "--freeze-word-vectors keeps pretrained vectors as they are, but there is no --word-vectors",
    ),
    "field_for_one_label": ({"model": "sentence_cnn", "crf": True}, "--crf makes tags depend on each other"),
    "tags_of_pairs": (
        {"model": "sentence_bigru", "task": make_task("tags", pairs=True)},
        "a tagger reads single sentences, but the data have pairs",
    ),
    "characters_without_data": (
        {"model": "sentence_average", "task": make_task(), "character_encoder": "cnn"},
        "--character-encoder reads the characters of every word, but the data have none",
    ),
    "odd_width_of_two_directions": (
        {"model": "sentence_bigru", "character_encoder": "bilstm", "character_features": 7},
        "--character-features must be even with --character-encoder bilstm",
    ),
    "heads_that_do_not_divide": (
        {"model": "sentence_transformer", "encoder_attention_heads": 5},
        "--encoder-embed-dim must be divisible by --encoder-attention-heads, but got 12 and 5",
    ),
    "windows_in_the_decoder_of_none": (
        {"model": "sentence_muse", "encoder_attention_bias": "multi-scale", "encoder_attention_scales": "1,3,5,7,9"},
        "5 scales for 4 heads",
    ),
}


@pytest.mark.parametrize(("flags", "part"), SENTENCE_CONTRADICTIONS.values(), ids=SENTENCE_CONTRADICTIONS)
def test_options_of_sentence_models_that_contradict_are_named(flags, part):
    with pytest.raises(ValueError, match=r"\S") as caught:
        build_sentence_model(**flags)
    assert any(part in sentence for sentence in str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("pairs", "flags", "sentence"),
    [
        (False, {}, "head-wise match compares two sentences, but this task has single ones"),
        (
            True,
            {"match": "cosine", "match_aggregation": "max"},
            "--match cosine makes one number of each head, of which --match-aggregation max would leave a single one",
        ),
        (True, {"pooling": "max"}, "--pooling has no effect on head-wise match, but got max; drop it."),
    ],
)
def test_options_of_head_wise_match_that_contradict_are_named(pairs, flags, sentence):
    name = "head_wise_match_transformer"
    with pytest.raises(ValueError, match=f"^{sentence}"):
        build_model(Namespace(_name=name, arch=name, encoder_layers=1, **flags), make_task(pairs=pairs))


# ---- hydra --------------------------------------------------------------------------------------------------------


def hydra_train(*overrides):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "fairseq_cli.hydra_train", f"common.user_dir={USER_DIR}", *overrides]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


def test_hydra_resumes_where_it_stopped(tmp_path):
    data = make_data(tmp_path / "data", {"train": 12, "valid": 3})
    settings = [
        "common.cpu=true", "task=translation", f"task.data={data}", "+model._name=muse_tiny",
        "+model.encoder_layers=1", "+model.decoder_layers=1", "+model.encoder_kernel_sizes='3,5'",
        "criterion=label_smoothed_cross_entropy", "optimizer=adam", "optimization.lr=[0.001]", "dataset.batch_size=4",
        "dataset.num_workers=0", f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}",
    ]  # fmt: skip
    for updates in (1, 3):
        done = hydra_train(*settings, f"optimization.max_update={updates}")
        assert done.returncode == 0, done.stderr
        state = load_checkpoint(tmp_path / "checkpoint_last.pt")
        assert state["optimizer_history"][-1]["num_updates"] == updates
        assert state["cfg"]["model"]["encoder_kernel_sizes"] == "3,5"
    assert [entry["num_updates"] for entry in state["optimizer_history"]] == [1, 3]


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["+model._name=muse_tiny", "+model.encoder_layrs=1"], "Key 'encoder_layrs' not in 'MuseTinyConfig'"),
        (["model=muse_tiny", "model.encoder_layrs=1"], "Could not override 'model.encoder_layrs'"),
        (["optimization.max_updat=1"], "Could not override 'optimization.max_updat'"),
        (["model=muse_tinny"], "Could not find 'model/muse_tinny'"),
    ],
)
def test_hydra_refuses_a_misspelt_key_by_name(overrides, part):
    hydra_init("config")
    GlobalHydra.instance().clear()
    with initialize_config_module("fairseq.config", version_base="1.1"), pytest.raises(Exception, match=part):
        add_defaults(compose("config", overrides=["task=translation", *overrides]))
