"""``muse-plugin match search``: the best matches of each query among cached sentences.

The query is the first sentence of each pair, the one from the corpus the second. The corpus stays on the disk.
"""

import argparse
import functools
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from muse_plugin.files.lines import open_output
from muse_plugin.matching.best_matches import Matches, TopRows, best_columns
from muse_plugin.matching.faiss_index import find_by_index, import_faiss, load_or_build
from muse_plugin.matching.match_output import format_matches
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.sentences import buffer_rows, iterate_sentences, read_words, survey_text
from muse_plugin.matching.vector_cache import Blocks, VectorCache, plan_blocks
from muse_plugin_command.flag_checks import check_apart, check_positive, check_read_twice, check_target
from muse_plugin_command.flags.match import DEFAULT_MEMORY

logger = logging.getLogger(__name__)

_ABSENT = -1  # in place of a row
_LEAST_CANDIDATES = 100
_CANDIDATES_PER_MATCH = 10


class Finder:
    """Finds matches in one corpus, with bounded memory.

    Either the model scores every pair, or a cheaper first stage picks candidates for it: the cosine of the whole
    vectors (exact, in blocks), or an approximate index (``faiss_index.py``).

    Args:
        model: the model.
        corpus: cached vectors.
        k: matches per query.
        output: number of the model's output that counts.
        first_stage: "none", "cosine" or "faiss".
        candidates: that the first stage hands to the model; None for ten times ``k``, at least 100.
        memory: for vectors and scores, in MiB.

    Raises:
        ImportError: if the first stage is faiss and it is missing.
        ValueError: if there would be fewer candidates than matches.
    """

    def __init__(
        self,
        model: PairModel,
        corpus: VectorCache,
        k: int,
        output: int,
        first_stage: str = "none",
        candidates: Optional[int] = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self.model = model
        self.corpus = corpus
        self.k = k
        self.output = output
        self.first_stage = first_stage
        self.candidates = choose_candidates(k, first_stage, candidates)
        self.blocks: Blocks = plan_blocks(memory, model.width, len(model.outputs))
        self.index: Any = None
        if first_stage == "faiss":
            self.index = load_or_build(corpus, memory, self.blocks.corpus)

    def find(self, queries: Tensor) -> Matches:
        """The best matches of queries, shape (Q, R), of which there are at most ``blocks.queries``."""
        if self.first_stage == "none":
            return self._scan(functools.partial(self.model.rank_pairs, queries, output=self.output), queries, self.k)
        return self.rank_candidates(queries, self.find_candidates(queries))

    def find_candidates(self, queries: Tensor) -> Tensor:
        """Rows of the largest cosines with queries, shape (Q, R): int64, (Q, up to ``candidates``), -1 for none."""
        if self.first_stage == "faiss":
            return find_by_index(self.index, queries, self.candidates)
        device = self.model.device
        unit = F.normalize(queries.to(device), dim=1)

        def compare(block: Tensor) -> Tensor:
            return (unit @ F.normalize(block.to(device), dim=1).T).cpu()

        return self._scan(compare, queries, self.candidates).rows

    def _scan(self, rank: Callable[[Tensor], Tensor], queries: Tensor, k: int) -> Matches:
        """Ranks all rows by what ``rank`` makes of a block of them, shape (M, R): values of shape (Q, M)."""
        top = TopRows(len(queries), k)
        with tqdm(total=len(self.corpus), desc="corpus", unit=" sentences", leave=False, disable=None) as bar:
            for start, block in self.corpus.blocks(self.blocks.corpus):
                top.add(rank(block), start)
                bar.update(len(block))
        return Matches(top.values, top.rows)

    def rank_candidates(self, queries: Tensor, candidates: Tensor) -> Matches:
        """Lets the model choose among candidates of queries; shapes as of ``find_candidates``."""
        values = torch.full(candidates.shape, -torch.inf)
        rows = candidates.sort(dim=1).values  # in the order of the file, and of equal values the lower row first
        for query in range(len(queries)):
            places = (rows[query] != _ABSENT).nonzero().squeeze(1)
            for part in places.split(self.blocks.corpus):
                block = self.corpus.gather(rows[query, part])
                values[query, part] = self.model.rank_pairs(queries[query : query + 1], block, self.output)[0]
        best = best_columns(values, self.k)
        return Matches(values.gather(1, best), rows.gather(1, best))

    def write(self, queries: Iterator[tuple[list[str], Tensor]], sink: BinaryIO, form: str) -> int:
        """Writes the matches of queries in their order.

        Args:
            queries: ids and vectors, shape (N, R), of at most ``blocks.queries`` at a time.
            sink: where to.
            form: "tsv" or "jsonl".

        Returns:
            The number of queries.
        """
        count = 0
        for query_names, vectors in queries:
            matches = self.find(vectors)
            scores = self.model.publish(matches.values).tolist()
            for name, rows, row_scores in zip(query_names, matches.rows.tolist(), scores, strict=True):
                kept = [place for place, row in enumerate(rows) if row != _ABSENT]
                names = self.corpus.names(rows[place] for place in kept)
                sink.write(format_matches(self.model, name, names, [row_scores[place] for place in kept], form))
            sink.flush()
            count += len(query_names)
        return count


def choose_candidates(k: int, first_stage: str, candidates: Optional[int]) -> int:
    """How many candidates a first stage finds.

    Raises:
        ValueError: if there is no first stage to find them, or they are fewer than ``k``.
    """
    if candidates is None:
        return max(_LEAST_CANDIDATES, _CANDIDATES_PER_MATCH * k)
    if first_stage == "none":
        raise ValueError(
            f"--candidates is how many a first stage hands on, but there is none and it is {candidates}; add "
            "--first-stage cosine or drop it."
        )
    if candidates < k:
        raise ValueError(f"--candidates must be at least --top, but got {candidates} and {k}; raise it.")
    return candidates


def run(args: argparse.Namespace) -> None:
    """Searches; the body of ``muse-plugin match search``.

    Raises:
        ImportError: if the first stage is faiss and it is missing.
        ValueError: if a flag, a file or a cache does not fit.
    """
    check_positive(args, "top", "candidates", "memory", "batch_size", "max_words")
    choose_candidates(args.top, args.first_stage, args.candidates)
    if args.first_stage == "faiss":
        import_faiss()
    check_target(args.output, "--output")
    check_apart(args.output, args.queries, args.corpus)
    is_text = not args.queries.is_dir()
    if is_text:
        check_read_twice(args.queries, "--queries")
    else:
        _refuse_reading_flags(args)
    model = PairModel.load(args.path, args.data, args.batch_size, args.max_words, args.cpu, args.long_texts)
    output = model.choose_output(args.label)
    corpus = model.open_cache(args.corpus)
    cache = None if is_text else model.open_cache(args.queries)
    finder = Finder(model, corpus, args.top, output, args.first_stage, args.candidates, args.memory)
    if cache is not None:
        queries = read_cache(cache, finder.blocks.queries)
    else:
        queries = encode_queries(model, args.queries, args.ids, finder.blocks.queries)
    start = time.perf_counter()
    with open_output(args.output) as sink:
        count = finder.write(queries, sink, args.format)
    if args.first_stage == "none":
        report_speed(count * len(corpus), time.perf_counter() - start)
    model.predictor.report_unknown_words()


def report_speed(pairs: int, seconds: float) -> None:
    """Says how many pairs were scored."""
    tqdm.write(f"scored {pairs:,} pairs in {seconds:.1f} s: {pairs / seconds:,.0f} per second.", file=sys.stderr)


def _refuse_reading_flags(args: argparse.Namespace) -> None:
    given = [name for name in ("ids", "max_words", "long_texts") if getattr(args, name)]
    if given:
        raise ValueError(
            f"--{given[0].replace('_', '-')} says how sentences are read, but {args.queries} holds vectors; drop it."
        )


def read_cache(cache: VectorCache, rows: int) -> Iterator[tuple[list[str], Tensor]]:
    """Yields cached vectors in blocks, their ids first."""
    for start, block in cache.blocks(rows):
        yield cache.names(range(start, start + len(block))), block


def encode_queries(model: PairModel, source: Path, with_ids: bool, rows: int) -> Iterator[tuple[list[str], Tensor]]:
    """Yields the vectors of a file's sentences in blocks, their ids first.

    Args:
        model: the model.
        source: one sentence per line.
        with_ids: the first column is an id.
        rows: most sentences of a block.

    Raises:
        ValueError: see ``sentences.survey_text``.
    """
    survey_text(model, source, with_ids)
    lines = iterate_sentences(source, with_ids)
    cut = 0
    while block := list(itertools.islice(lines, min(rows, buffer_rows(model)))):
        words, truncated = read_words(model, block)
        cut += truncated
        yield [sentence.name for sentence in block], model.encode(words)
    if cut:
        logger.warning("%d queries were longer than %d words; only those were read.", cut, model.max_words)
