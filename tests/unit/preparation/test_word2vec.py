"""Word vectors learned from the training text: the same every time, of the right words, faults named."""

import os
import re
import sys

import pytest
import torch
from support.helpers import REPOSITORY, assert_close, run_python

from muse_plugin.preparation.word2vec import train_word_vectors
from muse_plugin.pretrained.word_vectors import read_word_vectors
from muse_plugin.text.text_settings import FILE_NAME, load_text_settings
from muse_plugin_command.flags.prepare_text import SETTINGS as FLAGS

pytest.importorskip("gensim", reason="needs gensim")

FRUIT, METAL = "apple pear plum cherry quince".split(), "iron zinc lead tin copper".split()
DEFAULTS = {name: setting.default for name, setting in FLAGS.items()}
SETTINGS = {**DEFAULTS, "min_count": 2, "window": 3, "epochs": 3}


def make_texts(count=60):
    """Texts of fruit or of metals, never both."""
    generator = torch.Generator().manual_seed(1)
    texts = []
    for i in range(count):
        words = (FRUIT, METAL)[i % 2]
        texts.append([words[int(j)] for j in torch.randint(5, (8,), generator=generator)])
    return texts


@pytest.fixture
def files(write):
    lines = [f"{'fm'[i % 2]}\t{' '.join(text)}\n" for i, text in enumerate(make_texts())]
    return "--train", write("train.txt", "".join(lines)), "--test", write("test.txt", "f\tapple unseen iron rare\n")


