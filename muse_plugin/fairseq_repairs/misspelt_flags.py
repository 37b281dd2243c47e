"""Proposes the nearest flag, architecture or task where a command line of fairseq names one that there is not."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from fairseq import options

from muse_plugin.fairseq_repairs.repair import Repair, rebind
from muse_plugin_command.flag_suggestions import add_suggestions

_MARK = "_proposes_flags"


def _is_needed() -> bool:
    # The message is written as the process ends; that cannot be tried out here.
    return not hasattr(options.parse_args_and_arch, _MARK)


def _apply() -> None:
    original = options.parse_args_and_arch

    @functools.wraps(original)
    def parse_args_and_arch(parser: argparse.ArgumentParser, *rest: Any, **named: Any) -> Any:
        if "error" in vars(parser):  # called from within
            return original(parser, *rest, **named)
        refuse = parser.error
        vars(parser)["error"] = lambda message: refuse(add_suggestions(message, parser))
        try:
            return original(parser, *rest, **named)
        finally:
            del vars(parser)["error"]

    setattr(parse_args_and_arch, _MARK, True)
    rebind(original, parse_args_and_arch)


REPAIR = Repair(
    name="misspelt-flags",
    why="a misspelt flag ends a command with 'unrecognized arguments', after a hundred lines of flags among which the "
    "right one is; a misspelt architecture with a list of all",
    is_needed=_is_needed,
    apply=_apply,
)
