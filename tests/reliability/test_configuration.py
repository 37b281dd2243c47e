"""Command lines that are wrong: a misspelt flag or key is refused and the right one proposed; Hydra trains."""

import os

import pytest
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from support.fairseq_commands import USER_DIR, make_data
from support.helpers import REPOSITORY, run_command
from support.warm_python import find_python

from muse_plugin.checkpoints.safe_loading import load_checkpoint
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


# ---- hydra --------------------------------------------------------------------------------------------------------


def hydra_train(*overrides):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [find_python(), "-m", "fairseq_cli.hydra_train", f"common.user_dir={USER_DIR}", *overrides]
    return run_command(command, cwd=REPOSITORY, env=environment)


def test_hydra_resumes_where_it_stopped(tmp_path):
    data = make_data(tmp_path / "data", {"train": 12, "valid": 3})
    settings = [
        "common.cpu=true", "task=translation", f"task.data={data}", "+model._name=muse_tiny",
        "+model.encoder_layers=1", "+model.encoder_kernel_sizes='3,5'",
        "criterion=label_smoothed_cross_entropy", "optimizer=adam", "optimization.lr=[0.001]", "dataset.batch_size=4",
        "dataset.num_workers=0", f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}",
    ]  # fmt: skip
    for updates in (1, 3):
        done = hydra_train(*settings, f"optimization.max_update={updates}")
        assert done.returncode == 0, done.stderr
        state = load_checkpoint(tmp_path / "checkpoint_last.pt")
        assert state["optimizer_history"][-1]["num_updates"] == updates
        model = state["cfg"]["model"]
        assert (model["encoder_layers"], model["encoder_kernel_sizes"]) == (1, "3,5")
        assert (model["decoder_layers"], model["encoder_embed_dim"]) == (4, 128), "the rest is the preset's"
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
