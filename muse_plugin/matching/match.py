"""``muse-plugin match``: encodes sentences once, then scores pairs of them, searches among them, or explains one.

Each kind is a module with ``run``; what they share is in ``pair_model.py`` and ``vector_cache.py``.
"""

import argparse
import logging
from types import ModuleType

from muse_plugin.matching import encode, explain, score, search

KINDS: dict[str, ModuleType] = {"encode": encode, "score": score, "search": search, "explain": explain}


def run(args: argparse.Namespace) -> int:
    """Runs the sub-command that was asked for.

    Args:
        args: the parsed flags.

    Returns:
        0.
    """
    for name in ("fairseq", "muse_plugin.tasks"):  # which report the size of each dictionary
        logging.getLogger(name).setLevel(logging.WARNING)
    KINDS[args.kind].run(args)
    return 0
