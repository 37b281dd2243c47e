import pytest

from muse_plugin.results.deviation import format_mean, mean_and_deviation


def test_mean_and_sample_deviation():
    assert mean_and_deviation([2.0, 4.0, 9.0]) == (5.0, pytest.approx(13**0.5))
    assert mean_and_deviation([3.5]) == (3.5, None)


def test_deviation_is_written_where_there_are_several_values():
    assert format_mean([2.0, 4.0, 9.0]) == "5.00 ± 3.61"
    assert format_mean([0.0625], 3) == "0.062"
    assert format_mean([]) == ""
