"""Clients of LibreTranslate and DeepL get what they know, and every limit answers with its status and one sentence."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from support.http import LIMITS, TIMEOUT, Running, ask, post, wait_until

from muse_plugin.serve.sentences import split_whole

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def server():
    with Running() as running:
        yield running


def translate(server, path="/translate", headers=(), **fields):
    return post(server, path, json.dumps(fields).encode(), headers=headers)


# What clients know


def test_libretranslates_answers(server):
    assert translate(server, q="Hallo", source="de", target="en") == (200, {"translatedText": "<Hallo>"})
    found = {"language": "de", "confidence": 100}
    assert translate(server, q=["a", "b"], source="auto", target="en") == (
        200,
        {"translatedText": ["<a>", "<b>"], "detectedLanguage": [found, found]},
    )
    assert translate(server, q="a", target="en") == (200, {"translatedText": "<a>", "detectedLanguage": found})
    assert translate(server, q="a", source=None, target="en") == (
        200,
        {"translatedText": "<a>", "detectedLanguage": found},
    )
    status, _, content = ask(server, "GET", "/languages")
    assert (status, json.loads(content)) == (
        200,
        [{"code": "de", "name": "de", "targets": ["en"]}, {"code": "en", "name": "en", "targets": []}],
    )


def test_a_form_and_the_address_say_the_same_as_json(server):
    fields = {"q": "Grüße & Küsse", "source": "de", "target": "en"}
    expected = (200, {"translatedText": "<Grüße & Küsse>"})
    assert post(server, "/translate", urlencode(fields).encode(), kind=FORM) == expected
    status, _, content = ask(server, "POST", f"/translate?{urlencode(fields)}", b"", [("Content-Length", "0")])
    assert (status, json.loads(content)) == expected


def test_deep_translators_client_works_as_it_is(server):
    deep_translator = pytest.importorskip("deep_translator")
    client = deep_translator.LibreTranslator(source="de", target="en", custom_url=server.url, api_key="any")
    assert client.translate("Hallo Welt") == "<Hallo Welt>"
    assert client.translate_batch(["a", "b"]) == ["<a>", "<b>"]


def test_deepls_answers(server):
    expected = {"translations": [{"detected_source_language": "DE", "text": text} for text in ("<a>", "<b>")]}
    body = urlencode([("text", "a"), ("text", "b"), ("target_lang", "EN-GB")]).encode()
    assert post(server, "/v2/translate", body, kind=FORM) == (200, expected)
    fields = {"text": ["a", "b"], "source_lang": "DE", "target_lang": "EN"}
    assert translate(server, "/v2/translate", **fields) == (200, expected)


def test_sentences_of_a_text_are_translated_one_by_one_and_joined_again(server):
    text = "Eins.  Zwei!\n\nDrei"
    assert translate(server, q=text, source="de", target="en")[1] == {"translatedText": "<Eins.>  <Zwei!>\n\n<Drei>"}
    fields = {"text": [text], "target_lang": "EN", "split_sentences": "0"}
    answer = translate(server, "/v2/translate", **fields)[1]
    assert answer["translations"][0]["text"] == "<Eins.  Zwei!>\n\n<Drei>"


def test_lines_can_be_what_is_translated():
    with Running(within_lines=False) as server:
        assert translate(server, q="Eins. Zwei.", target="en")[1]["translatedText"] == "<Eins. Zwei.>"


def test_a_long_text_is_streamed_by_sentence():
    may_go = threading.Event()

    def wait(sentences):
        assert "Zwei." not in sentences or may_go.wait(TIMEOUT)
        return [f"<{sentence}>" for sentence in sentences]

    with Running(wait, most_at_once=1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
        body = json.dumps({"q": ["Eins. Zwei.", "Drei"], "target": "en"})
        kinds = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        connection.request("POST", "/translate", body, kinds)
        response = connection.getresponse()
        lines = [json.loads(response.readline())]  # the second is not translated yet
        may_go.set()
        lines += [json.loads(line) for line in response.read().splitlines()]
        connection.close()
    assert response.headers["Content-Type"] == "application/x-ndjson"
    assert lines == [
        {"index": 0, "translatedText": "<Eins.>", "separator": " "},
        {"index": 0, "translatedText": "<Zwei.>", "separator": ""},
        {"index": 1, "translatedText": "<Drei>", "separator": ""},
    ]


# Limits


def test_a_body_in_chunks_needs_a_type(server):
    text = json.dumps({"q": "a", "source": "de", "target": "en"})
    body = f"{len(text):x}\r\n{text}\r\n0\r\n\r\n".encode()
    chunks = ("Transfer-Encoding", "chunked")
    status, _, content = ask(server, "POST", "/translate", body, [chunks])
    assert (status, json.loads(content)["error"]) == (
        415,
        "a request must be sent as application/json or application/x-www-form-urlencoded, but got no type.",
    )
    status, _, content = ask(server, "POST", "/translate", body, [chunks, ("Content-Type", "application/json")])
    assert (status, json.loads(content)) == (200, {"translatedText": "<a>"})
    status, _, content = ask(server, "POST", "/translate?q=a&source=de&target=en", b"0\r\n\r\n", [chunks])
    assert (status, json.loads(content)) == (200, {"translatedText": "<a>"})


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({}, 400, "'q' must be a text or a list of texts, but got null."),
        ({"q": 3}, 400, "'q' must be a text or a list of texts, but got 3."),
        ({"q": ["a", None]}, 400, "'q' must be a text or a list of texts, but got "),
        (
            {"q": []},
            400,
            "'q' must be a text or a list of texts, but got [].",
        ),
        (
            {"q": "a", "source": "fr"},
            400,
            "'source' must be de or auto, but got fr; this model translates from",
        ),
        ({"q": "a", "source": "de"}, 400, "'target' must be en, but got None; this model translates"),
        ({"q": "a", "target": ["en"]}, 400, "'target' must be en, but got ['en']; this model"),
        ({"q": "a", "target": "en", "format": "html"}, 400, "'format' must be text, but got html; send plain text."),
        (
            {"q": "a" * 1001, "target": "en"},
            413,
            "a request must have at most 1,000 characters, but this one has 1,",
        ),
        ({"q": "a", "target": "\ud800"}, 400, "'target' must be en, but got \ud800; this model"),
        ({"q": "a\n" * 30, "target": "en"}, 413, "a request must have at most 20 sentences, but this one has 31;"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_sentence(server, fields, status, sentence):
    got, answer = translate(server, **fields)
    assert (got, set(answer)) == (status, {"error"})
    assert answer["error"].startswith(sentence)
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("code", ["zh_TW", "zh-tw", "ZH-TW"])
def test_a_language_of_a_region_is_known_however_it_is_written(code):
    with Running(target_lang="zh_TW") as server:
        assert translate(server, q="a", source="de", target=code) == (200, {"translatedText": "<a>"})
        assert translate(server, "/v2/translate", text="a", target_lang=code)[0] == 200
        assert translate(server, q="a", source="de", target="zh")[0] == 400


def test_deepls_refusals_have_its_form(server):
    assert translate(server, "/v2/translate", text="a", target_lang="FR")[1] == {
        "message": "'target_lang' must be en, but got FR; this model translates from de to en."
    }


@pytest.mark.parametrize(
    ("name", "value", "rest"),
    [
        ("tag_handling", "xml", "send plain text."),
        ("glossary_id", "7f3a", "this model has no glossaries."),
        ("formality", "more", "this model knows one; 'prefer_more' and 'prefer_less' are taken as wishes."),
    ],
)
def test_what_deepl_offers_and_this_server_does_not_is_refused(server, name, value, rest):
    status, answer = translate(server, "/v2/translate", text="a", target_lang="EN", **{name: value})
    assert (status, answer) == (400, {"message": f"'{name}' must not be given; {rest}"})


@pytest.mark.parametrize("formality", ["default", "prefer_less", ""])
def test_a_formality_that_is_only_a_wish_is_no_fault(server, formality):
    assert translate(server, "/v2/translate", text="a", target_lang="EN", formality=formality)[0] == 200


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"q=%ff&target=en", FORM, 400),
        (b"&".join([b"q=a"] * 10_001), FORM, 413),
        (b"x", "multipart/form-data", 415),
        (b"x" * 100_000, "application/json", 413),
    ],
)
def test_bad_bodies_are_refused_and_the_server_lives_on(server, body, kind, status):
    got, answer = post(server, "/translate", body, kind=kind)
    assert got == status or (got, kind) == (400, FORM)
    assert "Traceback" not in answer["error"]
    assert translate(server, q="a", target="en")[0] == 200


def test_a_body_of_a_hundred_megabytes_is_refused_at_once(server):
    start = time.monotonic()
    status, answer = post(server, "/translate", b"x" * 1000, length=100_000_000)
    assert status == 413
    assert answer["error"].startswith("a request must have at most 77,536 bytes, but this one has 100,000,000 or more")
    assert time.monotonic() - start < 5


def test_a_key_is_asked_for():
    with Running(api_key="Schlüssel") as server:
        refused = {"error": "a request must give the right API key; ask who runs the server."}
        assert translate(server, q="a", target="en") == (403, refused)
        assert translate(server, q="a", target="en", api_key="wrong") == (403, refused)
        assert translate(server, q="a", target="en", api_key="\ud800") == (403, refused)
        assert translate(server, q="a", target="en", api_key="Schlüssel")[0] == 200
        assert translate(server, "/v2/translate", text="a", target_lang="EN")[0] == 403
        fields = {"text": "a", "target_lang": "EN", "auth_key": "Schlüssel"}
        assert translate(server, "/v2/translate", **fields)[0] == 200
    with Running(api_key="key") as server:
        header = [("Authorization", "DeepL-Auth-Key key")]
        assert translate(server, "/v2/translate", header, text="a", target_lang="EN")[0] == 200
        assert ask(server, "GET", "/health")[0] == 200


@pytest.fixture
def blocked():
    """A server whose model waits until it is allowed to continue; the event, and what was translated."""
    may_go, seen = threading.Event(), []

    def wait(sentences):
        seen.extend(sentences)
        assert may_go.wait(TIMEOUT)
        return sentences

    with Running(wait, most_at_once=1, most_waiting=3, limits=replace(LIMITS, seconds=0.5)) as server:
        try:
            yield server, may_go, seen
        finally:
            may_go.set()


def test_a_full_queue_and_the_end_of_time_are_said(blocked):
    server, may_go, seen = blocked
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(translate, server, q="first", target="en")
        wait_until(lambda: seen)
        body = json.dumps({"q": "a\nb\nc\nd", "target": "en"}).encode()
        kinds = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        status, headers, content = ask(server, "POST", "/translate", body, kinds)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert json.loads(content)["error"] == "0 sentences wait already, and 4 more are too many; try again later."
        assert first.result(TIMEOUT)[0] == 504
        assert first.result()[1]["error"].startswith("a request must be answered within 0.5 seconds, but 0 sentences")
    may_go.set()
    assert translate(server, q="last", source="de", target="en") == (200, {"translatedText": "last"})


def test_what_a_client_that_went_away_wanted_is_not_translated(blocked):
    server, may_go, seen = blocked
    body = b'{"q": "a\\nb", "target": "en"}'
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: seen == ["a"])
    time.sleep(0.2)  # the server notices
    may_go.set()
    assert translate(server, q="c", target="en")[0] == 200
    assert seen == ["a", "c"]


def test_a_sentence_longer_than_the_model_reads_spoils_no_other(caplog):
    def work(sentences):
        return [" ".join(split_whole(sentence, 3, str.split)) for sentence in sentences]

    with Running(work) as server, ThreadPoolExecutor(2) as pool:
        texts = "a b c d", "a b c"
        long, short = pool.map(lambda text: translate(server, q=text, source="de", target="en"), texts)
    expected = "a sentence must have at most 3 tokens, but 'a b c d'... has more; send it in parts."
    assert (long, short) == ((413, {"error": expected}), (200, {"translatedText": "a b c"}))
    assert caplog.messages == []


def test_a_defect_of_the_model_is_one_sentence(caplog):
    def fail(sentences):
        if "bad" in sentences:
            raise ZeroDivisionError("secret")
        return sentences

    with Running(fail) as server:
        expected = "the model failed on a sentence (ZeroDivisionError); the terminal of the server shows where."
        assert translate(server, q="bad", target="en") == (500, {"error": expected})
        body = json.dumps({"q": "good\nbad", "target": "en"}).encode()
        kinds = [("Content-Type", "application/json"), ("Accept", "application/x-ndjson")]
        _, _, content = ask(server, "POST", "/translate", body, [*kinds, ("Content-Length", str(len(body)))])
        lines = [json.loads(line) for line in content.splitlines()]
        assert lines == [{"index": 0, "translatedText": "good", "separator": "\n"}, {"error": expected}]
        assert translate(server, q="good", target="en")[0] == 200
    assert "the model failed on a sentence" in caplog.messages


# All together


def test_many_clients_get_their_own_answers_once():
    seen = []

    def work(sentences):
        seen.extend(sentences)
        return [f"<{sentence}>" for sentence in sentences]

    with Running(work, most_at_once=16, most_waiting=500) as server, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: translate(server, q=f"text {i}", source="de", target="en"), range(300)))
        assert answers == [(200, {"translatedText": f"<text {i}>"}) for i in range(300)]
        assert sorted(seen) == sorted(f"text {i}" for i in range(300))
        assert max(server.sizes) > 1


def test_each_accepted_text_is_answered_once_while_others_leave_and_the_queue_is_full():
    seen, lost = [], []

    def work(sentences):
        seen.extend(sentences)
        time.sleep(0.005)
        return [f"<{sentence}>" for sentence in sentences]

    def ask_or_leave(number):
        text = f"text {number}"
        if number % 3 == 0:
            body = json.dumps({"q": text, "target": "en"}).encode()
            head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as connection:
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return None
        status, answer = translate(server, q=text, source="de", target="en")
        lost.append(text) if status == 503 else None
        return status, answer

    with Running(work, most_at_once=2, most_waiting=6) as server, ThreadPoolExecutor(24) as pool:
        answers = dict(enumerate(pool.map(ask_or_leave, range(300))))
    stayed = {number: answer for number, answer in answers.items() if answer is not None}
    answered = [number for number, (status, _) in stayed.items() if status == 200]
    assert len(answered) > 20
    assert len(lost) > 20
    assert len(answered) + len(lost) == len(stayed) == 200
    assert all(stayed[number][1] == {"translatedText": f"<text {number}>"} for number in answered)
    assert len(set(seen)) == len(seen)
    assert {f"text {number}" for number in answered} <= set(seen)
    assert not set(seen) & set(lost)


def test_what_was_accepted_is_answered_after_the_server_was_told_to_end():
    begun, may_go = threading.Event(), threading.Event()

    def wait(sentences):
        begun.set()
        assert may_go.wait(TIMEOUT)
        return sentences

    with ThreadPoolExecutor(1) as pool, Running(wait) as server:
        answer = pool.submit(translate, server, q="a", source="de", target="en")
        assert begun.wait(TIMEOUT)
        server.stop()
        time.sleep(0.3)
        may_go.set()
        assert answer.result(TIMEOUT) == (200, {"translatedText": "a"})


def test_metrics_count_what_happened(server):
    translate(server, q="a", target="en")
    ask(server, "GET", "/nowhere")
    status, headers, content = ask(server, "GET", "/metrics")
    text = content.decode()
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'muse_plugin_requests_total{route="/translate",status="200"} 1.0' in text
    assert 'muse_plugin_requests_total{route="other",status="404"} 1.0' in text
    assert "muse_plugin_waiting_sentences 0.0" in text
    assert 'muse_plugin_request_seconds_count{route="/translate"} 1.0' in text
