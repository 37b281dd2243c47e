"""A lock belongs to one process at a time."""

import os

import pytest

from muse_plugin.files.locks import take_lock, try_lock


def test_a_second_owner_is_refused_until_the_first_closes(tmp_path):
    path = tmp_path / "lock"
    with take_lock(path, "out.txt", "name another file"):
        with pytest.raises(
            ValueError,
            match=r"one program at a time may write to out\.txt, but another is doing so; wait for it or name another",
        ):
            take_lock(path, "out.txt", "name another file")
        with path.open("rb") as file:
            assert not try_lock(file)
    take_lock(path, "out.txt", "name another file").close()


def test_a_removed_lock_is_made_again(tmp_path):
    path = tmp_path / "lock"
    first = take_lock(path, "x", "wait")
    path.unlink()
    with take_lock(path, "x", "wait") as second:
        assert os.path.samestat(os.fstat(second.fileno()), path.stat())
    first.close()
