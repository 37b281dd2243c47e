"""Silences the messages that fairseq's use of today's hydra and torch prints at every start, and nothing else.

Each row of ``SILENCED`` names one message by category, module and text and says why a user can do without it. What is
not in the table still appears. A message printed while fairseq itself is imported comes before a plugin named by
``--user-dir`` exists, and can be silenced only where this package is imported first (``import muse_plugin``).
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import NamedTuple


class Silenced(NamedTuple):
    """One harmless warning.

    Attributes:
        category: the class of the warning.
        module: regular expression for the whole name of the module that the warning is attributed to.
        message: regular expression for the beginning of the text, white space before it aside.
        reason: why it is harmless.
    """

    category: type[Warning]
    module: str
    message: str
    reason: str


SILENCED = (
    Silenced(
        UserWarning,
        r"hydra\.experimental\.initialize",
        r"hydra\.experimental\.initialize\(\) is no longer experimental",
        "fairseq calls hydra by an old name for the same function",
    ),
    Silenced(
        UserWarning,
        r"hydra\.experimental\.compose",
        r"hydra\.experimental\.compose\(\) is no longer experimental",
        "fairseq calls hydra by an old name for the same function",
    ),
    Silenced(
        UserWarning,
        r"hydra\.experimental\.initialize",
        r"The version_base parameter is not specified\.",
        "fairseq was written for the defaults of hydra 1.1, which hydra assumes then",
    ),
    Silenced(
        UserWarning,
        r"hydra\.core\.default_element",
        r"In 'config': Usage of deprecated keyword in package header '# @package _group_'",
        "about a comment in fairseq's own config.yaml; the configuration is the same",
    ),
    Silenced(
        UserWarning,
        r".*",  # hydra attributes it to whoever called the command, at a depth that differs between commands
        r"'config' is validated against ConfigStore schema with the same name\.",
        "about how fairseq's own config.yaml finds its schema; it finds it",
    ),
    Silenced(
        UserWarning,
        r"hydra\.compose",
        r"The strict flag in the compose API is deprecated\.",
        "fairseq passes a flag that hydra no longer needs",
    ),
    Silenced(
        UserWarning,
        r"torch\.utils\.data\.dataloader",
        r"'pin_memory' argument is set as true but no accelerator is found",
        "fairseq always asks for pinned memory; without a GPU there is nothing to gain from it",
    ),
    Silenced(
        FutureWarning,
        r"fairseq\.tasks\.fairseq_task",
        r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
        "fairseq calls torch by an old name for the same function",
    ),
    Silenced(
        FutureWarning,
        r"fairseq\.optim\.amp_optimizer",
        r"`torch\.cuda\.amp\.GradScaler\(args\.\.\.\)` is deprecated",
        "fairseq calls torch by an old name for the same function",
    ),
    Silenced(
        UserWarning,
        r"torch\.nn\.functional",
        r"Support for mismatched key_padding_mask and attn_mask is deprecated",
        "fairseq's attention passes a boolean and a float mask, which torch combines correctly",
    ),
    Silenced(
        FutureWarning,
        r"fairseq\.models\.distributed_fairseq_model",
        r"`broadcast_buffers` is deprecated\. Use `forward_sync_buffers`",
        "fairseq calls torch by an old name; what differs is the start, where equal buffers are sent once more",
    ),
)

# Attributed to torch, whoever calls it, and so silenced only while fairseq is imported.
SILENCED_DURING_IMPORT = Silenced(
    FutureWarning,
    r"torch\.jit\._script",
    r"`torch\.jit\.script` is deprecated",
    "fairseq compiles five small functions of models that generate text without an order",
)


class _ShowAtMost(logging.Filter):
    """Drops the records of a logger whose text is exactly one given line, but for the first few."""

    def __init__(self, line: str, times: int) -> None:
        super().__init__()
        self.line = line
        self.left = times

    def filter(self, record: logging.LogRecord) -> bool:
        if record.getMessage() != self.line:
            return True
        self.left -= 1
        return self.left >= 0


# Logger -> (its line, how often it is shown, why that is enough).
LOG_LINES = {
    "fairseq.tasks.text_to_speech": (
        "Please install tensorboardX: pip install tensorboardX",
        0,
        "printed at every import of fairseq, whatever the task; only speech synthesis uses the package",
    ),
    "fairseq.logging.progress_bar": (
        "tensorboard not found, please install with: pip install tensorboard",
        1,
        "with --tensorboard-logdir, fairseq says so for each part of each epoch",
    ),
}


# Whether this package came before fairseq, and nothing had set up logging yet: what is set up since is fairseq's doing.
logging_is_left_to_fairseq = False


def install() -> None:
    """Adds the filters to this process. Calling it again changes nothing."""
    global logging_is_left_to_fairseq
    if "fairseq" not in sys.modules:
        logging_is_left_to_fairseq = not logging.getLogger().handlers
    for row in SILENCED:
        _ignore(row)
    for name, (line, times, _) in LOG_LINES.items():
        logger = logging.getLogger(name)
        if not any(isinstance(known, _ShowAtMost) for known in logger.filters):
            logger.addFilter(_ShowAtMost(line, times))


@contextlib.contextmanager
def importing_fairseq() -> Iterator[None]:
    """Silences what fairseq alone makes torch say while it is imported; afterwards, the same message appears again."""
    _ignore(SILENCED_DURING_IMPORT)
    added = warnings.filters[0]
    try:
        yield
    finally:
        if added in warnings.filters:  # unless a module that was imported began the list again
            warnings.filters.remove(added)


def _ignore(row: Silenced) -> None:
    warnings.filterwarnings("ignore", message=r"\s*" + row.message, category=row.category, module=f"(?:{row.module})$")
