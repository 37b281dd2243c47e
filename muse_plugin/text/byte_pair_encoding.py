"""Cuts words into the sub-words of a codes file of subword-nmt, and learns such a file."""

import io
import re
from collections import Counter
from collections.abc import Iterable

from muse_plugin.text import SPECIAL_SYMBOLS

BPE_MARKER = "@@"
CODES_NAME = "bpe.codes"
_WORD_END = "</w>"  # how codes mark it

# subword-nmt needs time quadratic in the length of a word; a longer one is encoded in stretches of this length.
_LONGEST_WORD = 200
# subword-nmt would remember every word that it has ever seen.
_REMEMBERED_WORDS = 50_000


class BytePairEncoding:
    """Byte-pair encoding with given merges.

    Args:
        codes: content of a codes file, starting with its ``#version:`` line.
        where: what to call it in messages.

    Raises:
        ImportError: if the package subword-nmt is missing.
        ValueError: if ``codes`` is not the content of a codes file.
    """

    def __init__(self, codes: str, where: str = "the given BPE codes") -> None:
        from subword_nmt.apply_bpe import BPE

        check_codes(codes, where)
        self._bpe = BPE(io.StringIO(codes), separator=BPE_MARKER)

    def split(self, words: Iterable[str]) -> list[str]:
        """Returns the sub-words of words; all but the last of a word end with ``@@``.

        None but a whole word reads as a special symbol of a dictionary.
        """
        if len(self._bpe.cache) > _REMEMBERED_WORDS:
            self._bpe.cache.clear()
        pieces: list[str] = []
        for word in words:
            stretches = [word[i : i + _LONGEST_WORD] for i in range(0, len(word), _LONGEST_WORD)]
            for i, stretch in enumerate(stretches):
                cut = self._bpe.segment_tokens([stretch])
                if len(cut) > 1 and cut[-1] in SPECIAL_SYMBOLS:
                    cut[-1:] = f"{BPE_MARKER} ".join(cut[-1]).split()
                pieces.extend(cut)
                if i + 1 < len(stretches):
                    pieces[-1] += BPE_MARKER
        return pieces

    def list_pieces(self) -> list[str]:
        """Returns what the merges make, each once; some only become parts of longer pieces."""
        return [
            merged.removesuffix(_WORD_END) if merged.endswith(_WORD_END) else merged + BPE_MARKER
            for merged in self._bpe.bpe_codes_reverse
        ]

    def can_make(self, piece: str) -> bool:
        """Whether some text has this piece: it is one character or what a merge makes."""
        stem = piece.removesuffix(BPE_MARKER)
        merges = self._bpe.bpe_codes_reverse
        return len(stem) < 2 or (stem in merges and stem != piece) or piece + _WORD_END in merges


def check_codes(codes: str, where: str) -> None:
    """Checks the content of a codes file, since subword-nmt itself ends the process at the first bad line.

    Args:
        codes: the content.
        where: what to call it in messages.

    Raises:
        ValueError: if a line is not as it must be, with its number.
    """
    lines = codes.split("\n")
    if not re.fullmatch(r"#version: 0\.2\r?", lines[0]):
        raise ValueError(
            f"{where} must start with the line '#version: 0.2', but got {lines[0][:40]!r}; give a codes file of "
            "subword-nmt 0.3 or later."
        )
    merges = lines[1:-1] if lines[-1] == "" else lines[1:]
    if not merges:
        raise ValueError(f"{where} must hold at least one merge, but got none; copy the file again.")
    for number, line in enumerate(merges, start=2):
        if len(line.strip("\r\n ").split(" ")) != 2:
            raise ValueError(
                f"{where} must hold two symbols on each line, but line {number} is {line[:40]!r}; copy the file again."
            )


def learn_codes(lines: Iterable[list[str]], num_merges: int) -> bytes:
    """Learns the content of a codes file; the same words give the same, whatever their order.

    Args:
        lines: the words of each line.
        num_merges: merges to learn at most, at least 1.

    Raises:
        ValueError: if ``num_merges`` is below 1, or no word occurs more than once.
    """
    from subword_nmt.learn_bpe import learn_bpe

    if num_merges < 1:
        raise ValueError(f"the number of merges must be at least 1, but got {num_merges}; 1000 to 40000 are usual.")
    counts = Counter(word for words in lines for word in words)
    if not any(count > 1 and len(word) > 1 for word, count in counts.items()):
        raise ValueError(
            f"learning BPE needs words that occur more than once, but got {len(counts)} distinct words and none "
            "of them repeats; give the whole training text."
        )
    codes = io.StringIO()
    # The order of equally frequent pairs depends on the order of the words: sorted, the result is reproducible.
    learn_bpe([f"{word} {count}" for word, count in sorted(counts.items())], codes, num_merges, is_dict=True)
    return codes.getvalue().encode("utf-8")
