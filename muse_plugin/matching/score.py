"""``muse-plugin match score``: pairs of cached sentences, in the order in which they are asked for, or all of them."""

import argparse
import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Union

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import clean_line, iterate_stream, open_output
from muse_plugin.matching.match_output import format_pair
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.search import Finder, read_cache, report_speed
from muse_plugin.matching.vector_cache import Blocks, VectorCache, plan_blocks
from muse_plugin_command.flag_checks import check_apart, check_positive, check_read_twice, check_target

_PAIRS_TOGETHER = 1 << 16  # lines read at a time


def run(args: argparse.Namespace) -> None:
    """Scores pairs; the body of ``muse-plugin match score``.

    Raises:
        ValueError: if a flag, a file or a cache does not fit.
    """
    _check_flags(args)
    check_target(args.output, "--output")
    model = PairModel.load(args.path, args.data, cpu=args.cpu)
    output = model.choose_output(args.label) if args.all else 0
    first, second = model.open_cache(args.first), model.open_cache(args.second)
    start = time.perf_counter()
    if args.all and args.top is None:
        blocks = plan_blocks(args.memory, model.width, len(model.outputs))
        count = score_all(model, first, second, output, args.output, blocks)
    else:
        with open_output(args.output) as sink:
            if args.pairs is not None:
                count = score_file(model, first, second, args.pairs, sink, args.format, args.batch_size)
            else:
                finder = Finder(model, second, args.top, output, memory=args.memory)
                queries = read_cache(first, finder.blocks.queries)
                count = finder.write(queries, sink, args.format) * len(second)
    report_speed(count, time.perf_counter() - start)


def _check_flags(args: argparse.Namespace) -> None:
    """Checks what can be known before anything is loaded.

    Raises:
        FileNotFoundError: if there is no file of pairs.
        ValueError: if flags do not fit each other, or a file.
    """
    if args.pairs is not None:
        for name in ("top", "label"):
            if getattr(args, name) is not None:
                raise ValueError(
                    f"--{name} is for --all, but --pairs writes a line with all labels for each pair; drop one of them."
                )
    elif args.top is None and args.output is None:
        raise ValueError("--all writes a NumPy file, which needs --output FILE.npy; or ask for --top K.")
    elif args.top is None and args.format != "tsv":
        raise ValueError(f"--all without --top writes a NumPy file, but got --format {args.format}; drop it.")
    check_positive(args, "top", "batch_size", "memory")
    check_apart(args.output, args.pairs, args.first, args.second)
    if args.pairs is not None:
        check_read_twice(args.pairs, "--pairs")


def score_file(
    model: PairModel,
    first: VectorCache,
    second: VectorCache,
    source: Path,
    sink: BinaryIO,
    form: str = "tsv",
    batch_size: int = 1024,
) -> int:
    """Scores the pairs that a file names, in their order.

    Args:
        model: the model.
        first: vectors of the first sentences.
        second: of the second ones.
        source: a file with two ids a line, a tab between them.
        sink: where to.
        form: "tsv" or "jsonl".
        batch_size: most pairs scored at once.

    Returns:
        The number of pairs.

    Raises:
        ValueError: if there is no line, one does not have two ids, or an id is unknown; the sentence has its line.
    """
    columns = find_rows(first, second, source)
    count = 0
    pairs = iterate_pairs(source)
    with tqdm(unit=" pairs", disable=None) as bar:
        while chunk := list(itertools.islice(pairs, _PAIRS_TOGETHER)):
            rows = torch.tensor([[columns[0][a], columns[1][b]] for _, a, b in chunk])
            scores = score_rows(model, first, second, rows, batch_size)
            for (_, a, b), row in zip(chunk, scores.tolist(), strict=True):
                sink.write(format_pair(model, a, b, row, form))
            count += len(chunk)
            bar.update(len(chunk))
    return count


