"""Proposes the nearest flag, architecture or task where a command line of fairseq names one that does not exist."""

import argparse
from typing import Any

from fairseq import options

from muse_plugin.fairseq_repairs.repair import Repair, replace
from muse_plugin_command.flag_suggestions import add_suggestions


def _apply() -> None:
    @replace(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: argparse.ArgumentParser, *rest: Any, **named: Any) -> Any:
        if "error" in vars(parser):  # called from within
            return original(parser, *rest, **named)
        refuse = parser.error
        vars(parser)["error"] = lambda message: refuse(add_suggestions(message, parser))
        try:
            return original(parser, *rest, **named)
        finally:
            del vars(parser)["error"]


REPAIR = Repair(
    why="a misspelt flag ends a command with 'unrecognized arguments', after a hundred lines of flags among which the "
    "right one is; a misspelt architecture with a list of all",
    remedy=_apply,
)
