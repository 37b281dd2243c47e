"""A server of ``muse_plugin.serve`` in a thread of this process, and requests to it that may be wrong in any way."""

import http.client
import json
import threading
import time

from muse_plugin.serve.app import make_app
from muse_plugin.serve.batcher import Batcher
from muse_plugin.serve.page_routes import PageRoutes
from muse_plugin.serve.run_server import Server, take_port
from muse_plugin.serve.translation_routes import Limits, TranslationRoutes

TIMEOUT = 20
LIMITS = Limits(characters=1000, sentences=20, seconds=10)


class Running:
    """Translates by ``translate`` from German to English, and shows the page where there is an inspector."""

    def __init__(
        self,
        translate=lambda sentences: [f"<{sentence}>" for sentence in sentences],
        inspector=None,
        limits=LIMITS,
        most_at_once=8,
        most_waiting=50,
        more_hosts=(),
        host="127.0.0.1",
        target_lang="en",
        **settings,
    ):
        self._port = take_port(host, 0)
        self._listening = self._port.__enter__()
        self.port, self.lock = self._listening.getsockname()[1], threading.Lock()
        self.sizes = []
        self.batcher = Batcher(translate, most_at_once, most_waiting)
        self.batcher.observe = self.sizes.append
        routes = TranslationRoutes("de", target_lang, self.batcher, limits, **settings).list_routes()
        if inspector is not None:
            routes += PageRoutes(inspector, self.lock).list_routes()
        app, self.guard, _ = make_app(routes, lambda: len(self.batcher), host, self.port, more_hosts)
        self.url = self.guard.url
        self._started = threading.Event()
        self._server = Server(app, limits.seconds, self._started.set)
        self._thread = threading.Thread(target=self._server.serve_on, args=[self._listening])

    def start(self):
        """Answers from now on; connections that were made before wait."""
        self._thread.start()
        assert self._started.wait(TIMEOUT)

    def stop(self):
        """Asks the server to end, as SIGTERM does."""
        self._server.should_exit = True

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        self.batcher.close()
        self._port.__exit__(*error)


def ask(server, method, path, body=None, headers=(), host=None):
    """Returns (status, headers, content); ``headers`` are pairs, so that a name may occur twice."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name in [f"127.0.0.1:{server.port}"] if host is None else host:
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


def post(server, path, body, kind="application/json", length=None, headers=(), **options):
    """Returns (status, value of the JSON)."""
    first = [("Content-Type", kind), ("Content-Length", str(len(body) if length is None else length))]
    status, _, content = ask(server, "POST", path, body, [*first, *headers], **options)
    return status, json.loads(content)


def wait_until(condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
