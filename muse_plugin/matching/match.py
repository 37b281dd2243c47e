"""``muse-plugin match``: encodes sentences once, then scores pairs of them, searches among them, or explains one.

Each sub-command is a module with ``DESCRIPTION``, ``add_arguments`` and ``run``; what they share is in
``pair_model.py`` and ``vector_cache.py``.
"""

import argparse
import logging
import os
import sys
from types import ModuleType

from muse_plugin.matching import encode, explain, score, search

KINDS: dict[str, tuple[ModuleType, str]] = {
    "encode": (encode, "store the vectors of a file of sentences"),
    "score": (score, "score pairs of stored sentences, or all of them"),
    "search": (search, "find the best matches of each query among stored sentences"),
    "explain": (explain, "draw what the heads of a head-wise match model look at"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the sub-commands of ``muse-plugin match`` and their flags."""
    parser.description = (
        "Encode every sentence once and match many: a model of pairs that reads each sentence by itself needs only "
        "their vectors to compare two."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    for name, (module, summary) in KINDS.items():
        own = kinds.add_parser(name, help=summary, description=module.DESCRIPTION)
        module.add_arguments(own)


def run(args: argparse.Namespace) -> int:
    """Runs the sub-command that was asked for.

    Args:
        args: the parsed flags.

    Returns:
        The exit code: 0; 130 after Ctrl-C, 141 when nobody reads the output any more.
    """
    for name in ("fairseq", "muse_plugin.tasks"):  # which report the size of each dictionary
        logging.getLogger(name).setLevel(logging.WARNING)
    work = KINDS[args.kind][0].run
    try:
        if args.kind == "score" and args.top is not None:
            score.check_flags(args)
            work = search.run_all
        return int(work(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 141
