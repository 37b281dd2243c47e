"""Workers are forked where Python would start them in another way by itself."""

import multiprocessing

import pytest

from muse_plugin.fairseq_repairs.forked_workers import REPAIR


@pytest.mark.parametrize(
    ("default", "method", "needed"),
    [
        ("forkserver", "forkserver", True),  # Python 3.14 on Linux
        ("forkserver", "spawn", False),  # somebody wants it that way
        ("fork", "forkserver", False),  # an earlier Python: the same
        ("fork", "fork", False),
        ("spawn", "spawn", False),  # macOS, Windows: there, it is not safe to fork
    ],
)
def test_workers_are_forked_where_linux_would_not(monkeypatch, default, method, needed):
    methods = [method]
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: [default, "fork"])
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: methods[-1])
    monkeypatch.setattr(multiprocessing, "set_start_method", lambda method, force: methods.append(method))
    assert REPAIR.is_needed() == needed
    if needed:
        REPAIR.apply()
        assert methods == [method, "fork"]
        assert not REPAIR.is_needed()
