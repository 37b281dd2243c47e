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
from itertools import pairwise
from math import exp, log
from typing import Any, BinaryIO, Callable, NamedTuple, Optional, Union

from subword_nmt.apply_bpe import BPE, check_vocab_and_split

MARKER = "@@"
SPACE_MARK = "\u2581"
SPECIAL = frozenset(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
# After so many random segmentations with symbols that the dictionary lacks, a word is segmented without dropout.
TRIES = 10

_NEVER = 1 << 60  # the rank of a pair that no merge joins
_KNOWN_WORDS = 100_000  # about 130 MB
_LINES_PER_WRITE = 1000


class _Outcome(NamedTuple):
    """A segmentation that makes every merge after some draw.

    Attributes:
        probability: of leaving out nothing after that draw.
        ids: the segmentation.
    """

    probability: float
    ids: list[int]


class _Word(NamedTuple):
    """What is remembered of a word.

    Attributes:
        plain: leaves out nothing at all.
        unknown: how many of its ids stand for unknown symbols.
        branches: by the number of the only draw left out, what it leads to; filled as they are met.
        symbols: the characters, the last one with the mark of the end of a word.
        ranks: for each two neighbouring symbols, which merge joins them.
    """

    plain: _Outcome
    unknown: int
    branches: dict[int, _Outcome]
    symbols: list[str]
    ranks: list[int]


class LineSegmenter:
    """Segments words by the merges of subword-nmt, each possible merge left out with some probability.

    Source: Provilkov et al. 2020, arXiv:1910.13267, Algorithm 1, in the form of ``subword-nmt apply-bpe --dropout``:
    in every step all pairs that a merge could join are left out independently, and the first merge in the list that
    is left is made; if none is left, the word is finished. The probabilities of all segmentations are the same as
    there, the random numbers behind them are not: the first pair to be left out is drawn at once instead of pair by
    pair, and only pairs that could be next are drawn at all, which is several times quicker.

    As with ``apply-bpe --vocabulary``, merges are undone whose result is not in the dictionary. Characters that the
    dictionary does not know can remain. If so, the word is drawn again, up to ``TRIES`` times, unless it has as many
    without dropout: dropout never adds unknown symbols.

    Args:
        codes: content of a codes file of subword-nmt, with its ``#version: 0.2`` line.
        indices: symbol to id, of the dictionary.
        unknown: id for symbols that are not in ``indices``.
        end: id that ends each line.
        dropout: probability in [0, 1) of leaving out a merge.

    Attributes:
        drawn: words segmented at random so far, other than by making all merges.
        redrawn: how many segmentations were drawn again because of unknown symbols.
    """

    def __init__(self, codes: str, indices: dict[str, int], unknown: int, end: int, dropout: float) -> None:
        bpe = BPE(io.StringIO(codes))
        self._parts = bpe.bpe_codes_reverse
        self._prepare(bpe.bpe_codes, indices, unknown, end, dropout)

    def _prepare(self, ranks: Any, indices: dict[str, int], unknown: int, end: int, dropout: float) -> None:
        self._ranks = ranks
        self._indices = indices
        self._unknown = unknown
        self._end = end
        self._dropout = dropout
        self._log_kept = log(1 - dropout)
        self._words: dict[str, _Word] = {}
        self.drawn = 0
        self.redrawn = 0

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line.

        Args:
            line: words separated by spaces.
            key: what the random numbers depend on, and nothing else.

        Returns:
            Ids, the one that ends the line included.
        """
        next_random = random.Random(key).random
        words = self._words
        ids: list[int] = []
        for text in line.strip("\r\n ").split(" "):
            word = words.get(text)
            if word is None:
                if not text:
                    continue
                word = self._learn(text)
            chance = next_random()
            probability, plain = word.plain
            ids += plain if chance < probability else self._draw(word, chance, next_random)
        ids.append(self._end)
        return ids

    def _learn(self, text: str) -> _Word:
        symbols = self._spell(text)
        ranks = [self._ranks.get(pair, _NEVER) for pair in pairwise(symbols)]
        plain = self._leave_out(symbols, ranks)
        word = _Word(plain, plain.ids.count(self._unknown), {}, symbols, ranks)
        if len(self._words) >= _KNOWN_WORDS:
            self._words.clear()  # the frequent ones will soon be back
        self._words[text] = word
        return word

    def _spell(self, text: str) -> list[str]:
        return [*text[:-1], f"{text[-1]}</w>"]

    def _leave_out(self, symbols: list[str], ranks: list[int], *draws: int) -> _Outcome:
        merged, count = self._merge(symbols, ranks, draws)
        kept = count - 1 - draws[-1] if draws else count
        return _Outcome(max((1 - self._dropout) ** kept, sys.float_info.min), self._look_up(merged))

    def _draw(self, word: _Word, chance: float, next_random: Callable[[], float]) -> list[int]:
        """Segments a word given that something is left out.

        Args:
            word: what to segment.
            chance: random number that is not below ``word.plain.probability``.
            next_random: gives random numbers in [0, 1).
        """
        self.drawn += 1
        for _ in range(TRIES):
            # The number of draws before the first that leaves something out has a geometric distribution.
            first = int(log(chance) / self._log_kept)
            branch = word.branches.get(first)
            if branch is None:
                branch = word.branches[first] = self._leave_out(word.symbols, word.ranks, first)
            chance = next_random()
            if chance < branch.probability:
                ids = branch.ids
            else:
                second = first + 1 + int(log(chance) / self._log_kept)
                ids = self._look_up(self._merge(word.symbols, word.ranks, (first, second), next_random)[0])
            if ids.count(self._unknown) <= word.unknown:
                return ids
            self.redrawn += 1
            chance = next_random()
            if chance < word.plain.probability:
                break
        return word.plain.ids

    def _merge(
        self,
        symbols: list[str],
        ranks: list[int],
        draws_left_out: tuple[int, ...],
        next_random: Optional[Callable[[], float]] = None,
    ) -> tuple[list[str], int]:
        """Joins symbols until no merge is left.

        Args:
            symbols: of the word; not changed.
            ranks: of its pairs; not changed.
            draws_left_out: numbers of draws, counted from 0 and increasing, that leave out a pair.
            next_random: decides the draws after those; None keeps the pairs.

        Returns:
            The joined symbols, and the number of draws.
        """
        symbols, ranks = symbols.copy(), ranks.copy()
        last = draws_left_out[-1] if draws_left_out else -1
        draws = 0
        left_out: list[tuple[int, int]] = []  # in this step: place and rank
        while ranks:
            rank = min(ranks)
            if rank == _NEVER:
                break
            place = ranks.index(rank)
            places = [place] if ranks.count(rank) == 1 else [i for i, other in enumerate(ranks) if other == rank]
            kept: list[int] = []
            for place in places:
                if draws <= last or next_random is None:
                    keeps = draws not in draws_left_out
                else:
                    keeps = next_random() >= self._dropout
                draws += 1
                if not keeps:
                    ranks[place] = _NEVER
                    left_out.append((place, rank))
                elif not kept or place > kept[-1] + 1:  # of x x x, the left two are joined
                    kept.append(place)
            if not kept:
                continue
            for place, rank in left_out:
                ranks[place] = rank
            left_out.clear()
            for place in reversed(kept):
                joined = symbols[place] + symbols.pop(place + 1)
                symbols[place] = joined
                del ranks[place]
                if place > 0:
                    ranks[place - 1] = self._ranks.get((symbols[place - 1], joined), _NEVER)
                if place < len(ranks):
                    ranks[place] = self._ranks.get((joined, symbols[place + 1]), _NEVER)
        return symbols, draws

    def _look_up(self, symbols: list[str]) -> list[int]:
        indices = self._indices
        symbols[-1] = symbols[-1][: -len("</w>")]
        try:
            return [*[indices[symbol + MARKER] for symbol in symbols[:-1]], indices[symbols[-1]]]
        except KeyError:
            pass
        pieces = _as_pieces(symbols)
        if not all(piece in indices for piece in pieces):
            pieces = _as_pieces(check_vocab_and_split(symbols, self._parts, indices, MARKER))
        return [indices.get(piece, self._unknown) for piece in pieces]


class SentencePieceModel:
    """What the two segmenters below take from a model of SentencePiece.

    The library draws segmentations itself, but not the same ones in another process, whatever the seed.

    Args:
        model: content of a ``.model`` file.
        indices: symbol to id, of the dictionary.

    Attributes:
        scores: of the pieces that the dictionary has: logarithms of probabilities, or of a BPE model the order of its
            merges, with a minus.
        is_bpe: whether this is a BPE model.
    """

    def __init__(self, model: bytes, indices: dict[str, int]) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = processor = SentencePieceProcessor(model_proto=model)
        numbers = range(processor.GetPieceSize())
        scores = {processor.IdToPiece(i): processor.GetScore(i) for i in numbers if not processor.IsControl(i)}
        self._known = scores.keys()
        self.is_bpe = all(score.is_integer() for score in scores.values())
        self.scores = {piece: score for piece, score in scores.items() if piece in indices and piece not in SPECIAL}

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
    """Segments words as ``LineSegmenter`` does, by the merges of a BPE model of SentencePiece.

    Args:
        model: the model.
        indices: see ``LineSegmenter``, like all that follow.
        unknown: id for symbols that are not in ``indices``.
        end: id that ends each line.
        dropout: probability in (0, 1) of leaving out a merge.
    """

    def __init__(
        self, model: SentencePieceModel, indices: dict[str, int], unknown: int, end: int, dropout: float
    ) -> None:
        self._model = model
        self._prepare(_JoinedRanks(model.scores), indices, unknown, end, dropout)

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line; see ``LineSegmenter``."""
        return super().__call__(" ".join(self._model.list_words(line)), key)

    def _spell(self, text: str) -> list[str]:
        return list(text)

    def _look_up(self, symbols: list[str]) -> list[int]:
        return [self._indices.get(symbol, self._unknown) for symbol in symbols]


class _JoinedRanks:
    """The rank of a merge, which in a model of SentencePiece depends on its result alone."""

    def __init__(self, scores: dict[str, float]) -> None:
        self._scores = scores

    def get(self, pair: tuple[str, str], default: int) -> int:
        score = self._scores.get(pair[0] + pair[1])
        return default if score is None else int(-score)


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

    Attributes:
        drawn: words segmented so far, unless ``smoothing`` is 0.
        redrawn: 0; as for ``LineSegmenter``.
    """

    redrawn = 0

    def __init__(
        self, model: SentencePieceModel, indices: dict[str, int], unknown: int, end: int, smoothing: float
    ) -> None:
        self._model = model
        self._indices = indices
        self._unknown = unknown
        self._end = end
        self._smoothing = smoothing
        self._rare = min(model.scores.values(), default=0.0) - 10  # of characters that are no pieces, as the library
        self._longest = max(map(len, model.scores), default=1)
        self._words: dict[str, list[tuple[list[float], list[int]]]] = {}
        self.drawn = 0

    def __call__(self, line: str, key: str) -> list[int]:
        """Segments one line; see ``LineSegmenter``."""
        get, unknown = self._indices.get, self._unknown
        if not self._smoothing:
            return [*[get(piece, unknown) for piece in self._model.cut(line)], self._end]
        choose = random.Random(key).choices
        ids: list[int] = []
        for word in self._model.list_words(line):
            ends = self._words.get(word)
            if ends is None:
                ends = self._learn(word)
            pieces: list[str] = []
            end = len(word)
            while end:
                weights, starts = ends[end]
                start = starts[0] if len(starts) == 1 else choose(starts, weights)[0]
                pieces.append(word[start:end])
                end = start
            ids += [get(piece, unknown) for piece in reversed(pieces)]
            self.drawn += 1
        ids.append(self._end)
        return ids

    def _learn(self, word: str) -> list[tuple[list[float], list[int]]]:
        """For each end of a piece its possible starts, with their weights."""
        ends: list[tuple[list[float], list[int]]] = [([], [])]
        sums = [0.0]  # logarithms, of all segmentations up to a place
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._model.scores.get(word[start:end], self._rare if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    logs.append(sums[start] + self._smoothing * score)
            highest = max(logs)
            weights = [exp(value - highest) for value in logs]
            sums.append(highest + log(sum(weights)))
            ends.append((weights, starts))
        if len(self._words) >= _KNOWN_WORDS:
            self._words.clear()  # the frequent ones will soon be back
        self._words[word] = ends
        return ends


def make_segmenter(side: dict[str, Any]) -> Union[LineSegmenter, PieceSampler]:
    """Makes what segments one language of a job."""
    rest = (side["indices"], side["unknown"], side["end"], side["dropout"])
    if side["codes"].startswith("#version:"):
        return LineSegmenter(side["codes"], *rest)
    model = SentencePieceModel(base64.b64decode(side["codes"]), side["indices"])
    return (PieceMerger if model.is_bpe and side["dropout"] else PieceSampler)(model, *rest)


def _as_pieces(symbols: list[str]) -> list[str]:
    # fairseq divides a line at every kind of white space, subword-nmt at spaces only.
    return " ".join([*[symbol + MARKER for symbol in symbols[:-1]], symbols[-1]]).split()


def segment_side(side: dict[str, Any], seed: int, epoch: int, parent: int, output: BinaryIO) -> list[int]:
    """Segments consecutive lines of one language and writes their ids, then their lengths.

    Args:
        side: of a job, see ``main``.
        seed: of the training.
        epoch: for which to segment.
        parent: id of the process that wants the result.
        output: gets the ids as machine integers of type ``side["typecode"]``, then one 32-bit length per line.

    Returns:
        The number of ids, of words segmented at random, and of segmentations drawn again.

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
    return [count + len(ids), segment.drawn, segment.redrawn]


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
    facts = array("q")
    for side in job["sides"]:
        facts.extend(segment_side(side, job["seed"], job["epoch"], job["parent"], output))
    facts.tofile(output)
    output.flush()


if __name__ == "__main__":
    main()
