"""``--help`` with an architecture: its flags, with the values that it chooses."""

import re

import pytest
from fairseq import options

import muse_plugin  # noqa: F401  applies the repairs


def print_help(capsys, *words):
    """Returns the exit code and what fairseq-train prints, with one space between words."""
    parser = options.get_training_parser()
    with pytest.raises(SystemExit) as end:
        options.parse_args_and_arch(parser, input_args=[*words])
    printed = capsys.readouterr()
    return end.value.code, re.sub(r"\s+", " ", printed.out), printed.err


@pytest.mark.parametrize(
    ("arch", "texts"),
    [
        ("muse_large", ["width of the encoder, in channels (default: 768)", "--left-pad-source"]),
        ("muse_tiny", ["number of encoder layers (default: 4)", "(default: 3,15)"]),
        ("muse_simple", ["number of encoder layers (default: 12)"]),
        ("transformer_iwslt_de_en", ["encoder: embedding dimension for FFN (default: 1024)"]),
        ("lightconv_wmt_en_de_big", ["(default: 1024)"]),
    ],
)  # fmt: skip
def test_help_has_the_flags_of_an_architecture_and_its_values(capsys, arch, texts):
    code, text, _ = print_help(capsys, "--arch", arch, "--help")
    assert code == 0
    for expected in texts:
        assert expected in text
    assert not re.search(r"\(default: [^)]*\) \(default", text)


def test_help_has_the_flags_of_task_and_criterion(capsys):
    _, plain, _ = print_help(capsys, "-h")
    assert "--simcut-alpha" not in plain
    words = ["--arch=multi_scale_transformer", "--task", "muse_sentence_classification", "-h"]
    code, text, _ = print_help(capsys, *words, "--criterion", "label_smoothed_cross_entropy_with_simcut")
    assert code == 0
    for flag in ("--max-words", "--simcut-alpha", "--encoder-attention-scales"):
        assert flag in text


def test_a_misspelt_architecture_is_refused_with_help_too(capsys):
    code, out, err = print_help(capsys, "--arch", "muse_lage", "--help")
    assert (code, out) == (2, "")
    assert err.rstrip().endswith("did you mean muse_large?")
