"""``muse-plugin evaluate --length-intervals``: 95% intervals of the scores by source length."""

import random

import numpy as np
import pytest

from muse_plugin.evaluation.length_plot import draw_length_plot
from muse_plugin.evaluation.scores import make_measures
from muse_plugin.evaluation.significance import estimate_interval
from muse_plugin.evaluation.text_forms import TextForms

WORDS = "the cat sat on a mat and saw the dog run to it".split()


def make_text(count, seed):
    generator = random.Random(seed)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(count)]
    hypotheses = [" ".join(w if generator.random() < 0.8 else "so" for w in line.split()) for line in references]
    return hypotheses, references


@pytest.fixture
def measured():
    hypotheses, references = make_text(12, 3)
    measure = make_measures(TextForms(references, None))[0]
    return measure, measure.collect(TextForms(hypotheses, None)), hypotheses, references


def test_an_interval_holds_the_middle_of_resampled_scores(measured):
    measure, statistics, *_ = measured
    found = estimate_interval(measure, statistics, 100, 7)
    chosen = np.random.default_rng(7).choice(12, size=(100, 12), replace=True)
    scores = sorted(measure.compute([statistics[i] for i in row]).score for row in chosen.tolist())
    assert found == pytest.approx((scores[2], scores[97]), abs=1e-4)
    assert found[0] < measure.compute(statistics).score < found[1]
    assert estimate_interval(measure, statistics, 100, 8) != found


def test_equal_sentences_have_an_interval_without_width(measured):
    measure, statistics, *_ = measured
    found = estimate_interval(measure, statistics[:1] * 5, 40, 1)
    score = measure.compute(statistics[:1]).score
    assert found == pytest.approx((score, score), abs=1e-4)


def test_buckets_are_resampled_by_themselves(run_evaluate, write_log, measured):
    measure, statistics, hypotheses, references = measured
    lengths = [2, 12, 12, 2, 2, *[20] * 7]
    log = write_log("a.log", hypotheses, references, [" ".join("a" * length) for length in lengths])
    words = ["--generation-log", log, "--length-buckets", "5,9,15", "--length-intervals", "--num-resamples", 50]
    buckets = run_evaluate(*words, "--seed", 2).json["length_buckets"]["buckets"]
    for bucket, members in ((buckets[0], (0, 3, 4)), (buckets[2], (1, 2))):
        low, high = estimate_interval(measure, [statistics[i] for i in members], 50, 2)
        assert bucket["intervals_95"] == [[round(low, 4), round(high, 4)]]
    assert buckets[1]["intervals_95"] == [None]


def test_the_command_writes_intervals_of_both_systems(run_evaluate, write_log, tmp_path):
    hypotheses, references = make_text(30, 5)
    worse, _ = make_text(30, 6)
    logs = [write_log("a.log", hypotheses, references, references), write_log("b.log", worse, references, references)]
    words = ["--generation-log", logs[0], "--length-buckets", "6,9", "--versus", logs[1], "--num-resamples", 50]
    plain = run_evaluate(*words).json["length_buckets"]["buckets"]
    assert all("intervals_95" not in bucket for bucket in plain)
    done = run_evaluate(*words, "--length-intervals", "--plot", tmp_path / "a.png")
    result = done.json["length_buckets"]
    assert len(result["buckets"]) == 3
    for bucket in result["buckets"]:
        for scores, intervals in (("scores", "intervals_95"), ("versus_scores", "versus_intervals_95")):
            (score,), ((low, high),) = bucket[scores], bucket[intervals]
            assert 0 <= low <= high <= 100
            assert low - 8 < score < high + 8
            assert f"{score:.2f} ({low:.2f} to {high:.2f})" in done.out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_resampling_can_be_set_without_a_second_system(run_evaluate, write_log):
    hypotheses, references = make_text(20, 5)
    log = write_log("a.log", hypotheses, references, references)
    words = ["--generation-log", log, "--length-buckets", "8", "--length-intervals", "--num-resamples", 20]
    first, again, other = (
        run_evaluate(*words, "--seed", seed).json["length_buckets"]["buckets"][0]["intervals_95"] for seed in (3, 3, 4)
    )
    assert first == again != other
    with pytest.raises(
        ValueError, match="--num-resamples works only together with --versus or --length-intervals; add"
    ):
        run_evaluate("--generation-log", log, "--num-resamples", 20)


def test_intervals_need_sources(run_evaluate, write_log):
    log = write_log("a.log", *make_text(5, 1))
    with pytest.raises(ValueError, match="--length-intervals needs source sentences, but there are none"):
        run_evaluate("--generation-log", log, "--length-intervals")


@pytest.fixture
def draw(tmp_path, drawn):
    """Draws buckets and returns the error bars of each system, and the legend."""

    def draw_buckets(names, *columns):
        keys = ("low", "high", "num_sentences", "scores", "intervals_95", "versus_scores", "versus_intervals_95")
        ranges = [(1, 5, 5), (6, 9, 0), (10, None, 2)]
        rows = [(*about, *row) for about, row in zip(ranges, zip(*columns, strict=True), strict=True)]
        buckets = [dict(zip(keys, row, strict=False)) for row in rows]
        lengths = {"unit": "words", "score": "bleu", "buckets": buckets}
        draw_length_plot(tmp_path / "a.svg", lengths, names)
        upper = drawn[0].axes[0]
        bars = [container.lines[2][0].get_segments() for container in upper.containers if container.has_yerr]
        return bars, [text.get_text() for text in upper.get_legend().get_texts()]

    return draw_buckets


def test_error_bars_are_the_intervals_of_a_single_file(draw):
    bars, legend = draw(
        ["A", "B"],
        [[30.0], [None], [20.0]],
        [[(28.0, 33.0)], [None], [(19.0, 24.0)]],
        [[25.0], [None], [22.0]],
        [[(24.0, 26.0)], [None], [(20.0, 23.0)]],
    )
    assert [segment[:, 1].tolist() for segment in bars[0]] == [[28.0, 33.0], [19.0, 24.0]]
    assert [segment[:, 1].tolist() for segment in bars[1]] == [[24.0, 26.0], [20.0, 23.0]]
    assert bars[0][0][0, 0] < bars[1][0][0, 0]  # side by side
    assert legend == ["A (95% interval)", "B (95% interval)"]


def test_several_files_keep_their_standard_deviation(draw):
    scores = [[30.0, 32.0], [None, None], [20.0, 20.0]]
    bars, legend = draw(["A"], scores, [[(28.0, 33.0), (29.0, 35.0)], [None, None], [(19.0, 24.0), (19.0, 24.0)]])
    assert legend == ["A (mean ± sd of 2)"]
    assert bars[0][0][:, 1].tolist() == pytest.approx([31.0 - 2**0.5, 31.0 + 2**0.5])


def test_a_single_file_without_intervals_has_no_error_bars(draw):
    assert draw(["A"], [[30.0], [None], [20.0]]) == ([], ["A"])
