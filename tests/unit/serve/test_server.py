"""The page over real HTTP: what is served, what is refused, and that nobody else gets at it."""

import asyncio
import contextlib
import json
import logging
import re
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import JSONResponse
from support.http import TIMEOUT, Running, ask, post

from muse_plugin.serve import bodies, page_routes, run_server
from muse_plugin.serve.guard import Guard
from muse_plugin.serve.page_routes import MAX_BODY
from muse_plugin.serve.run_server import take_port

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
    with Running(inspector=EchoInspector()) as running:
        yield running


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
    status, answer_headers, content = ask(server, "POST", "/inspect", body, headers)
    assert status == 200
    assert answer_headers["Content-Type"] == "application/json"
    assert answer_headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(content) == {"hypotheses": [{"text": text}]}


def test_page_loads_nothing_from_elsewhere_and_makes_no_markup_from_text():
    parts = {name: (page_routes._FOLDER / name).read_text(encoding="utf-8") for name in page_routes._KINDS}
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
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""],
)
@pytest.mark.parametrize("path", ["/", "/inspect", "/translate", "/nowhere"])
def test_another_host_is_refused(host, path, server):
    host = host.format(port=server.port)
    method = "GET" if path == "/" else "POST"
    status, headers, content = ask(server, method, path, b"", [("Content-Length", "0")], [host])
    assert status == 421
    assert "Content-Security-Policy" in headers
    sentence = json.loads(content)["error"]
    assert sentence.startswith("the server must be called by its own address, but the request names ")
    assert sentence.endswith(f"open {server.url}, or start the server with --allow-host.")


@pytest.mark.parametrize("host", [[], ["127.0.0.1:{port}", "127.0.0.1:{port}"], ["127.0.0.1:{port}, evil.example"]])
def test_no_host_or_several_are_refused(host, server):
    status, _, _ = ask(server, "GET", "/", host=[name.format(port=server.port) for name in host])
    assert status in (400, 421)


def test_further_hosts_can_be_allowed():
    with Running(more_hosts=["mt.example"]) as server:
        for host in ("mt.example", "MT.example:443"):
            assert ask(server, "GET", "/health", host=[host])[0] == 200
            headers = [("Origin", f"https://{host}")]
            assert ask(server, "GET", "/health", headers=headers, host=[host])[0] == 200
        assert ask(server, "GET", "/health", host=["mt.example.evil"])[0] == 421


def test_a_server_on_all_addresses_is_called_by_any_of_them_in_numbers():
    with Running(host="0.0.0.0") as server:
        for host in ("192.0.2.7", "[2001:db8::1]"):
            assert ask(server, "GET", "/health", host=[f"{host}:{server.port}"])[0] == 200
        assert ask(server, "GET", "/health", host=[f"evil.example:{server.port}"])[0] == 421


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("localhost", "localhost"),
        ("MT.example", "mt.example"),
        ("::1", "[::1]"),
        ("2001:DB8:0::5", "[2001:db8::5]"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
    ],
)
def test_a_server_is_called_by_the_address_that_it_announces(host, name):
    guard = Guard(JSONResponse({}), host, 8080)
    assert guard.url == f"http://{name}:8080/"
    statuses = []

    async def send(message):
        statuses.append(message.get("status"))

    for asked in (f"{name}:8080", "evil.example:8080"):
        asyncio.run(guard({"type": "http", "headers": [(b"host", asked.encode())]}, None, send))
    assert statuses[::2] == [200, 421]


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1"])
def test_this_machines_own_names_are_served(name, server):
    host = f"{name}:{server.port}"
    headers = [("Origin", f"http://{host}"), ("Content-Type", "application/json"), ("Content-Length", "13")]
    assert ask(server, "POST", "/inspect", b'{"text": "a"}', headers, host=[host])[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""]
)
def test_another_origin_is_refused(origin, server):
    origin = origin.format(port=server.port)
    headers = [("Origin", origin), ("Content-Type", "application/json"), ("Content-Length", "13")]
    status, _, content = ask(server, "POST", "/inspect", b'{"text": "a"}', headers)
    assert status == 403
    assert json.loads(content)["error"] == f"only a page of this server may ask, but {origin} did; open {server.url}."


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/translate", "POST"),
        ("GET", "/inspect", "POST"),
        ("HEAD", "/inspect", "POST"),
        ("POST", "/", "GET, HEAD"),
        ("POST", "/model", "GET, HEAD"),
        ("POST", "/page.js", "GET, HEAD"),
        ("PUT", "/", "GET, HEAD"),
        ("PATCH", "/inspect", "POST"),
        ("DELETE", "/page.html", "GET, HEAD"),
        ("OPTIONS", "/inspect", "POST"),
    ],
)
def test_a_wrong_method_is_refused(method, path, allowed, server):
    status, headers, content = ask(server, method, path, b"", [("Content-Length", "0")])
    assert (status, sorted(headers["Allow"].split(", "))) == (405, allowed.split(", "))
    if method != "HEAD":
        assert json.loads(content)["error"] == f"this address takes {headers['Allow']}, but got {method}."
    assert not [name for name in headers if name.lower().startswith("access-control")]


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
    assert json.loads(content)["error"].startswith("there is no such page; open the address that the server showed")
    assert post(server, path, make_body("a"))[0] == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_sentence_that_is_not_sent_as_json_is_refused(kind, server):
    status, answer = post(server, "/inspect", make_body("a"), kind=kind)
    assert (status, answer["error"]) == (
        415,
        f"a request must be sent as application/json, but got {kind or 'no type'}.",
    )


