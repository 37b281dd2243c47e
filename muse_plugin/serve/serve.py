"""``muse-plugin serve``: a translation model over HTTP, with the routes of LibreTranslate and DeepL."""

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from muse_plugin.files.lines import check_file
from muse_plugin.serve.app import make_app
from muse_plugin.serve.batcher import Batcher
from muse_plugin.serve.page_routes import PageRoutes
from muse_plugin.serve.run_server import Server, take_port
from muse_plugin.serve.served_model import ServedModel
from muse_plugin.serve.translation_routes import Limits, TranslationRoutes
from muse_plugin_command.flag_checks import check_positive
from muse_plugin_command.flags.serve import is_exported

_LONGEST_KEY = 4096  # characters


def run(args: argparse.Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM; the body of ``muse-plugin serve``.

    Returns:
        0 once it has ended as told.
    """

    def announce(url: str) -> None:
        sys.stdout.write(f"{args.path} is served at {url} (Ctrl-C ends)\n")
        sys.stdout.flush()

    return serve(args, announce)


def serve(args: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Serves a model.

    Args:
        args: the flags of ``serve``.
        announce: called with the address once requests are answered.

    Returns:
        As for ``run``.

    Raises:
        ValueError: if a flag or the model is wrong.
        FileNotFoundError: if the model or the key is missing.
    """
    check_positive(
        args, "beam", "nbest", "batch_size", "max_tokens", "max_characters", "max_sentences", "max_waiting", "timeout"
    )
    nbest = args.beam if args.nbest is None else args.nbest
    if nbest > args.beam:
        raise ValueError(
            f"--nbest must be at most --beam, which finds no more, but got --nbest {nbest} and --beam {args.beam}; "
            "raise --beam."
        )
    api_key = read_key(args.api_key_file)
    with take_port(args.host, args.port) as listening:
        model = load_model(args)
        lock = threading.Lock()

        def translate(sentences: list[str]) -> list[str]:
            with lock:
                return model.translate(sentences)

        batcher = Batcher(translate, args.batch_size, args.max_waiting)
        routes = TranslationRoutes(
            model.source_lang,
            model.target_lang,
            batcher,
            Limits(args.max_characters, args.max_sentences, args.timeout),
            api_key,
            args.split == "sentences",
        ).list_routes()
        if args.page:
            routes += PageRoutes(model.make_inspector(nbest), lock).list_routes()
        app, guard, metrics = make_app(
            routes, lambda: len(batcher), args.host, listening.getsockname()[1], args.allow_host
        )
        batcher.observe = metrics.observe_batch
        Server(app, args.timeout, lambda: announce(guard.url)).serve_on(listening)
        batcher.close()
    return 0


def load_model(args: argparse.Namespace) -> ServedModel:
    """Loads what ``--path`` names: an exported folder, for which torch need not be there, or a checkpoint.

    Args:
        args: the flags of ``serve``.

    Raises:
        FileNotFoundError: if a file is missing.
        ImportError: if a package is missing.
        ValueError: if a file is damaged, or flags do not fit.
    """
    if is_exported(args.path):
        from muse_plugin.serve.exported_model import load_exported_model as load
    else:
        from muse_plugin.serve.checkpoint_model import load_checkpoint_model as load
    return load(args)


def read_key(path: Optional[Path]) -> Optional[str]:
    """The API key in a file; None without a file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no key.
    """
    if path is None:
        return None
    check_file(path, "--api-key-file")
    with open(path, encoding="utf-8", errors="replace") as file:
        key = file.readline(_LONGEST_KEY).strip()
    if not key:
        raise ValueError(f"--api-key-file must hold a key on its first line, but {path} has none; write one there.")
    return key
