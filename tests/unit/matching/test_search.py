"""Search finds what scoring everything finds, whatever the blocks, and reads no more than it may."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from tqdm import tqdm

from muse_plugin.matching import search
from muse_plugin.matching.best_matches import TopRows, best_columns
from muse_plugin.matching.cache_writer import CacheWriter
from muse_plugin.matching.faiss_index import choose_kind, index_path, load_or_build
from muse_plugin.matching.search import Finder, choose_candidates
from muse_plugin.matching.vector_cache import Blocks, CacheMeta, VectorCache, plan_blocks
from muse_plugin_command import cli


@pytest.fixture
def corpus_lines(make_lines):
    return make_lines(40, seed=3)


@pytest.fixture
def corpus(make_cache, corpus_lines):
    return make_cache("corpus", corpus_lines)


@pytest.fixture
def queries(make_lines):
    return make_lines(6, seed=4)


@given(
    values=st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1, max_size=3),
    k=st.integers(1, 9),
    block=st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_the_best_are_kept_and_of_equals_the_first(values, k, block):
    scores = torch.tensor(values, dtype=torch.float32)
    top = TopRows(len(scores), k)
    for start in range(0, 7, block):
        top.add(scores[:, start : start + block], start)
    expected = [sorted(range(7), key=lambda i: (-row[i], i))[:k] for row in values]
    assert top.rows.tolist() == expected
    assert_close(top.values, scores.gather(1, torch.tensor(expected)), atol=0, rtol=0)


def test_the_best_of_nothing_is_nothing():
    assert best_columns(torch.empty(2, 0), 3).shape == (2, 0)


def brute_force(model, queries, corpus, k):
    """The best rows by scoring every pair as text."""
    found = []
    for query in queries:
        answers = model.predictor.answer([f"{query}\t{line}" for line in corpus])
        scores = [answer.scores[1] for answer in answers]
        best = sorted(range(len(corpus)), key=lambda row: -scores[row])[:k]
        found.append([(row, scores[row]) for row in best])
    return found


def make_finder(model, corpus, k, rows, *stage):
    """Finds by the second output of a model, with so many rows in memory at once."""
    finder = Finder(model, corpus, k, 1, *stage)
    finder.blocks = Blocks(len(corpus), rows)
    return finder


def search_words(shop, queries, corpus, *flags, name="yes_no"):
    words = ["--path", str(getattr(shop, name)), "--queries", str(queries), "--corpus", str(corpus), "--cpu"]
    return cli.main(["match", "search", *words, *map(str, flags)])


def read_rows(text):
    rows = {}
    for line in text.splitlines():
        query, rank, name, score = line.split("\t")
        rows.setdefault(query, []).append((int(rank), name, float(score)))
    return rows


def test_text_finds_what_scoring_every_pair_finds(shop, load, corpus, corpus_lines, queries, tmp_path, capsys):
    (tmp_path / "q.txt").write_text("".join(f"{line}\n" for line in queries))
    assert search_words(shop, tmp_path / "q.txt", corpus, "--top", 4) == 0
    rows = read_rows(capsys.readouterr().out)
    expected = brute_force(load(), queries, corpus_lines, 4)
    assert list(rows) == [str(i + 1) for i in range(6)]
    for found, best in zip(rows.values(), expected, strict=True):
        assert [rank for rank, _, _ in found] == [1, 2, 3, 4]
        assert_close(torch.tensor([score for *_, score in found]), torch.tensor([score for _, score in best]))
        texts = [corpus_lines[int(name) - 1] for _, name, _ in found]
        scores = [answer.scores[1] for answer in load().predictor.answer([f"{queries[0]}\t{t}" for t in texts])]
        assert len(scores) == 4


def test_cached_queries_with_ids_find_the_same_as_text(shop, corpus, queries, make_cache, tmp_path, capsys):
    lines = [f"q{i}\t{line}" for i, line in enumerate(queries)]
    cached = make_cache("queries", lines, with_ids=True)
    assert search_words(shop, cached, corpus, "--top", 3) == 0
    by_cache = capsys.readouterr().out
    assert search_words(shop, tmp_path / "queries.txt", corpus, "--ids", "--top", 3, "--batch-size", 5) == 0
    assert capsys.readouterr().out == by_cache
    assert list(read_rows(by_cache)) == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert search_words(shop, cached, corpus, "--top", 3, "--format", "jsonl", "--output", tmp_path / "out") == 0
    entries = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    rows = {
        entry["query"]: [(i + 1, m["id"], m["probability"]) for i, m in enumerate(entry["matches"])]
        for entry in entries
    }
    assert rows == read_rows(by_cache)


def test_fewer_sentences_than_matches_give_all_of_them(shop, make_cache, queries, capsys):
    corpus = make_cache("small", ["good film", "bad plot"])
    for stage in ("none", "cosine"):
        assert search_words(shop, make_cache("q", queries), corpus, "--top", 5, "--first-stage", stage) == 0
        assert all(len(found) == 2 for found in read_rows(capsys.readouterr().out).values())


@pytest.mark.parametrize("rows", [1, 7, 40, 64])
def test_blocks_do_not_matter(load, corpus, make_cache, queries, rows, monkeypatch):
    model, cache = load(), VectorCache(corpus)
    vectors = VectorCache(make_cache("q", queries)).read(0, 6)
    values = model.rank_values(model.score_all_pairs(vectors, cache.read(0, 40)), 1)
    bars = []
    monkeypatch.setattr(search, "tqdm", lambda **about: bars.append(tqdm(**{**about, "disable": False})) or bars[-1])
    found = make_finder(model, cache, 5, rows).find(vectors)
    assert [bar.n for bar in bars] == [40]
    assert found.rows.tolist() == best_columns(values, 5).tolist()
    assert_close(found.values, values.gather(1, found.rows))


def test_equal_sentences_come_in_the_order_of_the_corpus(load, make_cache, queries):
    model = load()
    cache = VectorCache(make_cache("c", ["good film", "thin plot"] * 10))
    vectors = VectorCache(make_cache("q", queries)).read(0, 6)
    for found in (make_finder(model, cache, 10, rows).find(vectors).rows for rows in (4, 20)):
        for row in found.tolist():
            assert row == list(range(row[0], 20, 2))
    ranked = make_finder(model, cache, 10, 4).rank_candidates(vectors, torch.arange(20).flip(0).expand(6, 20))
    assert ranked.rows.tolist() == found.tolist()


def test_enough_candidates_find_what_the_model_alone_finds(shop, corpus, make_cache, queries, capsys):
    cached = make_cache("q", queries)
    outputs = []
    for flags in (["none"], ["cosine", "--candidates", "40"], ["cosine"]):
        assert search_words(shop, cached, corpus, "--top", 5, "--first-stage", *flags) == 0
        outputs.append(read_rows(capsys.readouterr().out))
    for found in outputs[1:]:
        for query, best in outputs[0].items():
            assert [name for _, name, _ in found[query]] == [name for _, name, _ in best]
            assert_close(torch.tensor([x for *_, x in found[query]]), torch.tensor([x for *_, x in best]))


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_candidates_are_those_of_largest_cosine_and_the_model_ranks_only_them(load, corpus, make_cache, queries, rows):
    model, cache = load(), VectorCache(corpus)
    vectors, others = VectorCache(make_cache("q", queries)).read(0, 6), cache.read(0, 40)
    finder = make_finder(model, cache, 3, rows, "cosine", 8)
    found = finder.find_candidates(vectors)
    cosine = torch.nn.functional.cosine_similarity(vectors.unsqueeze(1), others.unsqueeze(0), dim=-1)
    assert_close(cosine.gather(1, found), cosine.topk(8, dim=1).values)
    ranked = finder.rank_candidates(vectors, found)
    values = model.rank_values(model.score_all_pairs(vectors, others), 1)
    only = torch.full_like(values, -torch.inf).scatter(1, found, values.gather(1, found))
    assert_close(ranked.values, only.topk(3, dim=1).values)
    assert_close(values.gather(1, ranked.rows), ranked.values)


def test_missing_candidates_are_left_out(load, corpus, make_cache, queries):
    model, cache = load(), VectorCache(corpus)
    vectors = VectorCache(make_cache("q", queries)).read(0, 2)
    ranked = make_finder(model, cache, 2, 10).rank_candidates(vectors, torch.tensor([[-1, 3, -1], [-1, -1, -1]]))
    assert ranked.rows.tolist() == [[3, -1], [-1, -1]]
    assert torch.isinf(ranked.values[0, 1])


def test_a_search_never_reads_more_than_its_blocks(load, corpus, make_cache, queries, monkeypatch):
    sizes = []
    original = VectorCache._check

    def count(self, rows, numbers):
        sizes.append(len(rows))
        return original(self, rows, numbers)

    monkeypatch.setattr(VectorCache, "_check", count)
    monkeypatch.setattr(search, "plan_blocks", lambda memory, width, outputs: Blocks(2, 9))
    finder = Finder(load(), VectorCache(corpus), 3, 1)
    cache = VectorCache(make_cache("q", queries))
    with open("/dev/null", "wb") as sink:
        assert finder.write(search.read_cache(cache, finder.blocks.queries), sink, "tsv") == 6
    assert max(sizes) == 9
    assert sizes.count(2) == 3  # the queries
    assert sum(sizes) == 3 * (2 + 40)


@pytest.mark.parametrize("width", [16, 300, 24576])
@pytest.mark.parametrize("memory", [1, 64, 1024, 65536])
def test_blocks_fit_into_memory(width, memory):
    blocks = plan_blocks(memory, width, 3)
    vectors = 4 * width * (blocks.queries + 4 * blocks.corpus)
    scores = 4 * blocks.queries * blocks.corpus * 10
    assert min(blocks) >= 1
    assert vectors + scores <= max(memory << 20, 5 * 4 * width + 40)


def test_candidates_by_default_and_their_limits():
    assert choose_candidates(5, "cosine", None) == 100
    assert choose_candidates(50, "faiss", None) == 500
    assert choose_candidates(5, "cosine", 5) == 5
    with pytest.raises(ValueError, match="--candidates must be at least --top, but got 4 and 5; raise it"):
        choose_candidates(5, "cosine", 4)
    with pytest.raises(ValueError, match="a first stage hands on, but there is none and it is 9; add --first-stage"):
        choose_candidates(5, "none", 9)


def test_bad_flags_and_files_are_named(shop, load, corpus, queries, make_cache, tmp_path, capsys):
    (tmp_path / "q").write_text("good\n\n")

    def error_of(queries, *flags, **options):
        assert search_words(shop, queries, corpus, *flags, **options) == 2
        return capsys.readouterr().err

    assert "--queries must name a text file, but" in error_of(tmp_path / "none")
    assert "but line 2 is blank" in error_of(tmp_path / "q")
    assert "--memory must be at least 1, but got 0" in error_of(tmp_path / "q", "--memory", 0)
    assert "--top must be at least 1, but got 0" in error_of(tmp_path / "q", "--top", 0)
    assert "--ids says how sentences are read, but" in error_of(corpus, "--ids")
    assert "was made by the encoder" in error_of(corpus, "--label", "left", name="three")
    assert "name one with --label" in error_of(corpus, name="three")


def test_a_missing_package_is_named_before_the_model_is_loaded(shop, corpus, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(search.PairModel, "load", lambda *args: pytest.fail("loaded"))
    assert search_words(shop, corpus, corpus, "--first-stage", "faiss") == 2
    error = capsys.readouterr().err
    assert "run 'pip install faiss-cpu', or use --first-stage cosine" in error


def test_the_index_that_fits():
    assert choose_kind(1000, 100, 1024) == "Flat"
    assert choose_kind(200, 24576, 1) == "Flat"  # too few to learn from
    assert choose_kind(1_000_000, 24576, 1024) == "IVF70,PQ256"  # learnt from 2,730 vectors
    assert choose_kind(1_000_000, 300, 1024) == "IVF4000,PQ150"
    assert choose_kind(300, 997, 1) == "IVF4,PQ1"


def test_an_index_is_named_by_its_vectors(corpus, make_cache, queries):
    cache = VectorCache(corpus)
    path = index_path(cache, "Flat")
    assert path == index_path(VectorCache(corpus), "Flat")
    assert path.parent == corpus
    assert path != index_path(cache, "IVF4,PQ1")
    other = index_path(VectorCache(make_cache("q", queries)), "Flat")
    assert other.name != path.name


@pytest.fixture
def faiss():
    if importlib.util.find_spec("faiss") is None:
        pytest.skip("needs faiss")
    import faiss

    return faiss


def test_an_exact_index_finds_what_cosine_finds(faiss, shop, corpus, make_cache, queries, capsys):
    cached = make_cache("q", queries)
    outputs = []
    for stage in ("cosine", "faiss", "faiss"):  # the second time the stored one is read
        flags = ["--top", 3, "--candidates", 6, "--first-stage", stage]
        assert search_words(shop, cached, corpus, *flags) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]
    (path,) = corpus.glob("index-*")
    path.write_bytes(b"nonsense")
    assert search_words(shop, cached, corpus, *flags) == 2
    assert "but it is damaged; remove it, and it is made again" in capsys.readouterr().err


def store_random_vectors(folder, width):
    """17,000 random vectors and their cache: of a MiB they take more than a quarter."""
    vectors = torch.randn(17000, width, generator=torch.Generator().manual_seed(3))
    with CacheWriter(folder, CacheMeta("f", "5", False, len(vectors), width, "float32", 9)) as writer:
        writer.append(vectors, [str(i) for i in range(len(vectors))])
        writer.finish()
    return vectors, VectorCache(folder)


def test_a_compressed_index_of_wide_vectors_has_fewer_lists(faiss, tmp_path):
    _, cache = store_random_vectors(tmp_path / "c", width=256)
    index = load_or_build(cache, 1, 500)  # it learns from 256 vectors
    assert (faiss.extract_index_ivf(index).nlist, index.ntotal) == (6, 17000)


def test_a_compressed_index_finds_most_of_the_nearest(faiss, tmp_path):
    vectors, cache = store_random_vectors(tmp_path / "c", width=4)
    index = load_or_build(cache, 1, 500)
    assert faiss.downcast_index(index).pq.M == 4
    assert not faiss.downcast_index(index).do_polysemous_training  # seconds for each byte of a vector's code
    assert index_path(cache, "IVF265,PQ4").exists()
    found = search.find_by_index(index, vectors[:20], 300)
    model = SimpleNamespace(width=4, outputs=["1"], device=torch.device("cpu"))
    exact = make_finder(model, cache, 5, 500, "cosine", 5).find_candidates(vectors[:20])
    hits = sum(row in found[i].tolist() for i in range(20) for row in exact[i].tolist())
    assert hits >= 90  # of 100; measured 99
