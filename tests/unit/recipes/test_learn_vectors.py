"""Vectors for any recipe, from the texts that its data were made of: of unseen words too, centred, learned once."""

import json
import random
import sys

import pytest
from support.helpers import load_program, parse_flags
from support.recipes import EXAMPLES

from muse_plugin.preparation import prepare_text
from muse_plugin.pretrained.word_vectors import measure_likeness, read_word_vectors

WORDS = {"f": "apple pear plum cherry quince".split(), "m": "iron zinc lead tin copper".split()}


@pytest.fixture
def program(monkeypatch):
    return load_program(EXAMPLES / "recipe" / "learn_vectors.py")


@pytest.fixture
def data(tmp_path):
    """Texts of fruit or of metals; the test text alone has cherries and a word of no kind."""
    generator = random.Random(1)
    lines = [f"{kind}\tthe {' '.join(generator.choices(WORDS[kind], k=7))}\n" for _ in range(200) for kind in "fm"]
    (tmp_path / "train.txt").write_text("".join(lines))
    (tmp_path / "test.txt").write_text("f\tCherries taste well\n")
    files = ("--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt", "--valid-from-train", "10")
    flags = ("--lower-case", "--threshold", "2", "--output", tmp_path / "bin", *files)
    assert prepare_text.run(parse_flags("prepare-text", *flags)) == 0
    return tmp_path / "bin"


def test_words_of_the_test_set_have_vectors_by_their_spelling(program, data, tmp_path, capsys):
    pytest.importorskip("gensim", reason="needs gensim")
    path = tmp_path / "new" / "vectors.txt"
    call = [str(data), "--output", str(path), "--dim", "8", "--epochs", "40", "--sample", "0"]
    assert program.main(call) == 0
    assert "vectors of 14 of 14 words, learned from 3,200 words" in capsys.readouterr().out
    names = ["the", *WORDS["f"], *WORDS["m"], "cherries", "taste", "well"]
    table, found = read_word_vectors(path, {word: row for row, word in enumerate(names)})
    assert found.all()
    assert table.mean(dim=0).abs().max() < 1e-5
    assert table.std() == pytest.approx(0.3, abs=1e-3)
    assert table[names.index("cherries")].norm() > 0.1
    texts = [*program.read_texts(data, "train")]
    settings = {**program.OPTIONS, "epochs": 40, "window": 5, "min_count": 2, "sample": 0, "seed": 1}
    vectors = program.train_word_vectors(lambda: texts, 8, settings, buckets=program.BUCKETS).wv
    assert vectors.similarity("cherries", "cherry") > vectors.similarity("cherries", "iron") + 0.2
    content = path.read_bytes()
    path.write_bytes(b"kept as it is")
    assert program.main(call) == 0
    assert (path.read_bytes(), "done before" in capsys.readouterr().out) == (b"kept as it is", True)
    assert program.main([*call, "--seed", "2"]) == 0
    assert path.read_bytes() != content
    assert program.main(call) == 0
    assert path.read_bytes() == content  # the same texts, settings and seed


def test_long_texts_are_learned_from_to_their_end(program, tmp_path, monkeypatch, capsys):
    """gensim drops what a text has beyond 10,000 words."""
    pytest.importorskip("gensim", reason="needs gensim")
    (tmp_path / "train.txt").write_text("f\t" + "a " * 10_000 + "b b\nm\tc c\n")
    files = ("--train", tmp_path / "train.txt", "--output", tmp_path / "bin")
    assert prepare_text.run(parse_flags("prepare-text", *files)) == 0
    given = []
    monkeypatch.setattr(program, "train_word_vectors", lambda texts, *args, **more: given.extend(texts()) or sys.exit())
    with pytest.raises(SystemExit):
        program.main([str(tmp_path / "bin"), "--output", str(tmp_path / "v.txt")])
    assert given == [["a"] * 10_000, ["b", "b"], ["c", "c"]]


def test_without_subwords_only_words_that_were_learned_have_vectors(program, data, tmp_path, capsys):
    pytest.importorskip("gensim", reason="needs gensim")
    assert program.main([str(data), "--output", str(tmp_path / "v.txt"), "--kind", "word2vec", "--dim", "4"]) == 0
    assert "vectors of 11 of 14 words" in capsys.readouterr().out
    record = json.loads((tmp_path / "v.txt.json").read_text())
    assert (record["kind"], record["dim"], record["epochs"]) == ("word2vec", 4, 10)
    table, _ = read_word_vectors(tmp_path / "v.txt", {word: row for row, word in enumerate(WORDS["f"] + WORDS["m"])})
    assert record["cosine"] == pytest.approx(measure_likeness(table), abs=0.2)


def test_faults_are_one_sentence(program, data, tmp_path, capsys, monkeypatch):
    call = [str(data), "--output", str(tmp_path / "v.txt")]
    capsys.readouterr()
    if "gensim" in sys.modules or pytest.importorskip("gensim"):
        assert program.main([*call, "--min-count", "5000"]) == 2
        assert "occur at least 5000 times, but the 3200 words of the text have none; lower " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    assert program.main(call) == 2
    assert capsys.readouterr().err == (
        "learn_vectors.py: error: learning word vectors needs the package gensim, which is missing; run 'pip install "
        "gensim' (up to Python 3.13).\n"
    )
    (tmp_path / "train.txt").unlink()
    assert program.main(call) == 2
    assert f"made of, but {tmp_path / 'train.txt'} does not exist; prepare the data again" in capsys.readouterr().err
    assert not (tmp_path / "v.txt").exists()
