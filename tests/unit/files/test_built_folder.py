"""A folder appears whole or not at all."""

import fcntl
import os

import pytest

from muse_plugin.files.built_folder import build_folder


@pytest.fixture
def earlier(tmp_path):
    folder = tmp_path / "data"
    (folder / "input0").mkdir(parents=True)
    return folder


def test_the_folder_is_seen_only_when_complete(tmp_path):
    output = tmp_path / "a" / "b" / "data"
    with build_folder(output) as folder:
        (folder / "file").write_text("x")
        assert not output.exists()
    assert (output / "file").read_text() == "x"
    assert [path.name for path in output.parent.iterdir()] == ["data"]


def test_an_earlier_folder_is_replaced_whole(earlier):
    with build_folder(earlier) as folder:
        (folder / "file").write_text("x")
        assert (earlier / "input0").is_dir()
    assert [path.name for path in earlier.iterdir()] == ["file"]
    assert [path.name for path in earlier.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_when_it_fails(tmp_path, error):
    def fail():
        with build_folder(tmp_path / "a" / "b") as folder:
            (folder / "file").write_text("x")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_folder_is_untouched_when_it_fails(earlier):
    with pytest.raises(ValueError, match="stop"), build_folder(earlier):
        raise ValueError("stop")
    assert sorted(path.name for path in earlier.iterdir()) == ["input0"]
    assert [path.name for path in earlier.parent.iterdir()] == ["data"]


def leave_aside(output):
    """What a program leaves that is killed between the two renames: the output put aside, and the new folder."""
    aside, made = (output.with_name(f".{output.name}.1234abcd.{kind}") for kind in ("old", "tmp"))
    output.rename(aside)
    made.mkdir()
    (made / "new").write_text("x")


def test_an_output_that_a_killed_program_put_aside_comes_back(earlier):
    leave_aside(earlier)
    with pytest.raises(ValueError, match="stop"), build_folder(earlier):
        raise ValueError("stop")
    assert [path.name for path in earlier.iterdir()] == ["input0"]
    assert [path.name for path in earlier.parent.iterdir()] == ["data"]


def test_what_was_put_aside_is_removed_where_the_output_is_there(earlier):
    leave_aside(earlier)
    earlier.mkdir()
    (earlier / "newest").write_text("x")
    with pytest.raises(ValueError, match="stop"), build_folder(earlier):
        raise ValueError("stop")
    assert [path.name for path in earlier.iterdir()] == ["newest"]
    assert [path.name for path in earlier.parent.iterdir()] == ["data"]


def test_another_program_that_puts_its_folder_in_place_is_left_alone(earlier):
    leave_aside(earlier)
    busy = os.open(earlier.with_name(".data.1234abcd.tmp"), os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)
    with pytest.raises(ValueError, match="stop"), build_folder(earlier):
        raise ValueError("stop")
    assert sorted(path.name for path in earlier.parent.iterdir()) == [".data.1234abcd.old", ".data.1234abcd.tmp"]
    os.close(busy)
