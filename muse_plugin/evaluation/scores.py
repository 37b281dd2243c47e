"""The measures that an evaluation computes, each with its references, and their statistics per sentence.

All scores are on 0-100; of TER, which counts edits, less is better and more than 100 is possible. The statistics of the
single sentences add up to those of any set of sentences: the corpus, a length bucket, a bootstrap sample.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Score

from muse_plugin.evaluation.bleu import format_bleu, make_tokenized_bleu, protect_spaces, split_compounds
from muse_plugin.evaluation.text_forms import TextForms

TITLES = {
    "tokenized_bleu": "tokenised BLEU",
    "compound_split_bleu": "tokenised BLEU, compounds split",
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
}
ON_WORDS = ("tokenized_bleu", "compound_split_bleu")
LOWER_IS_BETTER = ("ter",)

Statistics = list[list[float]]  # a row for each sentence


class Measure(NamedTuple):
    """One kind of score with the references it compares with.

    Attributes:
        name: a key of ``TITLES``.
        metric: sacreBLEU's metric, its references already counted.
    """

    name: str
    metric: Metric

    @property
    def signature(self) -> str:
        """SacreBLEU's signature: all settings that change the number."""
        return str(self.metric.get_signature())

    def collect(self, forms: TextForms) -> Statistics:
        """Counts, for each sentence of a system, what the score is computed from."""
        return self.metric._extract_corpus_statistics(_select_texts(self.name, forms), None)

    def compute(self, statistics: Statistics) -> Score:
        """Computes the score of a set of sentences, on 0-100."""
        return self.metric._aggregate_and_compute(statistics)


def make_measures(
    references: TextForms,
    lowercase: bool = False,
    compound_split: bool = False,
    ter: bool = True,
    target_lang: Optional[str] = None,
) -> list[Measure]:
    """Makes the measures that the forms of the references allow.

    Args:
        references: one reference for each sentence.
        lowercase: if true, case counts in no score; TER ignores it anyway, as is sacreBLEU's default.
        compound_split: whether to add ``compound_split_bleu``.
        ter: whether to add TER, which takes longer than all others together.
        target_lang: sacreBLEU tokenises zh, ja and ko in their own ways.

    Returns:
        Measures in the order of ``TITLES``.

    Raises:
        ImportError: if sacreBLEU needs a tokeniser that is not installed, for ja or ko.
    """
    texts = {name: lines for name in TITLES if (lines := _select_texts(name, references)) is not None}
    if not compound_split:
        texts.pop("compound_split_bleu", None)
    if not ter:
        texts.pop("ter", None)
    return [Measure(name, _make_metric(name, lines, lowercase, target_lang)) for name, lines in texts.items()]


def _select_texts(name: str, forms: TextForms) -> Optional[list[str]]:
    if name not in ON_WORDS:
        return forms.raw
    if forms.words is None:
        return None
    words = protect_spaces(forms.words)
    return split_compounds(words) if name == "compound_split_bleu" else words


def _make_metric(name: str, references: Sequence[str], lowercase: bool, target_lang: Optional[str]) -> Metric:
    if name in ON_WORDS:
        return make_tokenized_bleu(references, lowercase)
    if name == "chrf":
        return CHRF(lowercase=lowercase, references=[references])
    if name == "ter":
        return TER(references=[references])
    try:
        return BLEU(lowercase=lowercase, trg_lang=target_lang or "", references=[references])
    except RuntimeError as error:  # ja and ko need a dictionary
        raise ImportError(f"BLEU for '{target_lang}' needs a tokeniser: {' '.join(str(error).split())}") from error


def describe_score(name: str, score: Score) -> dict[str, Any]:
    """Returns a score as numbers for JSON; BLEU with all that multi-bleu.perl prints."""
    described: dict[str, Any] = {"score": score.score}
    if name in (*ON_WORDS, "bleu"):
        described |= {"precisions": score.precisions, "bp": score.bp, "ratio": score.ratio}
        described |= {"hyp_len": score.sys_len, "ref_len": score.ref_len}
    if name in ON_WORDS:
        described["line"] = format_bleu(score)
    return described
