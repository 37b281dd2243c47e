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


def fail_to_build(output):
    with pytest.raises(ValueError, match="stop"), build_folder(output):
        raise ValueError("stop")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_seen_only_when_complete(tmp_path):
    output = tmp_path / "a" / "b" / "data"
    with build_folder(output) as folder:
        (folder / "file").write_text("x")
        assert not output.exists()
    assert (output / "file").read_text() == "x"
    assert names_in(output.parent) == ["data"]


def test_an_earlier_folder_is_replaced_whole(earlier):
    with build_folder(earlier) as folder:
        (folder / "file").write_text("x")
        assert (earlier / "input0").is_dir()
    assert names_in(earlier) == ["file"]
    assert names_in(earlier.parent) == ["data"]


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
    fail_to_build(earlier)
    assert names_in(earlier) == ["input0"]
    assert names_in(earlier.parent) == ["data"]


def leave_aside(output):
    """What a program leaves that is killed between the two renames: the output put aside, and the new folder."""
    aside, made = (output.with_name(f".{output.name}.1234abcd.{kind}") for kind in ("old", "tmp"))
    output.rename(aside)
    made.mkdir()
    (made / "new").write_text("x")


def test_an_output_that_a_killed_program_put_aside_comes_back(earlier):
    leave_aside(earlier)
    fail_to_build(earlier)
    assert names_in(earlier) == ["input0"]
    assert names_in(earlier.parent) == ["data"]


def test_what_was_put_aside_is_removed_where_the_output_is_there(earlier):
    leave_aside(earlier)
    earlier.mkdir()
    (earlier / "newest").write_text("x")
    fail_to_build(earlier)
    assert names_in(earlier) == ["newest"]
    assert names_in(earlier.parent) == ["data"]


def test_another_program_that_puts_its_folder_in_place_is_left_alone(earlier):
    leave_aside(earlier)
    busy = os.open(earlier.with_name(".data.1234abcd.tmp"), os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)
    fail_to_build(earlier)
    assert names_in(earlier.parent) == [".data.1234abcd.old", ".data.1234abcd.tmp"]
    os.close(busy)
