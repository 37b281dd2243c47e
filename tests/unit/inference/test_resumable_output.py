"""An output is whole or not there; a program that died at any step continues; all else is refused in a sentence."""

import fcntl
import json
import os
import re
from pathlib import Path

import pytest
from support.dying import Killed, die_at
from support.lines import answer_lines

from muse_plugin.files import json_objects
from muse_plugin.inference import resumable_output as partial_output
from muse_plugin.inference.resumable_output import fingerprint_file

LINES = [f"line {i} ä" for i in range(10)]
SIZE = 3


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


class Worker:
    """Writes lines in capitals and remembers which; dies at one of them."""

    def __init__(self, dies_at=None):
        self.numbers = []
        self.dies_at = dies_at

    def __call__(self, buffer):
        self.numbers += [line.number for line in buffer]
        if self.dies_at in self.numbers:
            raise Killed
        return [line.text.upper() for line in buffer]

    def run(self, source, made_by=None, restart=False):
        target = source.with_name("out.txt")
        answer_lines(self, source, target, SIZE, lambda: made_by or {"--beam": 5}, restart)
        return target.read_text()


def whole(source):
    return "".join(f"{line}\n" for line in source.read_text().upper().split("\n")[:-1])


def stop(source, at=8):
    """Lets a program die at a line; returns where its output is."""
    with pytest.raises(Killed):
        Worker(at).run(source)
    return source.with_name("out.txt.partial")


def names(source):
    return sorted(path.name for path in source.parent.iterdir())


def test_what_is_done_is_kept_and_not_done_again(source):
    partial = stop(source)
    assert partial.read_text() == "".join(f"{line.upper()}\n" for line in LINES[:6])
    assert names(source) == ["in.txt", "out.txt.partial", "out.txt.partial.json"]
    worker = Worker()
    assert worker.run(source) == whole(source)
    assert worker.numbers == [7, 8, 9, 10]
    assert names(source) == ["in.txt", "out.txt"]


def test_an_earlier_output_stays_until_the_new_one_is_whole(source):
    source.with_name("out.txt").write_text("old\n")
    stop(source)
    assert source.with_name("out.txt").read_text() == "old\n"
    assert Worker().run(source) == whole(source)


def test_a_program_that_stops_before_anything_is_done_leaves_nothing(source):
    stop(source, at=1)
    assert names(source) == ["in.txt"]


@pytest.mark.parametrize("rest", [b"LINE 6", b"half a line and \xff\nmore than all that is still to come\n" * 9])
def test_what_follows_the_last_line_on_record_is_cut_off(source, rest):
    with stop(source).open("ab") as file:
        file.write(rest)
    assert Worker().run(source) == whole(source)


DISK = ((os, "fsync"), (os, "replace"), (Path, "unlink"), (json_objects, "open_atomically"))


def test_a_program_that_dies_at_any_step_goes_on_to_the_same_bytes(source):
    with pytest.MonkeyPatch.context() as patch:
        count = die_at(patch, -1, *DISK)
        Worker().run(source)
    steps = count[0]
    assert steps > 20
    for step in range(1, steps + 1):
        source.with_name("out.txt").unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, step, *DISK, also_after=True)
            first = Worker()
            with pytest.raises(Killed):
                first.run(source)
        if source.with_name("out.txt").exists():
            assert source.with_name("out.txt").read_text() == whole(source), f"died at step {step}"
        partial = source.with_name("out.txt.partial.json")
        safe = json.loads(partial.read_text())["lines"] if partial.exists() else 0
        second = Worker()
        if partial.exists() or step < steps:
            assert second.run(source) == whole(source), f"died at step {step}"
            assert second.numbers == list(range(safe + 1, 11)), f"died at step {step}"
            assert names(source) == ["in.txt", "out.txt"], f"died at step {step}"


def test_a_full_disk_leaves_what_was_done(source, monkeypatch):
    fsync = os.fsync
    calls = []

    def fill_up(descriptor):
        calls.append(descriptor)
        if len(calls) > 7:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(OSError, match="No space left on device"):
            Worker().run(source)
    worker = Worker()
    assert worker.run(source) == whole(source)
    assert worker.numbers[0] > 1


