import pytest
import torch

from muse_plugin.benchmark import measurement
from muse_plugin.benchmark.measurement import Measurement, Spread, measure_memory, measure_time, summarise

CPU = torch.device("cpu")


def test_contestants_run_in_turn_after_their_warm_up(monkeypatch):
    now, calls = [0.0], []

    def make_run(name, seconds):
        def run():
            calls.append(name)
            now[0] += seconds

        return run

    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])
    seconds = measure_time({"a": make_run("a", 1.0), "b": make_run("b", 3.0)}, CPU, rounds=3, warmups=2)
    assert calls == ["a", "b"] * 5
    assert seconds == {"a": [1.0] * 3, "b": [3.0] * 3}
    # 8 seconds of rounds and warm-up have passed when the third round would begin.
    seconds = measure_time({"a": make_run("a", 1.0), "b": make_run("b", 3.0)}, CPU, 9, warmups=0, max_seconds=7)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}
    seconds = measure_time({"a": make_run("a", 1.0)}, CPU, 9, warmups=1, max_seconds=0)
    assert seconds == {"a": [1.0]}


def test_median_and_quartiles():
    assert summarise([1.0, 2.0, 3.0, 4.0, 100.0]) == Spread(3.0, 2.0, 4.0)
    assert summarise([4.0, 2.0]) == Spread(3.0, 2.0, 4.0)
    assert summarise([5.0]) == Spread(5.0, 5.0, 5.0)


def test_ratio_is_taken_round_by_round():
    # Both slow down in the second round: the ratio does not notice.
    measured = Measurement({"length": 5}, "a", {"a": [2.0, 20.0, 2.0], "b": [1.0, 10.0, 1.0], "c": [4.0, 40.0, 1.0]})
    assert measured.ratio("b") == Spread(2.0, 2.0, 2.0)
    assert measured.ratio("c").median == 0.5
    assert measured.ratio("c", "b").median == 0.25
    assert measured.spread("a").median == 2.0


def test_memory_is_what_is_held_at_the_highest_point():
    x = torch.ones(1000, 1000)  # 4 MB, held before

    def two_at_a_time():
        y = x + 1
        z = y + 1
        del y
        return z + 1, z.sum()

    def with_a_graph():
        leaf = x.clone().requires_grad_()  # its gradient is the third
        (leaf * 2).exp().sum().backward()

    peaks = measure_memory([("two", two_at_a_time), ("graph", with_a_graph)], CPU)
    assert peaks["two"][0] == pytest.approx(8e6, rel=1e-3)
    assert peaks["graph"][0] >= 12e6
    assert peaks["graph"][0] <= 16.1e6


def test_columns_tell_tables_apart():
    one = Measurement({"length": 5}, "a", {"a": [1.0], "b": [1.0]})
    assert one.columns == Measurement({"length": 9}, "a", {"a": [2.0], "b": [1.0]}).columns
    assert one.columns != Measurement({"length": 5}, "a", {"a": [1.0]}).columns
    assert one.columns != Measurement({"length": 5}, "a", {"a": [1.0], "b": [1.0]}, "bytes").columns
