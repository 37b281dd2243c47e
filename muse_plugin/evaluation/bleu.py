"""Tokenised BLEU, to the digits of Moses' multi-bleu.perl: words as they are, no smoothing.

Published numbers for WMT14 and IWSLT are of this kind, and compare only where the tokenisation is the same; sacreBLEU
(``scores.py``) has its own tokenisation instead. Counting and formula are sacreBLEU's. What this file adds is what Perl
does differently: words end at ASCII white space only, so that a non-breaking space is part of a word.
"""

import re
from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.bleu import BLEUScore

# White space to Python but not to Perl reading bytes; while words are counted, each is a character of the private area.
_INNER_SPACES = (
    "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)
_AS_LETTERS = {ord(space): chr(0xF0000 + number) for number, space in enumerate(_INNER_SPACES)}

_INNER_HYPHEN = re.compile(r"(\S)-(\S)", flags=re.ASCII)


def make_tokenized_bleu(references: Sequence[str], lowercase: bool = False) -> BLEU:
    """Makes the metric; hypotheses and references have to pass ``protect_spaces`` first.

    Args:
        references: one for each sentence, words separated by spaces.
        lowercase: if true, case does not count; ``multi-bleu.perl -lc`` would leave letters outside ASCII.

    Returns:
        sacreBLEU's metric, on 0-100. BLEU is 0 if there is no match of one of the four lengths.
    """
    return BLEU(lowercase=lowercase, force=True, tokenize="none", smooth_method="none", references=[references])


def protect_spaces(lines: Sequence[str]) -> list[str]:
    """Makes white space outside ASCII part of its word, as it is to multi-bleu.perl."""
    return [line if line.isascii() and line.isprintable() else line.translate(_AS_LETTERS) for line in lines]


def split_compounds(lines: Sequence[str]) -> list[str]:
    r"""Sets hyphens within words apart, ``a-b`` as ``a ##AT##-##AT## b``, as published WMT14 English-German scores do.

    The meaning is that of ``s/(\S)-(\S)/$1 ##AT##-##AT## $2/g``: from left to right, and a letter between two hyphens
    belongs to the first, so that ``a-b-c`` keeps its second one.
    """
    return [_INNER_HYPHEN.sub(r"\1 ##AT##-##AT## \2", line) for line in lines]


def format_bleu(score: BLEUScore) -> str:
    """Writes a score as multi-bleu.perl prints it.

    Without a word in the hypotheses, where that program divides by zero, BLEU and BP are 0.
    """
    if score.ref_len == 0:
        return "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"
    precisions = "/".join(f"{precision:.1f}" for precision in score.precisions)
    lengths = f"ratio={score.ratio:.3f}, hyp_len={score.sys_len}, ref_len={score.ref_len}"
    return f"BLEU = {score.score:.2f}, {precisions} (BP={score.bp:.3f}, {lengths})"
