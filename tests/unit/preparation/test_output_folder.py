"""Nothing that these commands have not made is ever replaced."""

import re

import pytest

from muse_plugin.preparation.output_folder import check_output
from muse_plugin.text.data_record import DataRecord
from muse_plugin.text.text_settings import FILE_NAME, TextSettings, save_texts

ARGUMENTS = {"threshold": 0, "test": ["a"]}


@pytest.fixture
def earlier(tmp_path):
    folder = tmp_path / "data"
    (folder / "input0").mkdir(parents=True)
    record = DataRecord(vocabulary={"threshold": 0, "size": 8, "from": "train"}, arguments=ARGUMENTS)
    save_texts(folder, {"text": (TextSettings("en", subwords="none"), b"")}, record)
    return folder


def test_new_empty_and_equally_made_folders_are_allowed(tmp_path, earlier):
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", ARGUMENTS, overwrite=False)
    check_output(tmp_path / "new", ARGUMENTS, overwrite=False)
    check_output(earlier, ARGUMENTS, overwrite=False)
    check_output(earlier, {"threshold": 3}, overwrite=True)


def test_a_folder_made_with_other_settings_is_refused(earlier):
    message = f"{earlier} was made with others (--threshold was 0 and is 3); name another folder or give --overwrite"
    with pytest.raises(FileExistsError, match=re.escape(message)):
        check_output(earlier, {**ARGUMENTS, "threshold": 3}, overwrite=False)


def test_a_folder_without_settings_is_refused(earlier):
    (earlier / FILE_NAME).unlink()
    message = f"{earlier} holds input0 and no {FILE_NAME} that says how they were made; name another folder or give"
    with pytest.raises(FileExistsError, match=re.escape(message)):
        check_output(earlier, ARGUMENTS, overwrite=False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_anything_else_in_it_is_never_replaced(earlier, overwrite):
    (earlier / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match=re.escape(f"but {earlier} also holds thesis.tex; name another folder")):
        check_output(earlier, ARGUMENTS, overwrite)


def test_a_file_is_no_output_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match=r"--output must name a folder, but .*file is a file; name another"):
        check_output(tmp_path / "file", ARGUMENTS, overwrite=True)
