import pytest

from muse_plugin.results.deviation import mean_and_deviation


def test_mean_and_sample_deviation():
    assert mean_and_deviation([2.0, 4.0, 9.0]) == (5.0, pytest.approx(13**0.5))
    assert mean_and_deviation([3.5]) == (3.5, None)
