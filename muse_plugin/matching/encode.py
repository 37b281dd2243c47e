"""``muse-plugin match encode``: a file of sentences in, a cache of their vectors out.

Sentences are read a buffer at a time, encoded in batches of similar length, and stored in the order of the file. After
each buffer the work so far is safe; the same command continues from there.
"""

import argparse
import itertools
import os
import sys
import time
from pathlib import Path

from tqdm import tqdm

from muse_plugin.inference.streaming import Run
from muse_plugin.matching.cache_writer import CacheWriter, check_folder
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.sentences import buffer_rows, iterate_sentences, read_words, survey_text
from muse_plugin.matching.vector_cache import CacheMeta
from muse_plugin_command.flag_checks import check_positive, check_read_twice


def run(args: argparse.Namespace) -> None:
    """Encodes a file; the body of ``muse-plugin match encode``.

    Raises:
        ValueError: if the text or the cache does not fit; see ``encode_file``.
    """
    check_positive(args, "batch_size", "max_words")
    check_read_twice(args.input, "--input")
    check_folder(args.output)
    model = PairModel.load(args.path, args.data, args.batch_size, args.max_words, args.cpu, args.long_texts)
    start = time.perf_counter()
    meta, fresh = encode_file(model, args.input, args.output, args.ids, args.dtype)
    seconds = time.perf_counter() - start
    words = model.predictor.words
    if fresh == 0:
        tqdm.write(f"{args.output} was whole already: {meta.done:,} sentences.", file=sys.stderr)
        return
    tqdm.write(
        f"{args.output}: {meta.done:,} vectors of width {meta.width}; encoded {fresh:,} sentences in {seconds:.1f} s: "
        f"{fresh / seconds:,.0f} sentences and {words / seconds:,.0f} words per second.",
        file=sys.stderr,
    )
    if meta.truncated:
        tqdm.write(
            f"{meta.truncated:,} sentences were longer than {meta.max_words} words; only the first words were read.",
            file=sys.stderr,
        )
    model.predictor.report_unknown_words()


def encode_file(
    model: PairModel,
    source: Path,
    folder: Path,
    with_ids: bool = False,
    dtype: str = "float32",
) -> tuple[CacheMeta, int]:
    """Makes or continues a cache.

    Args:
        model: the model.
        source: a file with one sentence per line.
        folder: the cache.
        with_ids: the first column is the sentence's id.
        dtype: "float32" or "float16".

    Returns:
        The settings of the whole cache, and the number of sentences that were encoded now.

    Raises:
        FileExistsError: if ``folder`` holds something else, or vectors of another text or model.
        ValueError: if a line is blank or has no id or one that was there before, a sentence is too long and such are
            refused, the text changes meanwhile, a vector is not finite, or somebody else writes to the cache.
    """
    before = source.stat()
    sha256, sentences = survey_text(model, source, with_ids)
    wanted = CacheMeta(
        fingerprint=model.fingerprint(),
        text_sha256=sha256,
        with_ids=with_ids,
        sentences=sentences,
        width=model.width,
        dtype=dtype,
        max_words=model.max_words,
    )
    with CacheWriter(folder, wanted) as writer:
        done = writer.meta.done
        left = itertools.islice(iterate_sentences(source, with_ids), done, None)
        with tqdm(total=sentences, initial=done, unit=" sentences", disable=None) as bar:
            run = Run(left, writer.append, bar, buffer_rows(model))
            for buffer in run:
                words, truncated = read_words(model, buffer)
                _check_unchanged(source, before, folder)
                run.write(model.encode(words), [sentence.name for sentence in buffer], truncated)
        writer.finish()
        return writer.meta, writer.meta.done - done


def _check_unchanged(source: Path, before: os.stat_result, folder: Path) -> None:
    """Checks that a file is the one that was surveyed."""
    after = source.stat()
    if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        raise ValueError(f"{source} must not change while it is encoded, but it did; remove {folder} and try again.")
