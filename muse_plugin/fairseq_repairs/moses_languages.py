"""Lets --tokenizer moses find the languages by the data, as the translation task does."""

from argparse import Namespace
from typing import Any

from fairseq import utils
from fairseq.data.data_utils import infer_language_pair
from fairseq.dataclass import utils as dataclass_utils

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _infer_languages(args: Namespace) -> None:
    if None not in (getattr(args, "source_lang", None), getattr(args, "target_lang", None)):
        return
    folders = utils.split_paths(getattr(args, "data", None) or "")
    try:
        found = infer_language_pair(folders[0]) if folders else (None, None)
    except OSError:  # no such folder: the task says so
        found = (None, None)
    if None in found:
        raise ValueError(
            "--tokenizer moses needs the languages, but they are not given and the names of the data do not say "
            "them; add --source-lang and --target-lang."
        )
    args.source_lang, args.target_lang = found  # both: one that is given may be the other one of the data


def _apply() -> None:
    @replace(dataclass_utils, "convert_namespace_to_omegaconf")
    def convert_namespace_to_omegaconf(original: Any, args: Namespace) -> Any:
        if getattr(args, "tokenizer", None) == "moses":
            _infer_languages(args)
        return original(args)


REPAIR = Repair(
    why="--tokenizer moses without --source-lang and --target-lang ends with 'Error merging override "
    "tokenizer.source_lang=null', although the data say the languages",
    remedy=_apply,
)
