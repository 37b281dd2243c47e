"""Random subwords of lines of words, and the program of the processes that draw them in the background.

Run by its path, with a job as JSON on standard input (see ``main``). So that such a process starts in a moment and
stays small, this file imports nothing but the standard library, subword-nmt and sentencepiece: no torch, no fairseq,
and not the package that it is in, whose import would bring both.
"""

import base64
import gc
import io
import json
import os
import random
import re
import sys
from array import array
from functools import lru_cache, partial
from itertools import chain
from math import exp, log
from typing import Any, BinaryIO, Union

from subword_nmt.apply_bpe import BPE, encode

MARKER = "@@"
SPACE_MARK = "\u2581"
SPECIAL = frozenset(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
# After so many random segmentations with symbols that the dictionary lacks, a word is segmented without dropout.
TRIES = 10

_KNOWN_WORDS = 100_000  # that are remembered
_LONGEST_WORD = 200  # characters; a longer one is cut as several
_LINES_PER_WRITE = 1000


class LineSegmenter:
    """Segments words by subword-nmt, each possible merge left out with some probability.

    Source: Provilkov et al. 2020, arXiv:1910.13267, Algorithm 1, as in ``subword-nmt apply-bpe --dropout``: in every
    step each pair that a merge could join is left out or not, and the first merge in the list that is left is made; if
    none is left, the word is finished.

    As with ``apply-bpe --vocabulary``, merges are undone whose result is not in the dictionary. Characters that the
    dictionary does not know can remain. If so, the word is drawn again, up to ``TRIES`` times, unless it has as many
    without dropout: dropout never adds unknown symbols.

    Args:
        codes: content of a codes file of subword-nmt, with its ``#version: 0.2`` line.
        indices: symbol to id, of the dictionary.
        unknown: id for symbols that are not in ``indices``.
        end: id that ends each line.
        dropout: probability in [0, 1) of leaving out a merge.
    """

    def __init__(self, codes: str, indices: dict[str, int], unknown: int, end: int, dropout: float) -> None:
        self._bpe = BPE(io.StringIO(codes))
        self._prepare(indices, unknown, end, dropout)

    def _prepare(self, indices: dict[str, int], unknown: int, end: int, dropout: float) -> None:
        self._indices = indices
        self._unknown = unknown
        self._end = end
        self._dropout = dropout
        self._segment_plainly = lru_cache(_KNOWN_WORDS)(partial(self._segment, dropout=0))

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line.

        Args:
            line: words separated by spaces.
            key: what the random numbers depend on, and nothing else.

        Returns:
            Ids, the one that ends the line included.
        """
        if self._dropout:
            random.seed(key)  # what subword-nmt takes its numbers from
        words = filter(None, line.strip("\r\n ").split(" "))
        return [*chain.from_iterable(map(self._draw, words)), self._end]

    def _draw(self, word: str) -> list[int]:
        plain = self._segment_plainly(word)
        if self._dropout:
            unknown = plain.count(self._unknown)
            for _ in range(TRIES):
                ids = self._segment(word, self._dropout)
                if ids.count(self._unknown) <= unknown:
                    return ids
        return plain

    def _segment(self, word: str, dropout: float) -> list[int]:
        bpe = self._bpe
        # Its cache would hold what was drawn at random.
        codes = bpe.bpe_codes, bpe.bpe_codes_reverse, self._indices, MARKER, bpe.version, {}
        symbols: list[str] = []
        for start in range(0, len(word), _LONGEST_WORD):  # as the text pipeline does
            cut = encode(word[start : start + _LONGEST_WORD], *codes, dropout=dropout)
            symbols += [*cut[:-1], *(cut[-1] if len(cut) > 1 and cut[-1] in SPECIAL else cut[-1:])]
        # fairseq divides a line at every kind of white space, subword-nmt at spaces only.
        pieces = " ".join([*[symbol + MARKER for symbol in symbols[:-1]], symbols[-1]]).split()
        return [self._indices.get(piece, self._unknown) for piece in pieces]


class SentencePieceModel:
    """What the two segmenters below take from a model of SentencePiece.

    The library draws segmentations itself, but not the same ones in another process, whatever the seed.

    Args:
        model: content of a ``.model`` file.

    Attributes:
        scores: of its pieces: logarithms of probabilities, or of a BPE model the order of its merges, with a minus.
        is_bpe: whether this is a BPE model.
    """

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = processor = SentencePieceProcessor(model_proto=model)
        numbers = range(processor.GetPieceSize())
        scores = {processor.IdToPiece(i): processor.GetScore(i) for i in numbers if not processor.IsControl(i)}
        self._known = scores.keys()
        self.is_bpe = all(score.is_integer() for score in scores.values())
        self.scores = {piece: score for piece, score in scores.items() if piece not in SPECIAL}

    def cut(self, line: str) -> list[str]:
        """Returns the pieces of the best segmentation."""
        pieces: list[str] = []
        for piece in self._processor.EncodeAsPieces(" ".join(line.split())):
            pieces.extend(piece if piece in SPECIAL else (piece,))  # as the text pipeline does
        return pieces

    def list_words(self, line: str) -> list[str]:
        """Returns the words of a line as the model sees them, each with its mark of a space.

        Neighbours that are no pieces are one unknown symbol for the model; their first character stands for them.
        """
        pieces = [piece if piece in self._known else piece[0] for piece in self.cut(line)]
        return re.findall(f"{SPACE_MARK}?[^{SPACE_MARK}]+|{SPACE_MARK}", "".join(pieces))


class PieceMerger(LineSegmenter):
    """Segments words as ``LineSegmenter`` does, with its arguments, by the merges of a BPE model of SentencePiece."""

    def __init__(
        self, model: SentencePieceModel, indices: dict[str, int], unknown: int, end: int, dropout: float
    ) -> None:
        self._model = model
        self._merges = _JoinedMerges(model.scores)
        self._prepare(indices, unknown, end, dropout)

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line; see ``LineSegmenter``."""
        return super().__call__(" ".join(self._model.list_words(line)), key)

    def _segment(self, word: str, dropout: float) -> list[int]:
        # Of version 0.1, whose mark of the end of a word is a symbol of its own, which no merge joins.
        symbols = encode(word, self._merges, {}, None, "", (0, 1), {}, dropout=dropout)
        return [self._indices.get(symbol, self._unknown) for symbol in symbols]


class _JoinedMerges:
    """The merges of a model of SentencePiece: any two symbols that together are a piece, in the order of its score."""

    def __init__(self, scores: dict[str, float]) -> None:
        self._scores = scores

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair[0] + pair[1] in self._scores

    def __getitem__(self, pair: tuple[str, str]) -> float:
        return -self._scores[pair[0] + pair[1]]


class PieceSampler:
    """Draws from all segmentations of a word by a unigram model of SentencePiece.

    Source: Kudo 2018, arXiv:1804.10959, section 3.2, with all segmentations in place of the best ones: the probability
    of each is its probability by the model to the power of ``smoothing``, normalised. Forward filtering, backward
    sampling.

    Args:
        model: the model.
        indices: symbol to id, of the dictionary; it has only pieces that are in there, and all characters.
        unknown: id for characters that are not in ``indices``.
        end: id that ends each line.
        smoothing: 0 for the best segmentation alone; the smaller otherwise, the more segmentations differ.
    """

    def __init__(
        self, model: SentencePieceModel, indices: dict[str, int], unknown: int, end: int, smoothing: float
    ) -> None:
        self._model = model
        self._indices = indices
        self._unknown = unknown
        self._end = end
        self._smoothing = smoothing
        self._scores = {piece: score for piece, score in model.scores.items() if piece in indices}
        self._rare = min(self._scores.values(), default=0.0) - 10  # of characters that are no pieces, as the library
        self._longest = max(map(len, self._scores), default=1)
        self._weigh = lru_cache(_KNOWN_WORDS)(self._weigh_starts)

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line; see ``LineSegmenter``."""
        get, unknown = self._indices.get, self._unknown
        if not self._smoothing:
            return [*[get(piece, unknown) for piece in self._model.cut(line)], self._end]
        choose = random.Random(key).choices
        ids: list[int] = []
        for word in self._model.list_words(line):
            ends = self._weigh(word)
            pieces: list[str] = []
            end = len(word)
            while end:
                weights, starts = ends[end]
                start = starts[0] if len(starts) == 1 else choose(starts, weights)[0]
                pieces.append(word[start:end])
                end = start
            ids += [get(piece, unknown) for piece in reversed(pieces)]
        ids.append(self._end)
        return ids

    def _weigh_starts(self, word: str) -> list[tuple[list[float], list[int]]]:
        """For each end of a piece its possible starts, with their weights."""
        ends: list[tuple[list[float], list[int]]] = [([], [])]
        sums = [0.0]  # logarithms, of all segmentations up to a place
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end], self._rare if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    logs.append(sums[start] + self._smoothing * score)
            highest = max(logs)
            weights = [exp(value - highest) for value in logs]
            sums.append(highest + log(sum(weights)))
            ends.append((weights, starts))
        return ends


def make_segmenter(side: dict[str, Any]) -> Union[LineSegmenter, PieceSampler]:
    """Makes what segments one language of a job."""
    rest = (side["indices"], side["unknown"], side["end"], side["dropout"])
    if side["codes"].startswith("#version:"):
        return LineSegmenter(side["codes"], *rest)
    model = SentencePieceModel(base64.b64decode(side["codes"]))
    return (PieceMerger if model.is_bpe and side["dropout"] else PieceSampler)(model, *rest)


def segment_side(side: dict[str, Any], seed: int, epoch: int, parent: int, output: BinaryIO) -> int:
    """Segments consecutive lines of one language and writes their ids, then their lengths.

    Args:
        side: of a job, see ``main``.
        seed: of the training.
        epoch: for which to segment.
        parent: id of the process that wants the result.
        output: gets the ids as machine integers of type ``side["typecode"]``, then one 32-bit length per line.

    Returns:
        The number of ids.

    Raises:
        ValueError: if the file has fewer lines than the job says.
    """
    segment = make_segmenter(side)
    ids, lengths, count = array(side["typecode"]), array("i"), 0
    with open(side["path"], "rb") as file:
        file.seek(side["start"])
        for number in range(side["first_line"], side["first_line"] + side["lines"]):
            raw = file.readline()
            if not raw:
                raise ValueError(f"{side['path']} ends before line {number + 1}")
            line = segment(raw.decode("utf-8"), f"{seed} {epoch} {side['name']} {number}")
            ids.extend(line)
            lengths.append(len(line))
            if len(lengths) % _LINES_PER_WRITE == 0:
                count += len(ids)
                ids.tofile(output)
                del ids[:]
                if os.getppid() != parent:  # nobody is waiting any more
                    sys.exit(1)
    ids.tofile(output)
    lengths.tofile(output)
    return count + len(ids)


def main() -> None:
    """Reads a job from standard input and writes the result to standard output.

    The job has ``seed``, ``epoch``, ``parent`` (the id of the process that wants the result), ``ahead`` (whether that
    does not wait for it yet) and ``sides``, each with ``name``, ``path``, ``start`` (byte), ``first_line`` (counted
    from 0), ``lines`` (how many), ``typecode`` (of ``array.array``) and the arguments of ``LineSegmenter``, where
    ``codes`` may also be a SentencePiece model in base64. The result is what ``segment_side`` writes for each of them,
    then what it returns for each of them, as 64-bit integers.
    """
    gc.disable()  # a hundred thousand small lists and no cycles: the collector would take half of the time
    job = json.load(sys.stdin)
    if job["ahead"] and hasattr(os, "nice"):
        os.nice(5)  # the training goes first
    output = sys.stdout.buffer
    counts = [segment_side(side, job["seed"], job["epoch"], job["parent"], output) for side in job["sides"]]
    array("q", counts).tofile(output)
    output.flush()


if __name__ == "__main__":
    main()
