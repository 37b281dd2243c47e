"""Floors by kept libraries: what they answer, in the form of predict, and what they refuse."""

import json
import random
import sys

import pytest
from support.helpers import load_program, parse_flags
from support.recipes import EXAMPLES

from muse_plugin.evaluation.score_labels import read_predictions, score
from muse_plugin.preparation import prepare_text


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the program; returns its exit code and what it printed to either stream."""
    program = load_program(EXAMPLES / "recipe" / "baseline.py")

    def call(kind, *flags):
        capsys.readouterr()
        code = program.main([kind, str(tmp_path / "bin"), str(tmp_path / "run"), *flags])
        return code, *capsys.readouterr()

    return call


def prepare(folder, text, *flags):
    """Data of these lines or sentences, the same in train, valid and test."""
    (folder / "all.txt").write_text(text, encoding="utf-8")
    files = [word for flag in ("--train", "--valid", "--test") for word in (flag, folder / "all.txt")]
    assert prepare_text.run(parse_flags("prepare-text", "--output", folder / "bin", *files, *flags)) == 0


def read_score(folder, name, **options):
    return score(read_predictions(folder / "run" / "predictions" / "test.jsonl"), **options)["scores"][name]


def test_texts_are_told_apart_by_their_words(tmp_path, run):
    lines = [f"{label}\tw{i} {word} it is\n" for i in range(10) for label, word in (("pos", "good"), ("neg", "bad"))]
    prepare(tmp_path, "".join(lines))
    code, out, _ = run("linear")
    assert code == 0
    assert "chosen: naive Bayes, alpha 0.1" in out
    assert read_score(tmp_path, "accuracy") == 100
    row = json.loads((tmp_path / "run" / "predictions" / "test.jsonl").read_text().splitlines()[0])
    assert (row["label"], row["target"], row["length"]) == ("pos", "pos", 4)
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    # What a model does not read, a floor does not either: the word that counts is the second one.
    assert run("linear", "--max-words", "1")[0] == 0
    assert read_score(tmp_path, "accuracy") < 100


def test_pairs_are_told_apart_by_the_words_they_share(tmp_path, run):
    generator = random.Random(1)
    lines = []
    for i in range(60):
        first, others = (" ".join(f"w{n}" for n in generator.sample(range(k, k + 40), 4)) for k in (0, 40))
        lines.append(f"{first}\t{first if i % 2 else others}\t{('no', 'yes')[i % 2]}\n")
    prepare(tmp_path, "".join(lines), "--format", "tsv:text=1,pair=2,label=3")
    assert run("linear")[0] == 0
    assert read_score(tmp_path, "accuracy") == 100


def test_words_are_tagged_by_how_they_look(tmp_path, run):
    pytest.importorskip("pycrfsuite", reason="needs python-crfsuite")
    pytest.importorskip("seqeval", reason="entities need seqeval")
    sentences = [f"a O\nN{i}ame B-PER\nNa{i}me I-PER\nran O\n" for i in range(20)]
    prepare(tmp_path, "\n".join(sentences), "--format", "conll:1,2", "--characters", "--lower-case", "--threshold", "2")
    code, out, _ = run("crf")
    assert code == 0
    assert "valid 100.00: conditional random field" in out
    assert read_score(tmp_path, "entity_f1", entities=True) == 100
    row = json.loads((tmp_path / "run" / "predictions" / "test.jsonl").read_text().splitlines()[0])
    assert row["words"] == ["a", "N0ame", "Na0me", "ran"]  # known by their characters, whatever the threshold


PACKAGES = {"linear": ("sklearn.linear_model", "scikit-learn"), "crf": ("pycrfsuite", "python-crfsuite")}


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_missing_package_is_one_sentence(tmp_path, run, monkeypatch, kind):
    module, package = PACKAGES[kind]
    prepare(tmp_path, *(("a X\nb Y\n", "--format", "conll:1,2") if kind == "crf" else ("1\ta\n0\tb\n",)))
    monkeypatch.setitem(sys.modules, module, None)
    rule = f"BASELINE={kind} needs the package {package}, which is missing; run 'pip install {package}'."
    assert run(kind) == (2, "", f"baseline.py: error: {rule}\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "flags", "have"),
    [
        ("crf", (), "a label for each text"),
        ("linear", ("--format", "conll:1,2"), "a tag for each word"),
        ("linear", ("--numbers",), "numbers"),
    ],
)
def test_data_of_another_kind_are_refused(tmp_path, run, kind, flags, have):
    prepare(tmp_path, "a X\nb Y\n" if "conll:1,2" in flags else "1\ta\n0\tb\n", *flags)
    rule = f"BASELINE=crf is for tags and BASELINE=linear for labels, but {tmp_path / 'bin'} has {have}."
    assert run(kind) == (2, "", f"baseline.py: error: {rule}\n")


def test_data_without_validation_are_refused(tmp_path, run):
    (tmp_path / "all.txt").write_text("1\ta\n0\tb\n", encoding="utf-8")
    flags = ("--output", tmp_path / "bin", "--train", tmp_path / "all.txt")
    assert prepare_text.run(parse_flags("prepare-text", *flags)) == 0
    code, _, error = run("linear")
    assert code == 2
    assert f"a floor chooses its settings on the split valid, but {tmp_path / 'bin'} has none" in error
