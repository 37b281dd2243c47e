"""``muse-plugin view`` as a command: its flags, its start, its end."""

import functools
import json
import os
import signal
import threading
import urllib.request
import webbrowser

import pytest
from support.helpers import parse_flags

from muse_plugin.view import view
from muse_plugin.view.inspect import Inspector
from muse_plugin.view.server import ViewServer
from muse_plugin_command import cli

TIMEOUT = 20
parse = functools.partial(parse_flags, "view", "--path", "model")


class Described:
    def describe(self):
        return {"beam": 5}


@pytest.fixture
def loaded(monkeypatch):
    """What the model was loaded with; it is none."""
    calls = []

    def load(*values, **settings):
        calls.append((*map(str, values), settings))
        return Described()

    monkeypatch.setattr(Inspector, "load", load)
    return calls


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def opened(monkeypatch):
    """The address that a browser was asked to open, once it was."""
    addresses, done = [], threading.Event()
    monkeypatch.setattr(webbrowser, "open", lambda url: (addresses.append(url), done.set()))
    return addresses, done


def interrupt_when_served(monkeypatch, before=lambda: None):
    """Sends Ctrl-C once the page is served; returns what was asked and answered before."""
    answers = []
    serve = ViewServer.serve_forever

    def watch(server):
        def visit():
            with urllib.request.urlopen(f"{server.url}model", timeout=TIMEOUT) as response:
                answers.append((server.url, json.load(response)))
            before()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=visit).start()
        serve(server, poll_interval=0.01)

    monkeypatch.setattr(ViewServer, "serve_forever", watch)
    return answers


def test_ctrl_c_ends_without_a_trace(loaded, interrupts, opened, monkeypatch, capsys):
    answers = interrupt_when_served(monkeypatch)
    assert view.run(parse("--port", "0", "--no-browser")) == 0
    ((url, answer),) = answers
    assert answer == {"beam": 5}
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"model can be viewed at {url} (Ctrl-C ends)\n", "")
    assert loaded == [("model", "None", "5", {"beam": 5, "lenpen": 1.0, "cpu": False})]
    assert opened[0] == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=TIMEOUT)


def test_a_browser_is_opened_where_there_is_a_screen(loaded, interrupts, opened, monkeypatch):
    monkeypatch.setattr(view, "_has_screen", lambda: True)
    addresses, done = opened
    waited = []
    answers = interrupt_when_served(monkeypatch, before=lambda: waited.append(done.wait(TIMEOUT)))
    flags = ["--port", "0", "--beam", "7", "--nbest", "3", "--lenpen", "0.5", "--data", "data", "--cpu"]
    assert view.run(parse(*flags)) == 0
    assert waited == [True]
    assert addresses == [answers[0][0]]
    assert loaded == [("model", "data", "3", {"beam": 7, "lenpen": 0.5, "cpu": True})]


def test_no_browser_is_opened_without_a_screen(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not view._has_screen()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert view._has_screen()
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr("sys.platform", "darwin")
    assert view._has_screen()


def test_ctrl_c_while_a_sentence_is_translated_lets_it_end(loaded, interrupts, monkeypatch):
    translating, is_over = threading.Event(), threading.Event()
    ended = []

    class SlowInspector(Described):
        def inspect(self, text):
            translating.set()
            is_over.wait(TIMEOUT)
            ended.append(text)
            return {}

    monkeypatch.setattr(Inspector, "load", lambda *_, **__: SlowInspector())

    def start_translating():
        url = interrupts_at[0][0]
        request = urllib.request.Request(f"{url}translate", b'{"text": "a"}', {"Content-Type": "application/json"})
        threading.Thread(target=lambda: urllib.request.urlopen(request, timeout=TIMEOUT).read()).start()
        assert translating.wait(TIMEOUT)

    interrupts_at = interrupt_when_served(monkeypatch, before=start_translating)
    wait = ViewServer.wait_for_translation

    def end_and_wait(server, seconds):
        is_over.set()
        wait(server, seconds)
        assert ended == ["a"]

    monkeypatch.setattr(ViewServer, "wait_for_translation", end_and_wait)
    assert view.run(parse("--port", "0", "--no-browser")) == 0
    assert ended == ["a"]


def test_ctrl_c_while_the_model_is_loaded_gives_the_usual_exit_code(monkeypatch, interrupts):
    monkeypatch.setattr(Inspector, "load", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    assert view.run(parse("--port", "0")) == 130


def test_run_raises_error_when_nbest_is_above_beam():
    with pytest.raises(
        ValueError,
        match=r"^--nbest must be at most --beam, which finds no more, but got --nbest 6 and --beam 5; raise --beam\.$",
    ):
        view.run(parse("--nbest", "6"))


@pytest.mark.parametrize("flag", ["--beam", "--nbest"])
def test_run_raises_error_when_a_count_is_not_positive(flag):
    with pytest.raises(ValueError, match=rf"^{flag} must be at least 1, but got 0\.$"):
        view.run(parse(flag, "0"))


def test_a_missing_model_is_one_sentence(tmp_path, capsys):
    assert cli.main(["view", "--path", str(tmp_path / "nowhere"), "--port", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("muse-plugin view: error: --path must name a checkpoint or a folder with one, but ")
    assert printed.err.count("\n") == 1
