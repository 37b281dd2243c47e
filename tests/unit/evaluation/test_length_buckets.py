import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse_plugin.evaluation.length_buckets import make_buckets, parse_bounds
from muse_plugin_command.flags.evaluate import DEFAULT_BOUNDS


def test_default_is_the_figure_of_the_paper():
    labels = [bucket.label for bucket in make_buckets([], parse_bounds(DEFAULT_BOUNDS))]
    assert labels == ["1-15", "16-30", "31-45", "46-60", "61-75", "76-90", "91-105", ">105"]


def test_bounds_belong_to_the_lower_bucket():
    buckets = make_buckets([3, 4, 0, 5, 6, 99], [3, 5])
    assert [(bucket.label, bucket.members) for bucket in buckets] == [("1-3", [0, 2]), ("4-5", [1, 3]), (">5", [4, 5])]


@given(lengths=st.lists(st.integers(0, 50)), bounds=st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted))
def test_every_sentence_is_in_the_bucket_of_its_length(lengths, bounds):
    buckets = make_buckets(lengths, bounds)
    assert sorted(position for bucket in buckets for position in bucket.members) == list(range(len(lengths)))
    for bucket in buckets:
        for position in bucket.members:
            assert bucket.high is None or lengths[position] <= bucket.high
            assert lengths[position] >= bucket.low or bucket.low == 1


def test_single_length_has_a_plain_label():
    assert [bucket.label for bucket in make_buckets([], [1, 2])] == ["1", "2", ">2"]


@pytest.mark.parametrize("text", ["15,15", "30,15", "0,5", "-3", "", "a", "5,", "1.5"])
def test_nonsense_bounds_are_refused(text):
    with pytest.raises(ValueError, match=f"--length-buckets must be increasing whole numbers.*but got '{text}'"):
        parse_bounds(text)


def test_score_of_a_bucket_is_that_of_its_sentences_alone(run_evaluate, write_log, slow_multi_bleu):
    references = ["a b c d e", "b c d e f g", "x y z a b", "a b c d"]
    hypotheses = ["a b c d x", "b c d e f", "x y z a b", "d c b a"]
    log = write_log("a.log", hypotheses, references, ["a", "a a a a a a a a a", "a a", "a a a a a a a a a"])
    buckets = run_evaluate("--generation-log", log, "--length-buckets", "2,5").json["length_buckets"]["buckets"]
    assert [bucket["num_sentences"] for bucket in buckets] == [2, 0, 2]
    assert buckets[1]["scores"] == [None]
    for bucket, members in ((buckets[0], (0, 2)), (buckets[2], (1, 3))):
        parts = [[lines[i] for i in members] for lines in (hypotheses, references)]
        assert slow_multi_bleu(*parts).startswith(f"BLEU = {bucket['scores'][0]:.2f},")
