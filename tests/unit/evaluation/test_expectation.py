import pytest

from muse_plugin.evaluation.expectation import check_interval, judge


def test_score_within_passes():
    verdict = judge("tokenized_bleu", 36.28, 35.7, 36.5)
    assert verdict["passed"]
    assert verdict["sentence"] == "PASS: tokenised BLEU 36.3 lies in the expected interval, 35.7 to 36.5."


@pytest.mark.parametrize("score", [35.7, 36.5])
def test_bounds_belong_to_the_interval(score):
    assert judge("bleu", score, 35.7, 36.5)["passed"]


@pytest.mark.parametrize(
    ("metric", "score", "advice"),
    [
        ("bleu", 35.699, "did training reach its last update"),
        ("bleu", 36.51, "no test sentence in the training data"),
        ("ter", 36.51, "did training reach its last update"),
        ("ter", 35.0, "no test sentence in the training data"),
    ],
)
def test_score_outside_comes_with_advice(metric, score, advice):
    verdict = judge(metric, score, 35.7, 36.5)
    assert not verdict["passed"]
    assert verdict["sentence"].startswith("OUTSIDE: ")
    assert f" {score:.2f} lies outside the expected interval, 35.7 to 36.5; " in verdict["sentence"]
    assert advice in verdict["sentence"]


@pytest.mark.parametrize(("low", "high"), [(36.5, 35.7), (float("nan"), 1.0), (0.0, float("inf"))])
def test_reversed_interval_is_refused(low, high):
    with pytest.raises(ValueError, match=f"--expect must have the lower bound first, but got {low:g} and {high:g}"):
        check_interval(low, high)
