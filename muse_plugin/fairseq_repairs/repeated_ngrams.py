"""Makes --no-repeat-ngram-size work without fairseq's CUDA extension, where it does nothing."""

import math

from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair


def _no_repeat_ngram(
    self: NGramRepeatBlock, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Sets the score of each token that would complete an n-gram for the second time to minus infinity, in place.

    Args:
        self: the block, with n in ``no_repeat_ngram_size``.
        tokens: hypotheses, shape (sentences * beam, room); column 0 is end-of-sentence, columns 1 to ``step`` are
            written, the rest is padding.
        lprobs: log-probabilities of the next token, shape (sentences * beam, V).
        bsz: sentences.
        beam_size: hypotheses of each.
        step: tokens written so far.

    Returns:
        ``lprobs``.
    """
    n = self.no_repeat_ngram_size
    if step >= n:
        written = tokens[:, 1 : step + 1]
        ngrams = written.unfold(1, n, 1)  # (rows, step - n + 1, n)
        latest = written[:, step - n + 1 :].unsqueeze(1)  # (rows, 1, n - 1)
        row, place = (ngrams[:, :, : n - 1] == latest).all(dim=2).nonzero(as_tuple=True)
        lprobs[row, ngrams[row, place, n - 1]] = -math.inf
    return lprobs


def _apply() -> None:
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


REPAIR = Repair(
    why="without its CUDA extension, --no-repeat-ngram-size compares with the end of the padded token buffer instead "
    "of the latest tokens, and forbids nothing",
    remedy=_apply,
)
