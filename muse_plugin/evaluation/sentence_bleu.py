"""The mean of sentence BLEU, which the MUSE paper's Figure 7 shows by source length.

The paper names no formula. On the authors' own translations, NLTK's smoothing method 1 gives the curve of the figure
(35.77, 33.49, 32.13 for up to 15, 30 and 45 source words; published 35.76, 33.42, 32.12), BLEU of all sentences of a
bucket together does not (38.34, 36.43, 34.82).
"""

import math
from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Score

from muse_plugin.evaluation.scores import TITLES, Measure, Statistics

MEAN_SENTENCE_BLEU = "mean_sentence_bleu"
LENGTH_TITLES = {**TITLES, MEAN_SENTENCE_BLEU: "mean sentence BLEU"}

_SMALL = 0.1  # epsilon of Chen and Cherry 2014, method 1: matches that are counted where there are none


def compute_sentence_bleu(counts: Sequence[float]) -> float:
    """BLEU of one sentence with smoothing method 1 of Chen and Cherry 2014, as NLTK's ``sentence_bleu`` has it.

    An n-gram length without a match counts as 0.1 matches; without a matching word, the score is 0.

    Args:
        counts: sacreBLEU's statistics of the sentence: words of hypothesis and reference, matches by n-gram length,
            n-grams of the hypothesis by length.

    Returns:
        The score, 0-100.
    """
    words, expected, *found = counts
    order = len(found) // 2
    matches, totals = found[:order], [max(total, 1) for total in found[order:]]
    return float(BLEU.compute_bleu(matches, totals, words, expected, "floor", _SMALL).score)


class _Mean:
    """The mean of numbers, as sacreBLEU's metrics are called; a sentence's statistics are its number and 1."""

    def _aggregate_and_compute(self, statistics: Statistics) -> Score:
        return self._compute_score_from_stats([math.fsum(column) for column in zip(*statistics, strict=True)])

    def _compute_score_from_stats(self, added: Sequence[float]) -> Score:
        return Score("BLEU", float(added[0]) / float(added[1]))


# What is computed from the rows of ``score_sentences``.
MEAN_OF_SENTENCES = Measure(MEAN_SENTENCE_BLEU, _Mean())  # type: ignore[arg-type]


def score_sentences(statistics: Statistics) -> Statistics:
    """Turns statistics of BLEU into those of ``MEAN_OF_SENTENCES``, which add up in the same way."""
    return [[compute_sentence_bleu(counts), 1.0] for counts in statistics]
