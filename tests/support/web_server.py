"""A web server of a test's own, which answers as the test says."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def serving(answer: Callable[[Any], None], **attributes: Any) -> Iterator[Any]:
    """Runs a server on this machine.

    Args:
        answer: the ``do_GET`` of an ``http.server.BaseHTTPRequestHandler``.
        **attributes: of the server, which ``answer`` finds as ``self.server``.
    """
    handler = type("Handler", (http.server.BaseHTTPRequestHandler,), {"do_GET": answer, "log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        vars(running).update(attributes)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()
