"""Makes fairseq work without its compiled extensions, which need a C++ compiler where it is installed."""

import importlib
import importlib.util
import sys
from collections import Counter

import torch
from fairseq.scoring import bleu
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair

_BATCHING = ("data.data_utils_fast", "data.token_block_utils_fast")
_BLEU = "libbleu"
_NO_WORD = -1  # in a reference, in place of an unknown word: matches nothing


def find_uncompiled() -> list[str]:
    """Names the extensions that the commands of fairseq use and that are not there as compiled code."""
    return [name for name in (*_BATCHING, _BLEU) if not is_compiled(name)]


def is_compiled(extension: str) -> bool:
    """Whether an extension of fairseq, such as ``data.data_utils_fast``, is there as compiled code."""
    found = importlib.util.find_spec(f"fairseq.{extension}")
    return found is not None and not str(found.origin).endswith(".py")  # a stand-in is a file of Python


def _apply() -> None:
    uncompiled = find_uncompiled()
    for name in set(_BATCHING).intersection(uncompiled):
        sys.modules[f"fairseq.{name}"] = importlib.import_module(f"muse_plugin.fairseq_stand_ins.{name}")
    if _BLEU in uncompiled:
        bleu.Scorer.__init__ = _begin
        bleu.Scorer.reset = _reset
        bleu.Scorer.add = _add


def _begin(self: bleu.Scorer, cfg: bleu.BleuConfig) -> None:
    self.pad, self.eos, self.unk = cfg.pad, cfg.eos, cfg.unk
    self.reset()


def _reset(self: bleu.Scorer, one_init: bool = False) -> None:
    """Forgets all sentences; with ``one_init`` the counts of more than one word begin at 1."""
    self.stat = bleu.BleuStat(0, 0, 0, 0, *[int(one_init)] * 6)


def _add(self: bleu.Scorer, ref: Tensor, pred: Tensor) -> None:
    """Counts the n-grams of a translation, and those of them that its reference has, too.

    Args:
        self: the scorer.
        ref: tokens of the reference, shape (T,), int32.
        pred: tokens of the translation, shape (S,), int32.

    Raises:
        TypeError: if one is no IntTensor.
    """
    for name, tokens in (("ref", ref), ("pred", pred)):
        if not isinstance(tokens, torch.IntTensor):
            raise TypeError(f"{name} must be a torch.IntTensor, but got {type(tokens).__name__}; convert it by .int().")
    reference = _trim([_NO_WORD if token == self.unk else token for token in ref.tolist()], self.pad, self.eos)
    translation = _trim(pred.tolist(), self.pad, self.eos)
    self.stat.reflen += len(reference)
    self.stat.predlen += len(translation)
    for order in range(1, 5):
        counts, expected = _count_ngrams(translation, order), _count_ngrams(reference, order)
        for name, number in (("count", counts.total()), ("match", (counts & expected).total())):
            setattr(self.stat, f"{name}{order}", getattr(self.stat, f"{name}{order}") + number)


def _trim(tokens: list[int], pad: int, eos: int) -> list[int]:
    """Takes off padding on the left, padding and end-of-sentence on the right; a first token stays."""
    while tokens and tokens[0] == pad:
        tokens = tokens[1:]
    while len(tokens) > 1 and tokens[-1] in (pad, eos):
        tokens = tokens[:-1]
    return tokens


def _count_ngrams(tokens: list[int], order: int) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(order)), strict=False))


REPAIR = Repair(
    why="without a C++ compiler fairseq is installed without its extensions: no sentences are gathered into batches, "
    "and fairseq-generate computes no BLEU",
    remedy=_apply,
    concerns=lambda: bool(find_uncompiled()),
)
