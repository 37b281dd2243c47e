"""Accepts --user-dir with another spelling of the folder that is already imported, such as through a symbolic link.

It names one folder; a list of them is one sentence.
"""

import sys
from pathlib import Path
from typing import Any

from fairseq import utils

from muse_plugin.fairseq_repairs.repair import Repair, replace

PACKAGE = __name__.partition(".")[0]


def _apply() -> None:
    @replace(utils, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        user_dir = getattr(args, "user_dir", None)
        if user_dir is not None and "," in str(user_dir) and not Path(user_dir).exists():
            raise ValueError(
                f"--user-dir must name one folder, but got {user_dir}; write 'import {PACKAGE}' in the __init__.py of "
                "your own plugin and name that."
            )
        imported = [Path(folder).resolve() for folder in sys.modules[PACKAGE].__path__]
        if user_dir is None or Path(user_dir).resolve() not in imported:
            original(args)


REPAIR = Repair(
    why="when the plugin was imported from its real folder and --user-dir names it through a link, or the other way "
    "round, fairseq ends with 'the corresponding module name (muse_plugin) is not globally unique'; of a list of "
    "folders, with 'FileNotFoundError: a,b'",
    remedy=_apply,
)
