"""``muse-plugin analyze``: figures and numbers about trained models and training runs.

Each kind is a module with ``run(args)``.
"""

import argparse
from types import ModuleType

from muse_plugin.analysis import analyze_bert, analyze_model, analyze_training

KINDS: dict[str, ModuleType] = {"model": analyze_model, "bert": analyze_bert, "training": analyze_training}


def run(args: argparse.Namespace) -> int:
    """Runs the kind of analysis that was asked for, and returns 0; see its module for what it raises."""
    KINDS[args.kind].run(args)
    return 0
