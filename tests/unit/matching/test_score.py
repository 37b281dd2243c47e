"""Scores from stored vectors are those of the model that reads both sentences."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.helpers import assert_close

from muse_plugin.matching.encode import encode_file
from muse_plugin.matching.match_output import format_pair
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.score import score_all, score_rows
from muse_plugin.matching.vector_cache import Blocks, VectorCache
from muse_plugin_command import cli


@pytest.fixture
def first(make_lines):
    return make_lines(9, seed=1)


@pytest.fixture
def second(make_lines):
    return make_lines(13, seed=2)


@pytest.fixture
def caches(make_cache, first, second):
    """Caches of both lists, and of the same folder names each time."""
    return make_cache("first", first), make_cache("second", second)


def predict(model, first, second):
    """What the model says of pairs that it reads as text."""
    answers = model.predictor.answer([f"{a}\t{b}" for a, b in zip(first, second, strict=True)])
    return torch.tensor([answer.scores for answer in answers])


@pytest.mark.parametrize("name", ["yes_no", "three", "number"])
def test_one_by_one_scores_have_the_bits_of_predict(name, load, make_cache, first, second):
    model = load(name, batch_size=1)
    caches = [
        VectorCache(make_cache(f"{name}_{i}", lines, model)) for i, lines in enumerate((first, second[: len(first)]))
    ]
    rows = torch.arange(len(first)).repeat(2, 1).T
    said = score_rows(model, *caches, rows, batch_size=1)
    assert said.dtype == torch.float32
    assert torch.equal(said, predict(model, first, second[: len(first)]))
    assert len({tuple(row) for row in said.tolist()}) > 5


@pytest.mark.parametrize("arch", ["multi_scale_transformer", "sentence_cnn", "head_wise_match_muse"])
def test_the_bits_are_those_of_predict_for_other_encoders(arch, shop, make_cache, first, second, tmp_path):
    flags = ["--encoder-attention-heads", "2", "--encoder-layers", "2"] if arch != "sentence_cnn" else []
    flags += ["--encoder-attention-scales", "3,N/2"] if arch == "multi_scale_transformer" else []
    task = "head_wise_match" if arch.startswith("head") else "muse_sentence_classification"
    shop.save_checkpoint(tmp_path, shop.yes_no / "data", *flags, arch=arch, task=task)
    model = PairModel.load(tmp_path, batch_size=1, cpu=True)
    caches = [VectorCache(make_cache(f"{i}", lines, model)) for i, lines in enumerate((first, second[: len(first)]))]
    said = score_rows(model, *caches, torch.arange(len(first)).repeat(2, 1).T, batch_size=1)
    assert torch.equal(said, predict(model, first, second[: len(first)]))
    score_all(model, *caches, 1, tmp_path / "all.npy", Blocks(4, 4))
    assert_close(torch.from_numpy(np.load(tmp_path / "all.npy").diagonal().copy()), said[:, 1])


def test_in_the_same_batches_scores_have_the_bits_of_the_model(load, tmp_path):
    model = load(batch_size=4)
    first = ["good film", "bad story", "a plot", "the film"]
    second = ["thin plot indeed", "but fun it", "a good story", "rather thin film"]
    for name, lines in (("a", first), ("b", second)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        encode_file(model, tmp_path / f"{name}.txt", tmp_path / name)
    rows = torch.arange(4).repeat(2, 1).T
    said = score_rows(model, VectorCache(tmp_path / "a"), VectorCache(tmp_path / "b"), rows, batch_size=4)
    assert torch.equal(said, predict(model, first, second))


def score(shop, caches, *flags, name="yes_no"):
    words = ["--path", str(getattr(shop, name)), "--first", str(caches[0]), "--second", str(caches[1]), "--cpu"]
    return cli.main(["match", "score", *words, *map(str, flags)])


def test_pairs_are_answered_in_their_order(shop, load, caches, first, second, tmp_path, capsys):
    pairs = [(3, 12), (1, 1), (3, 12), (9, 2), (2, 13)]
    (tmp_path / "pairs").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    assert score(shop, caches, "--pairs", tmp_path / "pairs", "--batch-size", 2) == 0
    said = capsys.readouterr()
    assert re.search(r"scored 5 pairs in \d+\.\d s: [\d,]+ per second", said.err)
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert [(int(a), int(b)) for a, b, *_ in rows] == pairs
    expected = predict(load(), [first[a - 1] for a, _ in pairs], [second[b - 1] for _, b in pairs])
    assert_close(torch.tensor([[float(x) for x in row[3:]] for row in rows]), expected)
    assert [row[2] for row in rows] == [load().outputs[i] for i in expected.argmax(dim=1)]
    assert score(shop, caches, "--pairs", tmp_path / "pairs", "--format", "jsonl", "--output", tmp_path / "out") == 0
    entries = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [list(entry) for entry in entries] == [["first", "second", "label", "probabilities"]] * 5
    assert [[e["first"], e["second"], e["label"]] for e in entries] == [row[:3] for row in rows]
    assert_close(torch.tensor([list(e["probabilities"].values()) for e in entries]), expected)


def test_what_is_read_is_not_replaced(shop, caches, tmp_path, capsys):
    (tmp_path / "pairs").write_text("1\t2\n")
    (tmp_path / "queries").write_text("good film\n")
    vectors = (caches[0] / "vectors.bin").read_bytes()
    for flags, output in (
        (["--pairs", tmp_path / "pairs"], tmp_path / "pairs"),
        (["--all"], caches[0] / "vectors.bin"),
        (["--all", "--top", 1], caches[1] / "ids"),
    ):
        assert score(shop, caches, *flags, "--output", output) == 2
        assert "--output must not replace what is read" in capsys.readouterr().err
    words = ["--path", shop.yes_no, "--corpus", caches[1], "--queries", tmp_path / "queries", "--cpu"]
    assert cli.main(["match", "search", *map(str, words), "--output", str(tmp_path / "queries")]) == 2
    assert (tmp_path / "pairs").read_text() == "1\t2\n"
    assert (tmp_path / "queries").read_text() == "good film\n"
    assert (caches[0] / "vectors.bin").read_bytes() == vectors


def test_numbers_have_no_label(shop, load, make_cache, first, tmp_path, capsys):
    model = load("number")
    folder = make_cache("c", first, model)
    (tmp_path / "pairs").write_text("1\t2\n")
    capsys.readouterr()  # of the data, if this test is the first to ask for them
    for flags in ([], ["--format", "jsonl"]):
        assert score(shop, (folder, folder), "--pairs", tmp_path / "pairs", *flags, name="number") == 0
    columns, entry = capsys.readouterr().out.splitlines()
    value = predict(model, first[:1], first[1:2]).item()
    assert columns.split("\t") == ["1", "2", f"{value:.6g}"]
    assert json.loads(entry) == {"first": "1", "second": "2", "numbers": [float(f"{value:.6g}")]}


@pytest.mark.parametrize("name", ["yes_no", "three", "number"])
def test_all_pairs_are_those_that_are_scored_one_by_one(name, shop, load, make_cache, first, second, tmp_path):
    model = load(name)
    caches = make_cache("a", first, model), make_cache("b", second, model)
    label = {"yes_no": [], "three": ["--label", "middle"], "number": []}[name]
    path = tmp_path / "all.npy"
    assert score(shop, caches, "--all", *label, "--output", path, name=name) == 0
    matrix = np.load(path, mmap_mode="r")
    assert (matrix.shape, matrix.dtype) == ((9, 13), np.float32)
    rows = torch.cartesian_prod(torch.arange(9), torch.arange(13))
    column = {"yes_no": 1, "three": 1, "number": 0}[name]
    expected = score_rows(model, VectorCache(caches[0]), VectorCache(caches[1]), rows)[:, column].view(9, 13)
    assert_close(torch.from_numpy(np.array(matrix)), expected)
    assert expected.std() > 0.01


@pytest.mark.parametrize("blocks", [Blocks(1, 1), Blocks(2, 5), Blocks(4, 4), Blocks(9, 13), Blocks(50, 50)])
def test_blocks_do_not_matter(blocks, load, caches, tmp_path):
    model = load()
    first, second = map(VectorCache, caches)
    score_all(model, first, second, 1, tmp_path / "whole.npy", Blocks(9, 13))
    assert score_all(model, first, second, 1, tmp_path / "parts.npy", blocks) == 9 * 13
    assert_close(np.load(tmp_path / "parts.npy"), torch.from_numpy(np.load(tmp_path / "whole.npy")))


def test_pairs_that_a_model_computes_one_by_one_come_in_small_blocks(load, caches, monkeypatch):
    model = load()
    vectors = VectorCache(caches[0]).read(0, 9), VectorCache(caches[1]).read(0, 13)
    whole = model.score_all_pairs(*vectors)
    assert whole.shape == (9, 13, 2)
    sizes = []
    net = type(model.model)
    original = net.score_pairs
    monkeypatch.setattr(net, "score_pairs", lambda self, a, b: sizes.append(len(a)) or original(self, a, b))
    for pairs in (1, 5, 30):
        sizes.clear()
        monkeypatch.setattr("muse_plugin.matching.pair_model._PAIR_BYTES", pairs * 4 * (8 * model.width + 4096))
        assert_close(model.score_all_pairs(*vectors), whole)
        assert max(sizes) <= pairs
        assert sum(sizes) == 9 * 13


def test_the_file_of_all_pairs_appears_when_it_is_complete(load, caches, tmp_path, monkeypatch):
    first, second = map(VectorCache, caches)
    path = tmp_path / "all.npy"
    path.write_text("before")
    original = VectorCache.read

    def read(self, start, stop):
        if self is second and start == 8:
            raise KeyboardInterrupt
        return original(self, start, stop)

    monkeypatch.setattr(VectorCache, "read", read)
    with pytest.raises(KeyboardInterrupt):
        score_all(load(), first, second, 0, path, Blocks(2, 4))
    assert path.read_text() == "before"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_is_noticed_before_it_is_full(load, caches, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 4 * 9 * 13 - 1}))
    with pytest.raises(ValueError, match=r"the scores of 9 x 13 pairs take 0\.0 GB, but there are 0\.0 GB left"):
        score_all(load(), *map(VectorCache, caches), 0, tmp_path / "all.npy", Blocks(9, 13))


def test_the_best_of_all_pairs_are_those_of_the_whole_table(shop, caches, tmp_path, capsys):
    assert score(shop, caches, "--all", "--output", tmp_path / "all.npy") == 0
    table = torch.from_numpy(np.load(tmp_path / "all.npy"))
    assert score(shop, caches, "--all", "--top", 3, "--output", tmp_path / "top.tsv") == 0
    rows = [line.split("\t") for line in (tmp_path / "top.tsv").read_text().splitlines()]
    assert [(int(q), int(rank)) for q, rank, *_ in rows] == [(q, rank) for q in range(1, 10) for rank in (1, 2, 3)]
    best = table.topk(3, dim=1).values
    assert_close(torch.tensor([float(row[3]) for row in rows]).view(9, 3), best)
    assert_close(torch.tensor([table[int(q) - 1, int(name) - 1] for q, _, name, _ in rows]).view(9, 3), best)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1\t2\n3\n", r"two ids with a tab between them, but line 2 of .*pairs has 1: '3'"),
        ("1\t2\n\n", r"two ids with a tab between them, but line 2 of .*pairs has 0: ''"),
        ("1\t2\t3\n", r"but line 1 of .*pairs has 3: '1\\t2\\t3'"),
        ("1\t \n", r"but line 1 of .*pairs has 1"),
        (
            "1\t2\n2\t14\n5\t15\n6\t14\n",
            r"second has no id '14' of line 2 of .*pairs .2 ids are unknown in all.; correct",
        ),
        ("10\t1\n", r"first has no id '10' of line 1"),
        ("", r"--pairs must have a pair of ids, but .*pairs is empty; name another file"),
    ],
    ids=["one", "blank", "three", "half", "second", "first", "none"],
)
def test_pairs_that_make_no_sense_are_named_by_their_line(shop, caches, tmp_path, capsys, content, words):
    (tmp_path / "pairs").write_text(content)
    assert score(shop, caches, "--pairs", tmp_path / "pairs", "--output", tmp_path / "out") == 2
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--all"], "--all writes a NumPy file, which needs --output FILE.npy; or ask for --top K"),
        (["--all", "--output", "x", "--format", "jsonl"], "--all without --top writes a NumPy file, but got --format"),
        (["--all", "--top", "0"], "--top must be at least 1, but got 0"),
        (["--pairs", "PAIRS", "--top", "2"], "--top is for --all, but --pairs writes a line with all labels"),
        (["--pairs", "PAIRS", "--label", "no"], "--label is for --all, but --pairs writes a line with all labels"),
        (["--pairs", "none"], "--pairs must name a text file, but none does not exist"),
        (["--all", "--top", "1", "--label", "maybe"], "--label must be one of the labels no, yes, but got maybe"),
        (["--pairs", "PAIRS", "--all"], "not allowed with argument"),
        ([], "one of the arguments --pairs --all is required"),
    ],
    ids=["no_output", "format", "top", "top_of_pairs", "label_of_pairs", "no_file", "label", "both", "neither"],
)
def test_flags_that_do_not_go_together_are_named(shop, caches, tmp_path, capsys, flags, words):
    (tmp_path / "PAIRS").write_text("1\t2\n")
    flags = [tmp_path / "PAIRS" if flag == "PAIRS" else flag for flag in flags]
    assert score(shop, caches, *flags) == 2
    assert words in capsys.readouterr().err


def test_vectors_of_another_model_are_refused(shop, caches, tmp_path, capsys):
    (tmp_path / "pairs").write_text("1\t2\n")
    folder = tmp_path / "other"
    shop.save_checkpoint(folder, shop.yes_no / "data", seed=2)
    shop.other = folder
    assert score(shop, caches, "--pairs", tmp_path / "pairs", name="other") == 2
    error = capsys.readouterr().err
    names = [PairModel.load(path, cpu=True).fingerprint()[:16] for path in (shop.yes_no, folder)]
    assert f"first was made by the encoder {names[0]} and --path is {names[1]}; name the checkpoint" in error


def test_another_classifier_reads_the_same_vectors(shop, load, caches, tmp_path, capsys):
    (tmp_path / "pairs").write_text("1\t2\n")
    path = shop.yes_no / "checkpoint_best.pt"
    state = torch.load(path, weights_only=True)
    changed = [name for name in state["model"] if name.startswith("classifier")]
    assert changed
    for name in changed:
        state["model"][name] += 0.5
    torch.save(state, tmp_path / "checkpoint_best.pt")
    shop.retrained = tmp_path
    for name in ("yes_no", "retrained"):
        assert score(shop, caches, "--pairs", tmp_path / "pairs", name=name) == 0
    before, after = capsys.readouterr().out.splitlines()
    assert before != after


def test_a_shorter_limit_of_words_makes_other_vectors_of_the_same_model(shop, load, make_cache, first):
    short = PairModel.load(shop.yes_no, None, 5, 2, True)
    cache = load().open_cache(make_cache("short", first, short))
    assert cache.meta.max_words == 2
    assert cache.meta.fingerprint != load().fingerprint()


@pytest.mark.parametrize(
    ("name", "label", "number"),
    [("yes_no", None, 1), ("yes_no", "no", 0), ("three", "right", 1), ("number", None, 0), ("number", "1", 0)],
)
def test_the_output_that_counts(load, name, label, number):
    model = load(name)
    if name == "three":
        number = model.outputs.index(label)
    assert model.choose_output(label) == number


def test_an_output_that_does_not_go_without_saying_must_be_named(load):
    with pytest.raises(ValueError, match=r"two labels of which one is 1, yes, true, .* this model has the labels left"):
        load("three").choose_output(None)
    with pytest.raises(ValueError, match=r"--label must be one of the numbers 1, but got 2"):
        load("number").choose_output("2")


def test_damaged_parameters_are_noticed(load, caches):
    model = load()
    vectors = VectorCache(caches[0]).read(0, 2)
    with pytest.raises(ValueError, match="scores must be finite, but the model gave inf or NaN"):
        model.score_pairs(vectors, vectors * float("nan"))


def test_log_odds_tell_apart_what_probabilities_do_not(load):
    model = load("three")
    logits = torch.tensor([[30.0, 0.0, 0.0], [40.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    values = model.rank_values(logits, 0)
    assert values[1] > values[0]
    assert_close(model.publish(values), logits.softmax(dim=1)[:, 0])
    assert model.publish(values)[0] == model.publish(values)[1] == 1.0


def test_the_label_is_that_of_the_scores_before_rounding():
    model = SimpleNamespace(predicts_numbers=False, outputs=["no", "yes"])
    assert format_pair(model, "a", "b", [0.49999991, 0.50000012], "tsv") == b"a\tb\tyes\t0.5\t0.5\n"