@pytest.fixture
def almost_finished(source):
    """A program died when the output had its name, but the description was still there."""
    unlink = Path.unlink

    def die_at_description(path, **flags):
        if path.name.endswith(".json"):
            raise Killed
        unlink(path, **flags)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", die_at_description)
        with pytest.raises(Killed):
            Worker().run(source)
    assert names(source) == ["in.txt", "out.txt", "out.txt.partial.json"]
    return source


def test_a_whole_output_is_not_made_again(almost_finished, capsys):
    worker = Worker()
    assert worker.run(almost_finished) == whole(almost_finished)
    assert worker.numbers == []
    assert "out.txt was whole already: 10 lines." in capsys.readouterr().err
    assert names(almost_finished) == ["in.txt", "out.txt"]


def test_a_whole_output_is_made_again_where_something_has_changed(almost_finished):
    described = almost_finished.with_name("out.txt.partial.json").read_bytes()
    changes = [
        lambda: almost_finished.with_name("out.txt").unlink(),
        lambda: almost_finished.with_name("out.txt").write_text("changed\n"),
        lambda: almost_finished.write_text(almost_finished.read_text() + "one more\n"),
    ]
    for change in changes:
        almost_finished.with_name("out.txt.partial.json").write_bytes(described)
        change()
        assert Worker().run(almost_finished) == whole(almost_finished)
        assert names(almost_finished) == ["in.txt", "out.txt"]


def test_lines_reach_the_disk_before_they_are_described(source, monkeypatch):
    events = []
    fsync, save = os.fsync, partial_output.PartialOutput._save
    partial = source.with_name("out.txt.partial")

    def log_fsync(descriptor):
        if partial.exists() and os.path.samestat(os.fstat(descriptor), partial.stat()):
            events.append(partial.read_text().count("\n"))
        fsync(descriptor)

    def log_save(output, state):
        if state.lines:
            events.append(f"{state.lines} described")
        save(output, state)

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(partial_output.PartialOutput, "_save", log_save)
    Worker().run(source)
    described = [3, "3 described", 6, "6 described", 9, "9 described", 10, "10 described"]
    assert events == described


def test_another_setting_or_input_is_refused_and_restart_begins_anew(source):
    stop(source)
    refused = r"--output must be new or left unfinished by the same command, but \S*out\.txt\.partial was made with "
    way_out = "; give --restart to begin again, or name another --output"
    for made_by, difference in (
        ({"--beam": 4}, "--beam 5 (now 4)"),
        ({"--beam": 5, "--lenpen": 2}, "--lenpen None (now 2)"),
    ):
        with pytest.raises(FileExistsError, match=refused + re.escape(difference + way_out)):
            Worker().run(source, made_by)
    source.write_text(source.read_text().replace("line 2", "lime 2"))
    difference = rf"another --input \(its first 6 lines are not those of \S*in\.txt\){way_out}"
    with pytest.raises(FileExistsError, match=refused + difference):
        Worker().run(source)
    source.write_text("line 0 ä\n")
    with pytest.raises(FileExistsError, match=refused + difference):
        Worker().run(source)
    worker = Worker()
    assert worker.run(source, {"--beam": 4}, restart=True) == "LINE 0 Ä\n"
    assert worker.numbers == [1]


