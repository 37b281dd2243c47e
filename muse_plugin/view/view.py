"""``muse-plugin view``: a page on this machine where a sentence is typed and its translation seen from the inside."""

import argparse
import logging
import os
import sys
import threading
import webbrowser

from muse_plugin.view.inspect import Inspector
from muse_plugin.view.server import ViewServer
from muse_plugin_command.flag_checks import check_positive

_LAST_WAIT = 10.0  # seconds for a running translation after Ctrl-C


def run(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C; the body of ``muse-plugin view``.

    Args:
        args: the parsed flags.

    Returns:
        0 after Ctrl-C, which is how the command ends; 130 if that came before the page was served.
    """
    check_positive(args, "beam", "nbest")
    nbest = args.beam if args.nbest is None else args.nbest
    if nbest > args.beam:
        raise ValueError(
            f"--nbest must be at most --beam, which finds no more, but got --nbest {nbest} and --beam {args.beam}; "
            "raise --beam."
        )
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it reports the size of each dictionary
    try:
        with ViewServer(args.port) as server:  # first: whether the port is free is known at once
            server.inspector = Inspector.load(
                args.path, args.data, nbest, beam=args.beam, lenpen=args.lenpen, cpu=args.cpu
            )
            sys.stdout.write(f"{args.path} can be viewed at {server.url} (Ctrl-C ends)\n")
            sys.stdout.flush()
            if not args.no_browser and _has_screen():
                threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                server.wait_for_translation(_LAST_WAIT)
    except KeyboardInterrupt:  # while the model was loaded, or for the second time
        return 130
    return 0


def _has_screen() -> bool:
    """Whether a browser can have a window; without one, a browser for terminals might take this one."""
    return not sys.platform.startswith("linux") or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))
