"""Keeps fairseq-interactive running when a line is too long or badly encoded.

Every line of the input gets its S- and H- lines, in order, so that output and input can be put side by side:

* A line with more tokens than the model or --max-tokens takes is cut at the end, and a warning names the line. With
  ``--skip-invalid-size-inputs-valid-test`` such lines are skipped instead, as fairseq documents.
* Bytes that are no UTF-8 become the replacement character U+FFFD, and a warning names the line.
"""

import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, BinaryIO

import torch

from muse_plugin.fairseq_repairs.repair import Repair, replace

logger = logging.getLogger(__name__)


def _decoded_lines(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Yields the lines of a binary file as text without white space at the ends."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            text = line.decode(encoding, errors="replace")
            logger.warning(
                "line %d is not valid %s (byte %d of the line); what cannot be read is replaced by U+FFFD.",
                number,
                encoding,
                error.start + 1,
            )
        yield text.strip()


def _lines(source: str) -> Iterator[str]:
    """Yields the lines of ``source``, a path or ``-`` for standard input."""
    if source != "-":
        with open(source, "rb") as file:
            yield from _decoded_lines(file, "utf-8")
    elif hasattr(sys.stdin, "buffer"):
        yield from _decoded_lines(sys.stdin.buffer, sys.stdin.encoding)
    else:  # replaced by an object that holds text already
        yield from (line.strip() for line in sys.stdin)


class _TaskThatCuts:
    """A fairseq task whose interactive sentences have at most ``limit`` tokens, end-of-sentence included.

    Args:
        task: the task that does everything else.
        limit: tokens.
        first_id: number of the first sentence of the buffer in the whole input, from 0.
    """

    def __init__(self, task: Any, limit: int, first_id: int) -> None:
        self._task = task
        self._limit = limit
        self._first_id = first_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def get_interactive_tokens_and_lengths(self, lines: list[str], encode_fn: Any) -> tuple[list[torch.Tensor], Any]:
        """Encodes the lines as the task does, then cuts the long ones before their last token."""
        tokens, lengths = self._task.get_interactive_tokens_and_lengths(lines, encode_fn)
        tokens, lengths = list(tokens), list(lengths)
        for i, sentence in enumerate(tokens):
            if len(sentence) > self._limit:
                tokens[i] = torch.cat([sentence[: self._limit - 1], sentence[-1:]])
                lengths[i] = self._limit
                logger.warning(
                    "line %d (S-%d) has %d tokens, but at most %d can be translated at once; the rest is cut off. "
                    "Split the line into sentences, or skip such lines with --skip-invalid-size-inputs-valid-test.",
                    self._first_id + i + 1,
                    self._first_id + i,
                    len(sentence),
                    self._limit,
                )
        return tokens, lengths


def _limit(cfg: Any, max_positions: Any) -> int | None:
    """The most source tokens that fairseq accepts in one sentence, or None for no limit (or one for each language)."""
    source = max_positions[0] if isinstance(max_positions, (tuple, list)) else max_positions
    limits = [limit for limit in (source, cfg.dataset.max_tokens) if isinstance(limit, (int, float))]
    return int(min(limits)) if limits and not isinstance(max_positions, dict) else None


def _apply(module: ModuleType) -> None:
    """Replaces the functions of fairseq-interactive that read the input and that encode one buffer of it."""
    first_id = 0  # of the buffer that was read last; fairseq reads a buffer only after the one before is done

    @replace(module, "buffered_read")
    def buffered_read(_, input, buffer_size):
        nonlocal first_id
        first_id = 0
        buffer = []
        for line in _lines(input):
            buffer.append(line)
            if len(buffer) == buffer_size:
                yield buffer
                first_id += buffer_size
                buffer = []
        if buffer:
            yield buffer

    @replace(module, "make_batches")
    def make_batches(original, lines, cfg, task, max_positions, encode_fn):
        limit = _limit(cfg, max_positions)
        if limit is not None and not cfg.dataset.skip_invalid_size_inputs_valid_test:
            task = _TaskThatCuts(task, limit, first_id)
        return original(lines, cfg, task, max_positions, encode_fn)


REPAIR = Repair(
    why="one line that is longer than the model takes, or that is not UTF-8, ends fairseq-interactive, and the lines "
    "after it are lost",
    remedy=_apply,
    command="interactive",
)
