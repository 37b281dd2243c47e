"""Accepts --user-dir with another spelling of the folder that is already imported, such as through a symbolic link."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from fairseq import utils

from muse_plugin.fairseq_repairs.repair import Repair, rebind

PACKAGE = __name__.partition(".")[0]


def _is_needed() -> bool:
    return not hasattr(utils.import_user_module, "accepts_links")


def _apply() -> None:
    original = utils.import_user_module

    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        user_dir = getattr(args, "user_dir", None)
        imported = [Path(folder).resolve() for folder in sys.modules[PACKAGE].__path__]
        if user_dir is None or Path(user_dir).resolve() not in imported:
            original(args)

    import_user_module.accepts_links = True  # type: ignore[attr-defined]
    rebind(original, import_user_module)


REPAIR = Repair(
    name="linked-user-dir",
    why="when the plugin was imported from its real folder and --user-dir names it through a link, or the other way "
    "round, fairseq ends with 'the corresponding module name (muse_plugin) is not globally unique'",
    is_needed=_is_needed,
    apply=_apply,
)
