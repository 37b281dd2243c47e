"""Takes the log level back to INFO, after one of fairseq's speech models has set it to DEBUG for the whole process."""

import logging
import os
import sys

from muse_plugin import warning_filters
from muse_plugin.fairseq_repairs.repair import Repair, loaded_command

COMMANDS = ("eval_lm", "generate", "interactive", "train", "validate")


def _is_present() -> bool:
    root = logging.getLogger()
    # What logging.basicConfig(level=DEBUG) leaves behind, which that model calls when it is imported.
    is_basic = len(root.handlers) == 1 and getattr(root.handlers[0], "stream", None) is sys.stderr
    is_basic = is_basic and getattr(root.handlers[0].formatter, "_fmt", None) == logging.BASIC_FORMAT
    # A program of the user's may want that; in fairseq's commands the variable LOGLEVEL says what the user wants.
    is_fairseqs = warning_filters.logging_is_left_to_fairseq or any(map(loaded_command, COMMANDS))
    return is_fairseqs and is_basic and root.level == logging.DEBUG and _wanted() != "DEBUG"


def _wanted() -> str:
    return os.environ.get("LOGLEVEL", "INFO").upper()


def _apply() -> None:
    logging.getLogger().setLevel(_wanted())


REPAIR = Repair(
    why="importing fairseq.models.wav2vec.wav2vec2_classification, which every import of fairseq does, switches the "
    "whole process to DEBUG, so that generate and interactive print the debugging lines of every library",
    remedy=_apply,
    probe=_is_present,
)