def test_a_request_that_is_too_large_is_refused(server):
    body = make_body("x" * MAX_BODY)
    status, answer = post(server, "/inspect", body)
    assert (status, answer["error"]) == (
        413,
        f"a request must have at most 65,536 bytes, but this one has {len(body):,} or more; send the text in parts.",
    )


def test_a_client_that_is_refused_while_it_sends_gets_the_answer(server):
    body = make_body("x" * MAX_BODY)
    head = f"POST /inspect HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
        connection.sendall(head.encode() + body[:100])
        for start in range(100, len(body), 100):  # to a connection that is reset, the rest cannot be sent
            connection.sendall(body[start : start + 100])
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_the_largest_request_is_answered(server):
    text = "x" * (MAX_BODY - len(make_body("")))
    assert post(server, "/inspect", make_body(text)) == (200, {"hypotheses": [{"text": text}]})


def test_a_request_that_claims_to_be_huge_is_refused_at_once(server, monkeypatch):
    monkeypatch.setattr(bodies, "_LONGEST_DISCARD", 0.01)
    assert post(server, "/inspect", b"", length=10**15)[0] == 413


@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Length", "-1")],
        [("Content-Length", "1" * 19)],
        [("Content-Length", "1" * 5000)],
        [("Content-Length", "+13")],
        [("Content-Length", "1_3")],
        [("Content-Length", "\u0661".encode())],
        [("Content-Length", "13"), ("Content-Length", "14")],
        [("Transfer-Encoding", "gzip")],
        [("Transfer-Encoding", "chunked"), ("Content-Length", "13")],
    ],
)
def test_a_request_without_a_valid_length_is_refused(headers, server, monkeypatch):
    monkeypatch.setattr(bodies, "_LONGEST_DISCARD", 0.01)
    monkeypatch.setattr(bodies, "_LONGEST_WAIT", 0.2)
    kind = ("Content-Type", "application/json")
    with contextlib.suppress(ConnectionResetError):  # what is no HTTP need not be read to its end
        status, _, content = ask(server, "POST", "/inspect", b'{"text": "a"}', [kind, *headers])
        assert status in (400, 408, 413, 501)
        assert b"Traceback" not in content
    assert post(server, "/inspect", make_body("a"))[0] == 200


