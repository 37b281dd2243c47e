"""``muse-plugin serve`` and ``view`` as commands: their flags, their start, their end."""

import functools
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from support.helpers import REPOSITORY, parse_flags
from support.http import wait_until
from support.translation_models import GERMAN
from support.view_models import make_model_folder
from support.warm_python import find_python

from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator
from muse_plugin.serve import serve, view
from muse_plugin_command import cli

SENTENCES = GERMAN[:3]
TIMEOUT = 60  # seconds, for a machine that is busy
parse = functools.partial(parse_flags, "view", "--path", "model")
parse_serve = functools.partial(parse_flags, "serve", "--path", "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model_folder(tmp_path_factory.mktemp("model"))


class Command:
    """A command in a process of its own."""

    def __init__(self, *words, port=0, **environment):
        code = "import sys; from muse_plugin_command import cli; sys.exit(cli.main(sys.argv[1:]))"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [find_python(), "-c", code, *map(str, words), "--port", str(port), "--cpu"]
        self.process = subprocess.Popen(words, cwd=REPOSITORY, text=True, env={**os.environ, **environment}, **pipes)
        self.line = self.process.stdout.readline()
        self.url = re.search(r"http://127\.0\.0\.1:\d+/", self.line)[0]

    def end(self, how):
        """Returns the exit code and what it said."""
        self.process.send_signal(how)
        try:
            return self.process.communicate(timeout=TIMEOUT), self.process.returncode
        finally:
            self.process.kill()


def read(url, path):
    with urllib.request.urlopen(url + path, timeout=TIMEOUT) as response:
        return response.read().decode()


def get(url, path, **fields):
    body = json.dumps(fields).encode() if fields else None
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        return json.load(response)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_what_translate_prints_until_it_is_told_to_end(folder, how):
    command = Command("serve", "--path", folder, "--split", "lines", "--max-waiting", 500)
    assert command.line == f"{folder} is served at {command.url} (Ctrl-C ends)\n"
    expected = [Translator.load(folder, cpu=True).translate_lines([Line(1, text)])[0] for text in SENTENCES]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: get(command.url, "translate", q=SENTENCES[i % 3], target="en"), range(24)))
        assert [answer["translatedText"] for answer in answers] == expected * 8
        texts = get(command.url, "translate", q=SENTENCES, target="en")["translatedText"]
        assert texts == expected
        last = [pool.submit(get, command.url, "translate", q=SENTENCES[0], target="en") for _ in range(4)]
        time.sleep(0.1)
        (output, error), code = command.end(how)
    assert (output, code) == ("", 0)
    assert "Traceback" not in error
    assert [answer.result()["translatedText"] for answer in last] == expected[:1] * 4
    with pytest.raises(OSError, match="refused"):
        get(command.url, "health")


def test_after_kill_9_the_same_port_is_served_again_and_nothing_is_left(exported, tmp_path):
    before = sorted(exported.iterdir())
    killed = Command("serve", "--path", exported, "--batch-size", 1, TMPDIR=str(tmp_path))
    assert get(killed.url, "translate", q=SENTENCES[0], target="en")["translatedText"]
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(get, killed.url, "translate", q="\n".join(SENTENCES * 300), target="en")
        wait_until(lambda: "muse_plugin_waiting_sentences 0.0" not in read(killed.url, "metrics"))
        killed.end(signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            lost.result(TIMEOUT)
    again = Command("serve", "--path", exported, port=urlsplit(killed.url).port, TMPDIR=str(tmp_path))
    assert again.url == killed.url
    assert get(again.url, "translate", q=SENTENCES[0], target="en")["translatedText"]
    assert again.end(signal.SIGTERM)[1] == 0
    assert sorted(exported.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


def test_view_is_that_page(folder):
    command = Command("view", "--path", folder, "--beam", 3, "--nbest", 2, "--no-browser")
    assert command.line == f"{folder} can be viewed at {command.url} (Ctrl-C ends)\n"
    described = get(command.url, "model")
    assert (described["beam"], described["nbest"]) == (3, 2)
    assert get(command.url, "inspect", text=SENTENCES[0])["hypotheses"]
    assert get(command.url, "translate", q=SENTENCES[0], target="en")["translatedText"]
    assert command.end(signal.SIGINT)[1] == 0


def test_a_browser_is_opened_where_there_is_a_screen(monkeypatch, capsys):
    opened, done = [], threading.Event()
    monkeypatch.setattr(webbrowser, "open", lambda url: (opened.append(url), done.set()))
    monkeypatch.setattr(view, "_has_screen", lambda: True)
    asked = []
    monkeypatch.setattr(view, "serve", lambda args, announce: asked.append(args) or announce("http://here/") or 0)
    assert view.run(parse("--no-browser")) == 0
    assert opened == []
    assert view.run(parse("--port", "7")) == 0
    assert done.wait(TIMEOUT)
    assert opened == ["http://here/"]
    assert capsys.readouterr().out == "model can be viewed at http://here/ (Ctrl-C ends)\n" * 2
    assert (asked[0].page, asked[0].host, asked[0].port, asked[1].port) == (True, "127.0.0.1", 8000, 7)


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


def test_ctrl_c_while_the_model_is_loaded_ends_the_command(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "load", interrupt)
    with pytest.raises(KeyboardInterrupt):  # which muse_plugin_command turns into the usual exit code
        view.run(parse("--port", "0"))


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


def test_all_limits_must_be_positive():
    flags = ["--batch-size", "--max-tokens", "--max-characters", "--max-sentences", "--max-waiting", "--timeout"]
    with pytest.raises(ValueError, match="must be at least 1") as raised:
        serve.run(parse_serve(*(word for flag in flags for word in (flag, "0"))))
    assert [line.split()[0] for line in str(raised.value).splitlines()] == flags


def test_a_key_is_the_first_line_of_its_file(tmp_path):
    path = tmp_path / "key"
    with pytest.raises(FileNotFoundError, match="--api-key-file"):
        serve.read_key(path)
    path.write_text("\nkey")
    with pytest.raises(ValueError, match="--api-key-file must hold a key on its first line"):
        serve.read_key(path)
    path.write_text(" key \nother")
    assert serve.read_key(path) == "key"
    assert serve.read_key(None) is None


def test_a_missing_model_is_one_sentence(tmp_path, capsys):
    assert cli.main(["view", "--path", str(tmp_path / "nowhere"), "--port", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("muse-plugin view: error: --path must name a checkpoint or a folder with one, but ")
    assert printed.err.count("\n") == 1
