"""``muse-plugin evaluate --length-score sentence``: the quantity of the MUSE paper's Figure 7."""

import math
from collections import Counter

import pytest

from muse_plugin.evaluation.bleu import make_tokenized_bleu
from muse_plugin.evaluation.sentence_bleu import compute_sentence_bleu

REFERENCE = "the cat is on the red mat ."
# By hand: matches and n-grams of one to four words, and of which lengths the brevity penalty is.
BY_HAND = [
    ("the cat is on the red mat .", [(8, 8), (7, 7), (6, 6), (5, 5)], 1),
    ("the cat sat on the mat .", [(6, 7), (3, 6), (0.1, 5), (0.1, 4)], math.exp(1 - 8 / 7)),
    ("a cat is on a red mat . . .", [(6, 10), (4, 9), (2, 8), (0.1, 7)], 1),
    ("cat mat", [(2, 2), (0.1, 1), (0.1, 1), (0.1, 1)], math.exp(1 - 8 / 2)),
    ("dogs bark", [(0, 2), (0, 1), (0, 1), (0, 1)], 1),
    ("", [(0, 1), (0, 1), (0, 1), (0, 1)], 1),
]


def by_hand(precisions, brevity):
    return 100 * brevity * math.prod(match / total for match, total in precisions) ** 0.25


def slow_sentence_bleu(hypothesis, reference):
    """Written down from Chen and Cherry 2014, without sacreBLEU."""
    words, expected = hypothesis.split(), reference.split()
    logarithms = []
    for n in range(1, 5):
        grams, known = (
            Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)) for tokens in (words, expected)
        )
        matches = (grams & known).total()
        if n == 1 and matches == 0:
            return 0.0
        logarithms.append(math.log((matches or 0.1) / max(1, grams.total())))
    brevity = 1 if len(words) > len(expected) else math.exp(1 - len(expected) / len(words))
    return 100 * brevity * math.exp(sum(logarithms) / 4)


@pytest.mark.parametrize(("hypothesis", "precisions", "brevity"), BY_HAND)
def test_sentences_have_the_scores_of_a_count_by_hand(hypothesis, precisions, brevity):
    (counts,) = make_tokenized_bleu([REFERENCE])._extract_corpus_statistics([hypothesis], None)
    expected = by_hand(precisions, brevity)
    assert compute_sentence_bleu(counts) == pytest.approx(expected)
    assert slow_sentence_bleu(hypothesis, REFERENCE) == pytest.approx(expected)


@pytest.fixture
def log(write_log):
    hypotheses = [hypothesis for hypothesis, *_ in BY_HAND]
    sources = [" ".join("a" * length) for length in (3, 3, 3, 9, 9, 30)]
    return write_log("a.log", hypotheses, [REFERENCE] * 6, sources)


def test_buckets_have_the_mean_of_their_sentences(run_evaluate, log):
    lengths = ["--length-buckets", "5,15,20"]
    outcome = run_evaluate("--generation-log", log, "--length-score", "sentence", *lengths)
    found = outcome.json["length_buckets"]
    assert found["score"] == "mean_sentence_bleu"
    scores = [by_hand(*rest) for _, *rest in BY_HAND]
    expected = [sum(scores[:3]) / 3, sum(scores[3:5]) / 2, None, scores[5]]
    assert [bucket["scores"][0] for bucket in found["buckets"]] == [
        None if value is None else pytest.approx(value, abs=1e-4) for value in expected
    ]
    assert "\nmean sentence BLEU by source length, as in the MUSE paper, Figure 7\n" in outcome.out

    corpus = run_evaluate("--generation-log", log, "--length-score", "corpus", *lengths)
    assert corpus.json["length_buckets"]["score"] == "tokenized_bleu"
    assert "\ntokenised BLEU by source length, of all sentences together\n" in corpus.out
    assert corpus.json["length_buckets"] == run_evaluate("--generation-log", log, *lengths).json["length_buckets"]
    assert abs(corpus.json["length_buckets"]["buckets"][0]["scores"][0] - expected[0]) > 1
    assert corpus.json["scores"] == outcome.json["scores"]  # those of the whole set stay what they are


def test_intervals_and_figures_are_of_the_chosen_score(run_evaluate, log, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    words = ["--generation-log", log, "--length-buckets", "5", "--length-score", "sentence", "--length-intervals"]
    found = run_evaluate(*words, "--plot", tmp_path / "a.svg", "--versus", log).json["length_buckets"]["buckets"][0]
    ((low, high),) = found["intervals_95"]
    scores = [by_hand(*rest) for _, *rest in BY_HAND[:3]]
    assert min(scores) - 1e-3 <= low < found["scores"][0] < high <= max(scores) + 1e-3
    assert found["versus_scores"] == found["scores"]
    assert "mean sentence BLEU" in (tmp_path / "a.svg").read_text()


def test_the_score_by_length_needs_sources(run_evaluate, write_log):
    log = write_log("a.log", ["a b"], ["a b"])
    with pytest.raises(ValueError, match="--length-score needs source sentences, but there are none"):
        run_evaluate("--generation-log", log, "--length-score", "sentence")
