"""What a command writes must be none of what it reads."""

import re

import pytest

from muse_plugin_command.flag_checks import check_apart


@pytest.fixture
def files(tmp_path):
    (tmp_path / "cache").mkdir()
    for name in ("text", "other", "cache/vectors.bin"):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "said"),
    [("text", "text is read too"), ("link", "link is read too"), ("cache/vectors.bin", "cache, which is read")],
)
def test_files_that_are_read_are_not_replaced(files, output, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        check_apart(files / output, None, files / "missing", files / "text", files / "cache")


def test_other_files_are_free(files):
    for output in (None, files / "new", files / "other", files / "cache"):
        check_apart(output, files / "text", files / "missing")
    check_apart(files / "text", files / "cache", None)