def read(folder):
    return (folder / "word_vectors.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("algorithm", ["cbow", "skip-gram"])
def test_words_that_meet_are_more_alike_than_those_that_do_not(algorithm):
    model = train_word_vectors(make_texts, 8, {**SETTINGS, "epochs": 60, "algorithm": algorithm})
    assert sorted(model.wv.index_to_key) == sorted(FRUIT + METAL)
    assert model.corpus_total_words == 480
    vectors = torch.from_numpy(model.wv.vectors)
    assert (vectors.shape, vectors.dtype) == ((10, 8), torch.float32)
    centred = vectors - vectors.mean(dim=0)  # what all words have in common says nothing
    unit = centred / centred.norm(dim=1, keepdim=True)
    groups = [[model.wv.key_to_index[word] for word in words] for words in (FRUIT, METAL)]
    within = torch.stack([(unit[g] @ unit[g].T).mean() for g in groups]).mean()
    across = (unit[groups[0]] @ unit[groups[1]].T).mean()
    assert within > across + 0.5


def test_rare_words_unknown_words_and_the_ends_of_long_texts():
    texts = [["a"] * 10_000 + ["b", "b"], ["<unk>", "<unk>", "c", "a"]]
    model = train_word_vectors(lambda: texts, 4, SETTINGS)
    assert model.wv.index_to_key == ["a", "b"]  # b is where gensim no longer reads a text in one piece
    assert model.corpus_total_words == 10_004
    with pytest.raises(ValueError, match=r"^vectors are learned for words that occur at least 9 times, but "):
        train_word_vectors(lambda: [["a", "b"]], 4, {**SETTINGS, "min_count": 9})


def test_a_text_of_several_of_gensims_jobs_gives_the_same_vectors_again():
    """Workers next to each other, which have a job of 10,000 words each, would end in another order every time."""
    first, second = (train_word_vectors(lambda: make_texts(10_000), 16, SETTINGS) for _ in range(2))
    assert first.corpus_total_words == 80_000
    assert first.wv.index_to_key == second.wv.index_to_key
    assert (first.wv.vectors == second.wv.vectors).all()


def test_another_process_with_another_hash_gives_the_same_file(tmp_path, files, prepare):
    prepare(*files, "--word2vec", 6)
    code = "import sys; from muse_plugin_command.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [*map(str, files), "--word2vec", "6", "--output", str(tmp_path / "other")]
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(REPOSITORY)}
    done = run_python(code, "prepare-text", *words, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "gensim" not in done.stderr
    assert read(tmp_path / "other") == read(tmp_path / "data")


def test_the_file_has_the_words_of_the_vocabulary_and_the_report_says_so(tmp_path, files, prepare):
    out = prepare(*files, "--word2vec", 6)
    assert "word2vec: 10 words, learned from 480 words in 5 epochs" in out
    assert "word vectors of width 6 for 10 of the 10 words of the vocabulary" in out
    assert "test: 50.00% of the different words, 50.00% of all words have a vector" in out
    rows = {word: row for row, word in enumerate(FRUIT + METAL)}
    vectors, found = read_word_vectors(tmp_path / "data" / "word_vectors.txt", rows, 6)
    assert found.all()
    learned = train_word_vectors(make_texts, 6, DEFAULTS).wv
    assert_close(vectors[[rows[word] for word in learned.index_to_key]], learned.vectors, atol=0, rtol=0)
    arguments = load_text_settings(tmp_path / "data")[1].arguments
    assert (arguments["word2vec"], arguments["word2vec_min_count"]) == (6, None)
    # What data count as that were made before a flag existed:
    numbers = {"min_count": 5, "window": 5, "epochs": 5, "negative": 5, "sample": 0.001, "seed": 1}
    assert {**numbers, "algorithm": "cbow"} == DEFAULTS


@pytest.mark.parametrize(
    "flag",
    [
        ("--word2vec-algorithm", "skip-gram"),
        ("--word2vec-window", 1),
        ("--word2vec-epochs", 6),
        ("--word2vec-negative", 2),
        ("--word2vec-sample", 0),
        ("--word2vec-seed", 2),
    ],
)
def test_every_setting_matters(tmp_path, files, prepare, flag):
    prepare(*files, "--word2vec", 6)
    prepare(*files, "--word2vec", 6, *flag, output="other")
    assert read(tmp_path / "data") != read(tmp_path / "other")


def test_only_training_text_and_further_texts_are_learned_from(tmp_path, files, prepare, write):
    more = write("more.txt", "PEAR gold gold\n" + "\n" + "gold iron gold gold gold\n")
    out = prepare(*files, "--word2vec", 6, "--word2vec-text", more, "--lower-case", "--vocabulary-from", "all")
    assert "word2vec: 11 words, learned from 488 words" in out  # gold; what only the test set has is not learned
    assert "for 10 of the 12 words of the vocabulary" in out
    words = {line.split()[0] for line in read(tmp_path / "data").splitlines()}
    assert words == set(FRUIT + METAL)


def test_data_made_before_these_flags_count_as_made_without_them(tmp_path, files, prepare):
    prepare(*files)
    path = tmp_path / "data" / FILE_NAME
    text = path.read_text(encoding="utf-8")
    assert text.count('"word2vec') == 9
    path.write_text(re.sub(r',\s*"word2vec\w*": null', "", text), encoding="utf-8")
    assert "word2vec" not in path.read_text(encoding="utf-8")
    prepare(*files)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--word2vec", 0), "--word2vec must be at least 1 and at most 10,000, but got 0."),
        (
            ("--word2vec", 99999999999999),
            "--word2vec must be at least 1 and at most 10,000, but got 99999999999999.",
        ),
        *(
            (
                ("--word2vec", 4, f"--word2vec-{name}", value),
                f"--word2vec-{name} must be at least {least} and less than {below}, but got {shown}.",
            )
            for name, value, least, below, shown in (
                ("min-count", 0, 1, "2,147,483,648", "0"),
                ("seed", -1, 0, "4,294,967,296", "-1"),
                ("seed", 2**32, 0, "4,294,967,296", "4294967296"),
                ("sample", "nan", 0, "1", "nan"),
                ("sample", -1, 0, "1", "-1.0"),
                ("sample", 1, 0, "1", "1.0"),
                ("window", 2**31, 1, "10,000", "2147483648"),
                ("negative", 10**11, 1, "1,000", "100000000000"),
            )
        ),
        (
            ("--word2vec-window", 3),
            "--word2vec-window is for vectors that are trained here, but --word2vec is not given; add --word2vec DIM "
            "or drop the flag.",
        ),
        (
            ("--word2vec", 4, "--word-vectors", "f.txt"),
            "vectors come from one place, but got --word-vectors f.txt and --word2vec 4; drop one.",
        ),
        (
            ("--word2vec", 4, "--word2vec-text", "no.txt"),
            "--word2vec-text must name a file, but no.txt does not exist; check the path.",
        ),
        (
            ("--word2vec", 4, "--word2vec-min-count", 500),
            "vectors are learned for words that occur at least 500 times, but the 480 words of the text have none; "
            "lower --word2vec-min-count (of the recipes' vectors.sh: MIN_COUNT) or give more text, such as "
            "--word2vec-text.",
        ),
    ],
)
def test_flags_that_cannot_work_are_refused(tmp_path, monkeypatch, files, prepare, flags, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.txt").write_text("a 1\n")
    with pytest.raises((ValueError, FileNotFoundError), match=f"^{re.escape(sentence)}$"):
        prepare(*files, *flags)
    assert not (tmp_path / "data").exists()


def test_text_that_cannot_be_read_again_is_refused(tmp_path, files, prepare):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"^--word2vec-text must name an ordinary file, which is read twice"):
        prepare(*files, "--word2vec", 4, "--word2vec-text", tmp_path / "pipe")


def test_an_earlier_vocabulary_without_a_learned_word_is_refused(files, prepare, write):
    prepare("--train", write("other.txt", "f\tx y\nm\tz z\n"), output="other")
    folder = files[1].parent / "other"
    sentence = "--word2vec must learn vectors for words of the vocabulary, but none of 3, such as 'z', is frequent"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        prepare(*files, "--dict-from", folder, "--word2vec", 4)


def test_a_missing_gensim_is_named(monkeypatch, files, prepare):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    sentence = (
        "learning word vectors needs the package gensim, which is missing; run 'pip install gensim' (up to Python "
        "3.13)."
    )
    with pytest.raises(ImportError, match=f"^{re.escape(sentence)}$"):
        prepare(*files, "--word2vec", 4)
