"""``muse-plugin match``: encodes sentences once, then scores pairs of them, searches among them, or explains one.

Each kind is a module with ``run``; what they share is in ``pair_model.py`` and ``vector_cache.py``.
"""

import argparse
from types import ModuleType

from muse_plugin.matching import encode, explain, score, search

KINDS: dict[str, ModuleType] = {"encode": encode, "score": score, "search": search, "explain": explain}


def run(args: argparse.Namespace) -> int:
    """Runs the sub-command that was asked for."""
    KINDS[args.kind].run(args)
    return 0
