"""``muse-plugin analyze``: figures and numbers about trained models and training runs.

Each kind is a module with ``DESCRIPTION``, ``add_arguments(parser)`` and ``run(args)``.
"""

import argparse
from types import ModuleType

from muse_plugin.analysis import analyze_bert, analyze_model, analyze_training

KINDS: dict[str, ModuleType] = {"model": analyze_model, "bert": analyze_bert, "training": analyze_training}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the kinds of analysis and their flags."""
    parser.description = (
        "Look into models and training runs: figures as PNG and SVG, numbers as CSV and JSON, and a report that opens "
        "from disk. BLEU by sentence length, with confidence intervals, is drawn by muse-plugin evaluate --plot."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    for name, module in KINDS.items():
        summary = (module.__doc__ or "").splitlines()[0].split(": ", 1)[1]
        module.add_arguments(kinds.add_parser(name, help=summary, description=module.DESCRIPTION))


def run(args: argparse.Namespace) -> int:
    """Runs the kind of analysis that was asked for; see the module of the kind for what it raises."""
    return int(KINDS[args.kind].run(args))