def score_rows(
    model: PairModel, first: VectorCache, second: VectorCache, rows: Tensor, batch_size: int = 1024
) -> Tensor:
    """Scores pairs of rows.

    Args:
        model: the model.
        first: vectors of the first sentences.
        second: of the second ones.
        rows: numbers of two rows per pair, shape (N, 2).
        batch_size: most pairs scored at once.

    Returns:
        The probability of each label, or the numbers; shape (N, outputs).
    """
    size = max(1, min(batch_size, (1 << 26) // (4 * model.width)))
    parts = [torch.empty(0, len(model.outputs))]
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        vectors = first.gather(part[:, 0]), second.gather(part[:, 1])
        logits = model.score_pairs(*vectors)
        parts.append(logits if model.predicts_numbers else logits.softmax(dim=-1))
    return torch.cat(parts)


def iterate_pairs(source: Path) -> Iterator[tuple[int, str, str]]:
    """Yields the number and the two ids of each line.

    Raises:
        ValueError: if there are not two.
    """
    with source.open("rb") as file:
        for number, (line, _) in enumerate(iterate_stream(file), start=1):
            columns = [clean_line(column) for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                raise ValueError(
                    f"a line of --pairs is two ids with a tab between them, but line {number} of {source} has "
                    f"{len([column for column in columns if column])}: {line[:60]!r}."
                )
            yield number, columns[0], columns[1]


def find_rows(first: VectorCache, second: VectorCache, source: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The row of each id in a file of pairs, for either column.

    Raises:
        ValueError: if a line does not have two ids, or an id is unknown; the sentence has its line.
    """
    lines: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for number, *pair in iterate_pairs(source):
        for seen, name in zip(lines, pair, strict=True):
            seen.setdefault(name, number)
    if not lines[0]:
        raise ValueError(f"--pairs must have a pair of ids, but {source} is empty; name another file.")
    rows = first.find(lines[0]), second.find(lines[1])
    for cache, seen, found in zip((first, second), lines, rows, strict=True):
        missing = [name for name in seen if name not in found]
        if missing:
            raise ValueError(
                f"--pairs must name sentences that are cached, but {cache.folder} has no id {missing[0]!r} of line "
                f"{seen[missing[0]]} of {source} ({len(missing):,} ids are unknown in all); correct the file, or "
                "encode the sentences with --ids."
            )
    return rows


def score_all(
    model: PairModel, first: VectorCache, second: VectorCache, output: int, path: Union[str, Path], blocks: Blocks
) -> int:
    """Writes the scores of all pairs as a NumPy file, which ``numpy.load(path, mmap_mode="r")`` reads piece by piece.

    Args:
        model: the model.
        first: vectors of the first sentences, a row each.
        second: of the second ones, a column each.
        output: number of the model's output that is written.
        path: the file; it takes its name when it is complete.
        blocks: how many vectors are in memory at once.

    Returns:
        The number of pairs.

    Raises:
        ValueError: if the disk has not enough room.
    """
    path = Path(path)
    needed = 4 * len(first) * len(second)
    free = shutil.disk_usage(path.absolute().parent).free
    if needed > free:
        raise ValueError(
            f"the scores of {len(first):,} x {len(second):,} pairs take {needed / 1e9:,.1f} GB, but there are "
            f"{free / 1e9:,.1f} GB left for {path}; ask for --top K, or name another disk."
        )
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(first), len(second))}
    # Rows are written one after the other: as many as there is room for a whole row of scores.
    step = max(1, min(blocks.queries, blocks.queries * blocks.corpus // len(second)))
    with open_atomically(path) as file, tqdm(total=needed // 4, unit=" pairs", unit_scale=True, disable=None) as bar:
        np.lib.format.write_array_header_1_0(file, header)
        for _, queries in first.blocks(step):
            scores = np.empty((len(queries), len(second)), dtype="<f4")
            for start, block in second.blocks(blocks.corpus):
                values = model.rank_pairs(queries, block, output)
                scores[:, start : start + len(block)] = model.publish(values).numpy()
                bar.update(values.numel())
            file.write(scores.data)
    return len(first) * len(second)
