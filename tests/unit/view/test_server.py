"""The page over real HTTP: what is served, what is refused, and that nobody else gets at it."""

import contextlib
import http.client
import json
import logging
import re
import socket
import threading

import pytest

from muse_plugin.view import server as server_module
from muse_plugin.view.server import MAX_BODY, ViewServer

TIMEOUT = 20
MARKUP = "<script>alert('1')</script> & \"x\" \u202e\u4e2d \ud800"
FILES = {
    "/": "text/html; charset=utf-8",
    "/page.html": "text/html; charset=utf-8",
    "/page.js": "text/javascript; charset=utf-8",
    "/page.css": "text/css; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}


class EchoInspector:
    """Gives back what it got; some texts are errors."""

    def describe(self):
        return {"beam": 5}

    def inspect(self, text):
        if text == "blank":
            raise ValueError("a sentence must have at least one word.")
        if text == "defect":
            raise ZeroDivisionError("secret")
        return {"hypotheses": [{"text": text}]}


@pytest.fixture
def server():
    with ViewServer(0) as running:
        running.inspector = EchoInspector()
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def ask(server, method, path, body=None, headers=(), host=None):
    """Returns (status, headers, content); ``headers`` are pairs, so that a name may stand twice."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=TIMEOUT)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name in [f"127.0.0.1:{server.server_port}"] if host is None else host:
            connection.putheader("Host", name)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        if body is not None:
            connection.send(body)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def post(server, body, kind="application/json", length=None, path="/translate", **options):
    headers = [("Content-Type", kind), ("Content-Length", str(len(body) if length is None else length))]
    status, _, content = ask(server, "POST", path, body, headers, **options)
    return status, json.loads(content)


def make_body(text):
    return json.dumps({"text": text}).encode()


# What is served


@pytest.mark.parametrize("path", FILES)
def test_page_is_served_with_headers_that_keep_others_out(path, server):
    status, headers, content = ask(server, "GET", path)
    assert status == 200
    assert headers["Content-Type"] == FILES[path]
    assert headers["Content-Security-Policy"].split("; ")[0] == "default-src 'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert "Python" not in headers["Server"]
    assert len(content) == int(headers["Content-Length"]) > 100
    head_status, head_headers, nothing = ask(server, "HEAD", path)
    assert (head_status, head_headers["Content-Length"], nothing) == (200, headers["Content-Length"], b"")


def test_model_is_described(server):
    status, headers, content = ask(server, "GET", "/model?x=1")
    assert (status, headers["Content-Type"], json.loads(content)) == (200, "application/json", {"beam": 5})


@pytest.mark.parametrize("text", [MARKUP, "", "a\nb\x00c", "x" * 20000], ids=["markup", "empty", "controls", "long"])
def test_text_comes_back_as_data(text, server):
    body = make_body(text)
    headers = [("Content-Type", "application/json; charset=utf-8"), ("Content-Length", str(len(body)))]
    status, answer_headers, content = ask(server, "POST", "/translate", body, headers)
    assert status == 200
    assert answer_headers["Content-Type"] == "application/json"
    assert answer_headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(content) == {"hypotheses": [{"text": text}]}


def test_page_loads_nothing_from_elsewhere_and_makes_no_markup_from_text():
    parts = {name: (server_module._FOLDER / name).read_text(encoding="utf-8") for name in server_module._KINDS}
    assert len(parts) == 4
    named = set(re.findall(r'(?:src|href)="([^"]*)"', parts["page.html"]))
    assert named == set(parts) - {"page.html"}
    for name, text in parts.items():
        assert set(re.findall(r"\w+://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert "@import" not in text
        assert "url(" not in text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", parts["page.html"])  # the policy would refuse them
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|DOMParser", parts["page.js"]
    )


# What is refused


@pytest.mark.parametrize(
    "host",
    [
        ["evil.example"],
        ["evil.example:{port}"],
        ["127.0.0.1"],
        ["127.0.0.1:1"],
        ["localhost.evil.example:{port}"],
        ["127.0.0.1:{port}", "127.0.0.1:{port}"],
        ["127.0.0.1:{port}, evil.example"],
        [""],
        [],
    ],
)
@pytest.mark.parametrize("path", ["/", "/translate"])
def test_another_host_is_refused(host, path, server):
    host = [name.format(port=server.server_port) for name in host]
    if path == "/":
        status, headers, content = ask(server, "GET", path, host=host)
        assert "Content-Security-Policy" in headers
        answer = json.loads(content)
    else:
        status, answer = post(server, make_body("a"), host=host)
    assert status == 421
    assert answer["error"].startswith("the page must be opened by the address of this machine, but the request names ")
    assert answer["error"].endswith(f"open {server.url}.")


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1"])
def test_this_machines_own_names_are_served(name, server):
    host = f"{name}:{server.server_port}"
    headers = [("Origin", f"http://{host}"), ("Content-Type", "application/json"), ("Content-Length", "13")]
    assert ask(server, "POST", "/translate", b'{"text": "a"}', headers, host=[host])[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""]
)
def test_another_origin_is_refused(origin, server):
    origin = origin.format(port=server.server_port)
    headers = [("Origin", origin), ("Content-Type", "application/json"), ("Content-Length", "13")]
    status, _, content = ask(server, "POST", "/translate", b'{"text": "a"}', headers)
    assert status == 403
    assert json.loads(content)["error"] == f"only the page itself may ask, but {origin} did; open {server.url}."


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/translate", "POST"),
        ("HEAD", "/translate", "POST"),
        ("POST", "/", "GET, HEAD"),
        ("POST", "/model", "GET, HEAD"),
        ("POST", "/page.js", "GET, HEAD"),
        ("PUT", "/", "GET, HEAD"),
        ("PATCH", "/translate", "POST"),
        ("DELETE", "/page.html", "GET, HEAD"),
        ("OPTIONS", "/translate", "POST"),
    ],
)
def test_a_wrong_method_is_refused(method, path, allowed, server):
    status, headers, content = ask(server, method, path, b"", [("Content-Length", "0")])
    assert (status, headers["Allow"]) == (405, allowed)
    if method != "HEAD":
        assert json.loads(content)["error"] == f"this address takes {allowed}, but got {method}."
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_an_unknown_method_is_refused_in_the_same_form(server):
    status, headers, content = ask(server, "TRACE", "/")
    assert status == 501
    assert "Content-Security-Policy" in headers
    assert json.loads(content) == {"error": "the request cannot be answered: not implemented."}


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/page.html/../server.py",
        "/%2e%2e/server.py",
        "/..%2fserver.py",
        "/..\\server.py",
        "//etc/passwd",
        "/server.py",
        "/view.py",
        "/page.html/",
        "/./page.html",
        "/favicon.ico",
        "/page.html%00",
        "http://127.0.0.1/page.html",
    ],
)
def test_a_path_that_is_no_page_is_refused(path, server):
    status, _, content = ask(server, "GET", path)
    assert status == 404
    assert json.loads(content)["error"].startswith("there is no such page; open the address")
    assert post(server, make_body("a"), path=path)[0] == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_sentence_that_is_not_sent_as_json_is_refused(kind, server):
    status, answer = post(server, make_body("a"), kind=kind)
    assert (status, answer["error"]) == (415, f"a sentence must be sent as application/json, but got {kind}.")


def test_a_request_that_is_too_large_is_refused(server):
    body = make_body("x" * MAX_BODY)
    status, answer = post(server, body)
    assert (status, answer["error"]) == (
        413,
        f"a request must have at most 65536 bytes, but this one has {len(body)}; shorten the sentence.",
    )


def test_a_client_that_is_refused_while_it_sends_gets_the_answer(server, monkeypatch):
    monkeypatch.setattr(server_module, "_LONGEST_DISCARD", TIMEOUT)
    body = make_body("x" * MAX_BODY)
    head = f"POST /translate HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=TIMEOUT) as connection:
        connection.sendall(head.encode() + body[:100])
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(4096)
        assert answer.startswith(b"HTTP/1.0 413 ")
        for start in range(100, len(body), 100):  # to a connection that is reset, the second part cannot be sent
            connection.sendall(body[start : start + 100])
        assert connection.recv(4096) == b""


def test_the_largest_request_is_answered(server):
    text = "x" * (MAX_BODY - len(make_body("")))
    assert post(server, make_body(text)) == (200, {"hypotheses": [{"text": text}]})


def test_a_request_that_claims_to_be_huge_is_refused_at_once(server, monkeypatch):
    monkeypatch.setattr(server_module, "_LONGEST_DISCARD", 0.01)
    assert post(server, b"", length=10**15)[0] == 413


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Content-Length", "-1")],
        [("Content-Length", "1" * 19)],
        [("Content-Length", "1" * 5000)],
        [("Content-Length", "+13")],
        [("Content-Length", "1_3")],
        [("Content-Length", "\u0661".encode())],
        [("Content-Length", "13"), ("Content-Length", "14")],
        [("Transfer-Encoding", "chunked")],
        [("Transfer-Encoding", "chunked"), ("Content-Length", "13")],
    ],
)
def test_a_request_without_a_valid_length_is_refused(headers, server, monkeypatch):
    monkeypatch.setattr(server_module, "_LONGEST_DISCARD", 0.01)
    status, _, content = ask(
        server, "POST", "/translate", b'{"text": "a"}', [("Content-Type", "application/json"), *headers]
    )
    assert status == 411
    assert json.loads(content)["error"].startswith("a request must say how long it is")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "a request must be JSON in UTF-8, but reading it gave 'Expecting value"),
        (b"{", "a request must be JSON in UTF-8, but reading it gave 'Expecting property name"),
        (b'{"text": "\xff"}', "a request must be JSON in UTF-8, but reading it gave ''utf-8' codec"),
        (b"[" * 60000, "a request must be JSON in UTF-8, but reading it gave 'maximum recursion depth"),
        (b'{"text": ' + b"1" * 50000 + b"}", "a request must be JSON in UTF-8, but reading it gave 'Exceeds the limit"),
        (b"[]", 'a request must be {"text": a sentence}, but got something else.'),
        (b'"text"', 'a request must be {"text": a sentence}, but got something else.'),
        (b"{}", 'a request must be {"text": a sentence}, but got something else.'),
        (b'{"text": 1}', 'a request must be {"text": a sentence}, but got something else.'),
        (b'{"text": null}', 'a request must be {"text": a sentence}, but got something else.'),
        (b'{"text": "a", "beam": 9}', 'a request must be {"text": a sentence}, but got something else.'),
    ],
    ids=str.split("nothing torn no_utf8 deep huge_number list string empty number null further_key"),
)
def test_bad_json_is_refused(body, sentence, server):
    status, answer = post(server, body)
    assert status == 400
    assert answer["error"].startswith(sentence)


# Failures


def test_an_error_of_the_user_is_the_sentence_itself(server):
    assert post(server, make_body("blank")) == (422, {"error": "a sentence must have at least one word."})


def test_a_defect_is_logged_and_the_next_sentence_is_translated(server, caplog):
    with caplog.at_level(logging.ERROR):
        status, answer = post(server, make_body("defect"))
    assert status == 500
    assert answer["error"] == (
        "the model failed on this sentence (ZeroDivisionError); the terminal in which muse-plugin view runs shows "
        "where."
    )
    assert "the model failed on a sentence of 6 characters" in caplog.messages
    assert caplog.records[0].exc_info is not None
    assert post(server, make_body("a"))[0] == 200


def test_a_client_that_goes_away_ends_nothing(server, caplog):
    for words in (b"", b"GET", b"POST /translate HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", b"\xff\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=TIMEOUT) as connection:
            connection.sendall(words)
    assert post(server, make_body("a"))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class WatchedLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self):
        self.inner, self.has_waiter = threading.Lock(), threading.Event()
        self.release = self.inner.release

    def acquire(self, timeout):
        if self.inner.locked():
            self.has_waiter.set()
        return self.inner.acquire(timeout=timeout)


def test_sentences_are_translated_one_at_a_time(server):
    lock = server.lock = WatchedLock()
    running, overlaps, waited = [], [], []

    class SlowInspector(EchoInspector):
        def inspect(self, text):
            running.append(text)
            overlaps.append(len(running))
            waited.append(lock.has_waiter.wait(TIMEOUT))
            running.remove(text)
            return super().inspect(text)

    server.inspector = SlowInspector()
    answers = {}
    threads = [
        threading.Thread(target=lambda text=text: answers.update({text: post(server, make_body(text))}))
        for text in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert answers == {text: (200, {"hypotheses": [{"text": text}]}) for text in "ab"}
    assert overlaps == [1, 1]
    assert waited == [True, True]


def test_who_waits_too_long_is_told_so(server, monkeypatch):
    monkeypatch.setattr(server_module, "_LONGEST_WAIT", 0.01)
    with server.lock:
        status, answer = post(server, make_body("a"))
        assert ask(server, "GET", "/model")[0] == 200  # all the rest goes on
    assert status == 503
    assert answer["error"].startswith("sentences are translated one at a time, but the one before is still running")
    assert post(server, make_body("a"))[0] == 200


# Start


def test_server_listens_on_the_loopback_address_only(server):
    assert server.server_address == ("127.0.0.1", server.server_port)
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("port", [-1, 65536])
def test_server_raises_error_when_port_is_out_of_range(port):
    with pytest.raises(ValueError, match=rf"^--port must be a number from 0 .* to 65535, but got {port}\.$"):
        ViewServer(port)


def test_server_raises_error_when_port_is_taken(server):
    with pytest.raises(
        ValueError, match=rf"^--port must be free, but another program uses {server.server_port}; name another one"
    ):
        ViewServer(server.server_port)


def test_server_raises_error_when_port_is_not_allowed(monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ViewServer, "server_bind", refuse)
    with pytest.raises(
        PermissionError, match=r"^--port must be one that you may use, but got 80 \(Permission denied\)"
    ):
        ViewServer(80)


def test_server_raises_error_when_the_page_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(server_module, "_FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"/page\.html is part of this package, but does not exist; install"):
        ViewServer(0)


def test_requests_that_come_at_once_wait_their_turn():
    with ViewServer(0) as waiting, contextlib.ExitStack() as stack:
        waiting.inspector = EchoInspector()
        # Nobody accepts connections yet; those that the queue does not hold are not made.
        clients = [stack.enter_context(socket.create_connection(waiting.server_address, timeout=2)) for _ in range(200)]
        thread = threading.Thread(target=waiting.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            for client in clients:
                client.settimeout(TIMEOUT)
                client.sendall(f"GET /model HTTP/1.1\r\nHost: 127.0.0.1:{waiting.server_port}\r\n\r\n".encode())
            answers = [client.recv(12) for client in clients]
        finally:
            waiting.shutdown()
            thread.join(TIMEOUT)
    assert answers == [b"HTTP/1.0 200"] * 200
