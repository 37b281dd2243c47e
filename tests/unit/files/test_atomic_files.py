import os
import subprocess
import threading
from pathlib import Path

import pytest
from support.helpers import REPOSITORY
from support.warm_python import find_python

from muse_plugin.files.atomic_files import open_atomically


def test_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with open_atomically(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def interrupt():
        with open_atomically(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_named_pipe_is_written_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    with open_atomically(path) as file:
        file.write(b"text")
    reader.join(timeout=30)
    assert received == [b"text"]
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_an_open_stream_is_continued_where_it_stands(tmp_path, name):
    with (tmp_path / "a.txt").open("wb", buffering=0) as stream:
        stream.write(b"before, ")
        with open_atomically(name.format(stream.fileno())) as file:
            file.write(b"text, ")
        stream.write(b"after")
    assert (tmp_path / "a.txt").read_bytes() == b"before, text, after"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_standard_output_in_a_file_is_not_replaced(tmp_path):
    code = "from muse_plugin.files.atomic_files import open_atomically as open\n"
    code += "with open('/dev/stdout') as file: file.write(b'text ')"
    with (tmp_path / "a.txt").open("wb", buffering=0) as stream:
        subprocess.run([find_python(), "-c", code], cwd=REPOSITORY, stdout=stream, check=True)
        stream.write(b"after")
    assert (tmp_path / "a.txt").read_bytes() == b"text after"
    assert Path("/dev/stdout").is_symlink()


def test_folder_and_missing_folder_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError), open_atomically(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent; create it first"):
        open_atomically(tmp_path / "absent" / "a.txt").__enter__()


def test_a_fault_of_the_system_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / ("a" * 256)
    with pytest.raises(OSError, match="too long") as caught:
        open_atomically(path).__enter__()  # before the work that it is for
    assert caught.value.filename == str(path)
    assert not os.listdir(tmp_path)
