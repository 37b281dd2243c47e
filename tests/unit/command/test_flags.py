"""The flags of every sub-command: read without torch, and of the same names as the work knows."""

import argparse
import json
import os

import pytest
from support.helpers import REPOSITORY, run_python

from muse_plugin.analysis import analyze, analyze_model, attended_words
from muse_plugin.benchmark import benchmark, systems
from muse_plugin.evaluation import scores, significance
from muse_plugin.matching import match
from muse_plugin.ops import dynamic_conv
from muse_plugin.serve import guard
from muse_plugin.text import text_settings, word_pieces
from muse_plugin_command import cli


def find_kinds(parser):
    """The parsers of the sub-commands of a parser, by their names."""
    return next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})


def list_parsers():
    """The parsers of all sub-commands and of their kinds, by the words that call them."""
    found = {}
    for name in cli.COMMANDS:
        found[name] = find_kinds(cli.build_parser(name))[name]
        found.update({f"{name} {kind}": parser for kind, parser in find_kinds(found[name]).items()})
    return found


PARSERS = list_parsers()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What one process says to ``--help`` and to a wrong flag of every command, and what it has imported by then."""
    code = (
        "import json, sys\n"
        "from muse_plugin_command import cli\n"
        "answers = {}\n"
        "for words in sys.argv[1:]:\n"
        "    codes = [cli.main([*words.split(), flag]) for flag in ('--help', '--no-such-flag')]\n"
        "    answers[words] = [*codes, sorted({'muse_plugin', 'torch', 'fairseq', 'numpy'} & sys.modules.keys())]\n"
        "print('@', json.dumps(answers))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = run_python(code, *PARSERS, cwd=tmp_path_factory.mktemp("answers"), env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("@")[2])


@pytest.mark.parametrize("words", PARSERS)
def test_help_and_a_wrong_flag_need_only_the_standard_library(answers, words):
    assert answers[words] == [0, 2, []]


@pytest.mark.parametrize(
    ("words", "flag", "known"),
    [
        ("prepare-text", "--tokenizer", (*text_settings.TOKENIZERS, "wordpiece")),
        ("evaluate", "--expect-metric", scores.TITLES),
        ("evaluate", "--significance", significance.METHODS),
        ("match", "KIND", match.KINDS),
        ("analyze", "KIND", analyze.KINDS),
        ("analyze model", "--word-measure", (attended_words.WEIGHT, attended_words.RATIO)),
        ("benchmark", "KIND", [*benchmark.KINDS, "report"]),
        ("benchmark conv", "--backend", dynamic_conv.BACKENDS),
        ("benchmark train", "--setting", systems.SETTINGS),
        ("benchmark generate", "--setting", systems.SETTINGS),
    ],
)
def test_choices_are_what_the_work_knows(words, flag, known):
    (action,) = [a for a in PARSERS[words]._actions if flag in (*a.option_strings, a.metavar)]
    assert sorted(action.choices) == sorted(known)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("translate", text_settings.FILE_NAME),
        ("view", text_settings.FILE_NAME),
        ("view", guard.LOOPBACK[0]),
        ("serve", guard.LOOPBACK[0]),
        ("prepare-text", text_settings.FILE_NAME),
        ("prepare-text", word_pieces.VOCABULARY_NAME),
        ("analyze bert", word_pieces.VOCABULARY_NAME),
        ("analyze model", ", ".join(analyze_model.NOT_THERE)),
    ],
)
def test_help_names_things_as_the_work_does(words, named, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert named in PARSERS[words].format_help()
