"""``muse-plugin view``: a page on this machine where a sentence is typed and its translation seen from the inside."""

import argparse
import logging
import os
import sys
import threading
import webbrowser
from pathlib import Path

from muse_plugin.checkpoints.locate import add_path_argument
from muse_plugin.text.text_pipeline import FILE_NAME
from muse_plugin.view.inspect import Inspector
from muse_plugin.view.server import ADDRESS, ViewServer
from muse_plugin_command.flag_checks import check_positive

_LAST_WAIT = 10.0  # seconds for a running translation after Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin view`` on ``parser``."""
    parser.description = (
        f"Serve a page on {ADDRESS}, for this machine only: type a sentence, see its translations with their scores, "
        "cross-attention and gates. Ctrl-C ends."
    )
    add_path_argument(parser)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"the folder of the dictionaries and {FILE_NAME} (default: that of the checkpoint or, if there is none in "
        "it, of the training data)",
    )
    parser.add_argument("--port", type=int, default=8000, help="port; 0 for any that is free (default: 8000)")
    parser.add_argument("--beam", type=int, default=5, help="beam size of the search (default: 5)")
    parser.add_argument("--nbest", type=int, help="translations shown of a sentence (default: as many as --beam)")
    parser.add_argument(
        "--lenpen",
        type=float,
        default=1.0,
        help="length penalty: below 1 favours short translations, above 1 long ones (default: 1)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
    parser.add_argument("--no-browser", action="store_true", help="show the address only, open no browser")


def run(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C; the body of ``muse-plugin view``.

    Args:
        args: the flags declared by ``add_arguments``.

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