def test_lines_that_were_not_read_yet_may_be_corrected(source):
    stop(source)
    source.write_text(source.read_text().replace("line 7", "corrected") + "one more\n")
    worker = Worker()
    assert worker.run(source) == whole(source)
    assert worker.numbers == [7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("text", "growth", "first"),
    [
        ("a\nb\nc", " and more\nlast\n", 1),  # the line is another now
        ("a\nb\nc\nd", " and more\nlast\n", 4),
        ("a\nb\nc\nd\n", "last\n", 4),  # the buffer is another now, and so are the model's batches
    ],
)
def test_a_last_buffer_that_grows_is_done_again(source, text, growth, first, monkeypatch):
    source.write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(partial_output.PartialOutput, "finish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Worker().run(source)
    source.write_text(text + growth)
    worker = Worker()
    assert worker.run(source) == whole(source)
    assert worker.numbers == list(range(first, source.read_text().count("\n") + 1))


@pytest.mark.parametrize("text", ["", "\n\n\n\n", "a", "a\nb\nc\n"])
def test_short_texts(source, text):
    source.write_text(text)
    assert Worker().run(source) == text.upper() + ("\n" if text == "a" else "")
    assert names(source) == ["in.txt", "out.txt"]


def test_a_whole_output_that_has_no_name_yet_gets_the_lines_that_came_since(source):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace := Replace())
        with pytest.raises(Killed):
            Worker().run(source)
        assert replace.calls > 3
    source.write_text(source.read_text() + "one more\n")
    worker = Worker()
    assert worker.run(source) == whole(source)
    assert worker.numbers == [11]


class Replace:
    """``os.replace`` that dies where the output itself would take its name."""

    def __init__(self):
        self.calls = 0
        self.replace = os.replace

    def __call__(self, before, after):
        self.calls += 1
        if str(after).endswith("out.txt"):
            raise Killed
        self.replace(before, after)


def test_two_programs_at_one_output_are_refused(source):
    def try_it(buffer):
        with pytest.raises(
            ValueError, match=r"one program at a time may write to \S*out\.txt, but another is doing so"
        ):
            Worker().run(source)
        with pytest.raises(ValueError, match="one program at a time"):
            Worker().run(source, restart=True)
        return [line.text.upper() for line in buffer]

    answer_lines(try_it, source, source.with_name("out.txt"), SIZE, lambda: {})
    assert source.with_name("out.txt").read_text() == whole(source)
    assert names(source) == ["in.txt", "out.txt"]


def test_a_lock_that_its_owner_removes_meanwhile_is_not_taken(source, monkeypatch):
    flock = fcntl.flock
    removed = []

    def remove_first(file, flags):
        if not removed:
            removed.append(source.with_name("out.txt.partial.lock"))
            removed[0].unlink()
        flock(file, flags)

    def try_it(buffer):
        with pytest.raises(ValueError, match="one program at a time"):
            Worker().run(source)
        return [line.text.upper() for line in buffer]

    monkeypatch.setattr(fcntl, "flock", remove_first)
    answer_lines(try_it, source, source.with_name("out.txt"), SIZE, lambda: {})
    assert removed
    assert source.with_name("out.txt").read_text() == whole(source)


def test_damaged_files_are_named_with_the_way_out(source):
    partial = stop(source)
    state = source.with_name("out.txt.partial.json")
    kept, described = partial.read_bytes(), state.read_text()
    way_out = "; give --restart to begin again, or name another --output"
    for content in (b"", kept[:-1]):
        partial.write_bytes(content)
        with pytest.raises(
            ValueError,
            match=r"must begin with the 6 lines \(60 bytes\) that were written, but it has \d+ bytes" + way_out,
        ):
            Worker().run(source)
        assert partial.read_bytes() == content
    partial.write_bytes(kept)
    other = json.loads(described)
    for text in ("", "{", "[]", "[" * 100_000, '{"format_version": 1}', json.dumps({**other, "lines": "6"}), "\udcff"):
        state.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(ValueError, match=r"\.json must be as this version of muse_plugin writes it, .*" + way_out):
            Worker().run(source)
    state.unlink()
    with pytest.raises(FileExistsError, match=r"partial must have out\.txt\.partial\.json next to it, .*" + way_out):
        Worker().run(source)
    assert partial.read_bytes() == kept
    assert Worker().run(source, restart=True) == whole(source)


def test_fingerprint_names_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"x" * (3 << 20))
    assert fingerprint_file(tmp_path / "a") == "sha256 e3b0c44298fc1c14"
    assert fingerprint_file(tmp_path / "b") != fingerprint_file(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        fingerprint_file(tmp_path / "c")
