"""Lets --replace-unk do without a file; fairseq reads its mark for that, "@@ ", as the file's name."""

from typing import Any

from fairseq import utils

from muse_plugin.fairseq_repairs.repair import Repair, replace

_NO_FILE = "@@ "


def _apply() -> None:
    @replace(utils, "load_align_dict")
    def load_align_dict(original: Any, replace_unk: Any) -> Any:
        return original("" if replace_unk == _NO_FILE else replace_unk)


REPAIR = Repair(
    why="--replace-unk without the file of a dictionary ends with FileNotFoundError: '@@ '",
    remedy=_apply,
)
