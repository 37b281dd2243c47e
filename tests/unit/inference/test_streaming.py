"""One answer for each line: to streams at once, to files when all is done, with progress and with what is kept."""

import contextlib
import io
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from support.helpers import parse_flags
from support.lines import answer_lines

from muse_plugin.inference import streaming


def answer(buffer):
    return [f"{line.number} {line.text}" for line in buffer]


def fail():
    raise AssertionError("nothing is kept, so nothing needs to be described")


@pytest.fixture
def streams(monkeypatch):
    """Standard input and output of bytes, and what had been written at each flush."""

    class Sink(io.BytesIO):
        def flush(self):
            flushed.append(self.getvalue().count(b"\n"))

    flushed = []
    sink = Sink()

    def give(content, is_terminal=False):
        source = io.BytesIO(content)
        source.isatty = lambda: is_terminal
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=sink))
        return sink, flushed

    return give


def test_a_terminal_gets_each_answer_at_once(streams, capsys):
    sink, flushed = streams(b"Wo?\nDa\n\n", is_terminal=True)
    answer_lines(answer, None, None, 100, fail)
    assert flushed[:3] == [1, 2, 3]
    assert sink.getvalue() == b"1 Wo?\n2 Da\n3 \n"
    assert capsys.readouterr().err == "Type a sentence and press Enter; Ctrl-D ends.\n"


def test_standard_streams_get_answers_buffer_by_buffer_and_no_word_more(streams, capsys):
    sink, flushed = streams(b"a\nb\nc\nd\ne")
    answer_lines(answer, None, None, 2, fail)
    assert flushed[:3] == [2, 4, 5]
    assert sink.getvalue() == b"1 a\n2 b\n3 c\n4 d\n5 e\n"
    assert capsys.readouterr().err == ""


def test_a_file_to_a_pipe_and_a_pipe_to_a_file_are_done_in_one_go(tmp_path, streams):
    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    answer_lines(answer, tmp_path / "in.txt", tmp_path / "pipe", 5, fail)
    reader.join(timeout=30)
    assert received == [b"1 a\n2 b\n"]
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"c\n"))
    writer.start()
    answer_lines(answer, tmp_path / "pipe", tmp_path / "out.txt", 5, fail)
    writer.join(timeout=30)
    assert (tmp_path / "out.txt").read_bytes() == b"1 c\n"
    streams(b"d\n")
    answer_lines(answer, None, tmp_path / "out.txt", 5, fail)
    assert (tmp_path / "out.txt").read_bytes() == b"1 d\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt", "pipe"]


@pytest.fixture
def bars(monkeypatch):
    """What every bar of progress was told."""
    made = []

    class Bar(streaming.tqdm):
        def __init__(self, *args, **settings):
            made.append(settings | {"steps": []})
            super().__init__(*args, **{**settings, "disable": True})

        def update(self, n=1):
            made[-1]["steps"].append(n)

    monkeypatch.setattr(streaming, "tqdm", Bar)
    return made


def test_progress_starts_at_what_is_done_and_knows_the_total(tmp_path, bars, capsys, caplog):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"a\nb\nc\nd\ne\n\xff\ng")

    def stop_at_fifth(buffer):
        if buffer[0].number == 5:
            raise KeyboardInterrupt
        return answer(buffer)

    with pytest.raises(KeyboardInterrupt):
        answer_lines(stop_at_fifth, source, target, 2, dict)
    assert f"4 lines are kept in {target}.partial; the same command continues after them." in capsys.readouterr().err
    caplog.clear()
    answer_lines(answer, source, target, 2, dict)
    assert [(bar["total"], bar["initial"], bar["steps"]) for bar in bars] == [(7, 0, [2, 2]), (7, 4, [2, 1])]
    assert all(bar["disable"] is None for bar in bars), "shown where standard error is a terminal"
    error = capsys.readouterr().err
    assert f"4 lines are done already and are in {target}.partial; continuing after them." in error
    assert f"{target}: 7 lines, 3 now in 0." in error
    assert "lines per second." in error
    assert caplog.messages == ["line 6 is not valid UTF-8; its invalid bytes were replaced by U+FFFD."]
    assert target.read_text() == "1 a\n2 b\n3 c\n4 d\n5 e\n6 \ufffd\n7 g\n"


def test_buffers_have_the_same_borders_after_an_interruption(tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{i}\n" for i in range(23)))
    for stop_at in (1, 7, 8, 22, None):
        seen = []

        def stop(buffer, stop_at=stop_at, seen=seen):
            seen.append([line.number for line in buffer])
            if stop_at in seen[-1]:
                raise KeyboardInterrupt
            return answer(buffer)

        with contextlib.suppress(KeyboardInterrupt):
            answer_lines(stop, source, target, 5, dict)
        assert all(numbers == [*range(numbers[0], min(numbers[0] + 5, 24))] for numbers in seen)
        assert all(numbers[0] % 5 == 1 for numbers in seen)
    assert seen == [[21, 22, 23]]
    assert target.read_text() == "".join(f"{i + 1} {i}\n" for i in range(23))


@pytest.mark.parametrize(("words", "missing"), [(["--output", "b"], "--input"), (["--input", "a"], "--output")])
def test_restart_without_files_is_refused(tmp_path, monkeypatch, words, missing):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("")
    streaming.check_stream_arguments(parse_flags("translate", "--path", "model", *words))
    with pytest.raises(ValueError, match=f"--restart needs --input FILE and --output FILE, but {missing} is not given"):
        streaming.check_stream_arguments(parse_flags("translate", "--path", "model", *words, "--restart"))


@pytest.mark.parametrize("ending", ["", ".partial", ".partial.json", ".partial.lock"])
def test_the_input_is_none_of_the_files_that_the_output_goes_through(tmp_path, ending):
    (tmp_path / f"out{ending}").write_text("all there is\n")
    words = ["--input", str(tmp_path / f"out{ending}"), "--output", str(tmp_path / "out"), "--restart"]
    with pytest.raises(ValueError, match=rf"--output must not replace what is read, but .*out{ending} is read too"):
        streaming.check_stream_arguments(parse_flags("translate", "--path", "model", *words))
