"""A folder appears whole or not at all."""

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