def send_chunks(server, *parts, path="/inspect"):
    """Sends a body in chunks, whose length nobody knows before; returns the first line of the answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for part in parts:
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        return connection.recv(4096)


def test_a_body_in_chunks_is_read_up_to_the_limit(server, monkeypatch):
    monkeypatch.setattr(bodies, "_LONGEST_DISCARD", 0.01)
    assert send_chunks(server, b'{"text"', b': "a"}', b"").startswith(b"HTTP/1.1 200 ")
    assert send_chunks(server, *[b"x" * 30_000] * 3).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_too_slowly_is_told_so(server, monkeypatch):
    monkeypatch.setattr(bodies, "_LONGEST_WAIT", 0.2)
    answer = send_chunks(server, b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")


TOO_DEEP = "maximum recursion depth" if sys.version_info < (3, 14) else "Expecting value"  # which sees the end first


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "a request must be JSON in UTF-8, but reading it gave 'Expecting value"),
        (b"{", "a request must be JSON in UTF-8, but reading it gave 'Expecting property name"),
        (b'{"text": "\xff"}', "a request must be JSON in UTF-8, but reading it gave ''utf-8' codec"),
        (b"[" * 60000, f"a request must be JSON in UTF-8, but reading it gave '{TOO_DEEP}"),
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
    status, answer = post(server, "/inspect", body)
    assert status == 400
    assert answer["error"].startswith(sentence)


# Failures


def test_an_error_of_the_user_is_the_sentence_itself(server):
    assert post(server, "/inspect", make_body("blank")) == (422, {"error": "a sentence must have at least one word."})


def test_a_defect_is_logged_and_the_next_sentence_is_translated(server, caplog):
    with caplog.at_level(logging.ERROR):
        status, answer = post(server, "/inspect", make_body("defect"))
    assert status == 500
    assert answer["error"] == (
        "the model failed on this sentence (ZeroDivisionError); the terminal of the server shows where."
    )
    assert "the model failed on a sentence of 6 characters" in caplog.messages
    assert caplog.records[0].exc_info is not None
    assert post(server, "/inspect", make_body("a"))[0] == 200


def test_a_client_that_goes_away_ends_nothing(server, caplog):
    for words in (b"", b"GET", b"POST /inspect HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", b"\xff\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
            connection.sendall(words)
    assert post(server, "/inspect", make_body("a"))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_sentences_are_inspected_one_at_a_time():
    running, overlaps = [], []

    class SlowInspector(EchoInspector):
        def inspect(self, text):
            running.append(text)
            overlaps.append(len(running))
            time.sleep(0.05)
            running.remove(text)
            return super().inspect(text)

    with Running(inspector=SlowInspector()) as server, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: post(server, "/inspect", make_body(text)), "abcd"))
    assert answers == [(200, {"hypotheses": [{"text": text}]}) for text in "abcd"]
    assert overlaps == [1] * 4


def test_who_waits_too_long_is_told_so(server, monkeypatch):
    monkeypatch.setattr(page_routes, "_LONGEST_WAIT", 0.01)
    with server.lock:
        status, answer = post(server, "/inspect", make_body("a"))
        assert ask(server, "GET", "/model")[0] == 200  # all the rest is answered
    assert status == 503
    assert answer["error"].startswith("the model does one thing at a time, but what came before still runs after")
    assert post(server, "/inspect", make_body("a"))[0] == 200


# Start


def open_port(port, host="127.0.0.1"):
    with take_port(host, port) as listening:
        return listening.getsockname()


def test_a_free_port_is_taken_on_the_loopback_address_only():
    address, port = open_port(0)
    assert address == "127.0.0.1"
    assert port > 0


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_refused(port):
    with pytest.raises(ValueError, match=rf"^--port must be a number from 0 .* to 65535, but got {port}\.$"):
        open_port(port)


def test_a_port_that_is_taken_is_refused(server):
    with pytest.raises(
        ValueError, match=rf"^--port must be free, but another program uses {server.port}; name another one"
    ):
        open_port(server.port)


def test_a_port_that_is_not_allowed_is_refused(monkeypatch):
    class Refusing(socket.socket):
        def bind(self, address):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_server.socket, "socket", Refusing)
    with pytest.raises(
        PermissionError, match=r"^--port must be one that you may use, but got 80 \(Permission denied\)"
    ):
        open_port(80)


@pytest.mark.parametrize("host", ["203.0.113.9", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(host):
    with pytest.raises(ValueError, match=rf"^--host must be an address of this machine, but got {re.escape(host)} "):
        open_port(0, host)


def test_a_page_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(page_routes, "_FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"/page\.html is part of this package, but does not exist; install"):
        page_routes.PageRoutes(EchoInspector(), threading.Lock())


def test_requests_that_come_at_once_wait_their_turn():
    server = Running(inspector=EchoInspector())
    # Nobody accepts connections yet; those that the queue does not hold are not made.
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=2) for _ in range(200)]
    with server:
        for client in clients:
            client.settimeout(TIMEOUT)
            client.sendall(f"GET /model HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert [client.recv(12) for client in clients] == [b"HTTP/1.1 200"] * 200
        for client in clients:
            client.close()
