"""``muse-plugin match encode``: a file of sentences in, a cache of their vectors out.

Sentences are read a buffer at a time, encoded in batches of similar length, and stored in the order of the file. After
each buffer the work so far is safe; the same command goes on from there.
"""

import argparse
import hashlib
import itertools
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from tqdm import tqdm

from muse_plugin.files.lines import clean_line, iterate_stream
from muse_plugin.inference.predict import LONG_TEXTS
from muse_plugin.matching.cache_writer import CacheWriter, check_folder
from muse_plugin.matching.pair_model import PairModel, add_model_arguments
from muse_plugin.matching.vector_cache import DTYPES, LONGEST_ID, CacheMeta
from muse_plugin_command.flag_checks import check_positive

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Encode every sentence of a file once and store the vectors, for match score and match search. A command that was "
    "stopped goes on when it is given again."
)
_BUFFER_ROWS = 4096
_BUFFER_BYTES = 1 << 26


class NamedSentence(NamedTuple):
    """A line of text.

    Attributes:
        line: its number, from 1.
        name: its id.
        text: the sentence.
    """

    line: int
    name: str
    text: str


class Survey(NamedTuple):
    """What is known of a text before anything is encoded.

    Attributes:
        sha256: of the file.
        sentences: number of lines.
    """

    sha256: str
    sentences: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin match encode`` on ``parser``."""
    add_model_arguments(parser)
    parser.add_argument(
        "--input", required=True, type=Path, metavar="FILE", help="one sentence a line; blank lines are refused"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="CACHE", help="the folder to make or continue")
    parser.add_argument(
        "--ids", action="store_true", help="lines are ID TAB SENTENCE (default: a sentence's id is its line number)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the stored numbers (default: float32)")
    add_reading_arguments(parser)


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say how sentences are read."""
    parser.add_argument("--batch-size", type=int, default=128, help="most sentences encoded at once (default: 128)")
    add_length_arguments(parser)


def add_length_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say what happens to long sentences."""
    parser.add_argument("--max-words", type=int, help="words read of a sentence (default: as in training)")
    parser.add_argument(
        "--long-texts", choices=LONG_TEXTS, help="what happens to longer ones (default: as in training)"
    )


def run(args: argparse.Namespace) -> int:
    """Encodes a file; the body of ``muse-plugin match encode``.

    Args:
        args: the flags declared by ``add_arguments``.

    Returns:
        0.

    Raises:
        ValueError: if the text or the cache does not fit; see ``encode_file``.
    """
    check_positive(args, "batch_size", "max_words")
    check_input(args.input, "--input")
    check_folder(args.output)
    model = PairModel.load(args.path, args.data, args.batch_size, args.max_words, args.cpu)
    start = time.perf_counter()
    words_before = model.predictor.words
    meta, fresh = encode_file(model, args.input, args.output, args.ids, args.dtype, args.long_texts)
    seconds = time.perf_counter() - start
    words = model.predictor.words - words_before
    if fresh == 0:
        tqdm.write(f"{args.output} was whole already: {meta.done:,} sentences.", file=sys.stderr)
        return 0
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
    return 0


def encode_file(
    model: PairModel,
    source: Path,
    folder: Path,
    with_ids: bool = False,
    dtype: str = "float32",
    long_texts: Optional[str] = None,
) -> tuple[CacheMeta, int]:
    """Makes or continues a cache.

    Args:
        model: the model.
        source: a file with one sentence per line.
        folder: the cache.
        with_ids: the first column is the sentence's id.
        dtype: one of ``DTYPES``.
        long_texts: "truncate" or "refuse"; None for what was chosen in training.

    Returns:
        The settings of the whole cache, and the number of sentences that were encoded now.

    Raises:
        FileExistsError: if ``folder`` holds something else, or vectors of another text or model.
        ValueError: if a line is blank or has no id or one that was there before, a sentence is too long and such are
            refused, the text changes meanwhile, a vector is not finite, or somebody else writes to the cache.
    """
    refuse = model.predictor.refuses(long_texts)
    before = source.stat()
    survey = survey_text(model, source, with_ids, refuse)
    wanted = CacheMeta(
        fingerprint=model.fingerprint(),
        text_sha256=survey.sha256,
        with_ids=with_ids,
        sentences=survey.sentences,
        width=model.width,
        dtype=dtype,
        max_words=model.max_words,
    )
    with CacheWriter(folder, wanted) as writer:
        done = writer.meta.done
        with tqdm(total=survey.sentences, initial=done, unit=" sentences", disable=None) as bar:
            lines = itertools.islice(iterate_sentences(source, with_ids), done, None)
            while buffer := list(itertools.islice(lines, buffer_rows(model))):
                words, truncated = read_words(model, buffer, refuse)
                _check_unchanged(source, before, folder)
                writer.append(model.encode(words), [sentence.name for sentence in buffer], truncated)
                bar.update(len(buffer))
        writer.finish()
        return writer.meta, writer.meta.done - done


def _check_unchanged(source: Path, before: os.stat_result, folder: Path) -> None:
    """Checks that a file is the one that was surveyed."""
    after = source.stat()
    if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        raise ValueError(f"{source} must not change while it is encoded, but it did; remove {folder} and try again.")


def buffer_rows(model: PairModel) -> int:
    """Sentences that are held at a time."""
    return max(model.predictor.batch_size, min(_BUFFER_ROWS, _BUFFER_BYTES // (4 * model.width)))


def check_input(path: Path, flag: str) -> None:
    """Checks that a text can be read, and read again.

    Raises:
        FileNotFoundError: if it does not exist.
        ValueError: if it is no ordinary file.
    """
    if not path.exists():
        raise FileNotFoundError(f"{flag} must name a text file, but {path} does not exist.")
    if not path.is_file():
        raise ValueError(f"{flag} must name an ordinary file, which is read twice, but {path} is none; store it first.")


def survey_text(model: PairModel, source: Path, with_ids: bool, refuse: bool) -> Survey:
    """Checks a whole text before hours are spent on its first half.

    Args:
        model: the model.
        source: the file.
        with_ids: whether the first column is an id.
        refuse: whether long sentences are refused.

    Raises:
        ValueError: if there is no sentence, a line is blank, an id is missing or there twice, or a sentence is too long
            and such are refused.
    """
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    count = 0
    tab = False
    names: dict[str, int] = {}
    for sentence in iterate_sentences(source, with_ids, warns=True):
        count += 1
        if with_ids and names.setdefault(sentence.name, sentence.line) != sentence.line:
            raise ValueError(
                f"ids must be unique, but {sentence.name!r} of line {sentence.line} of {source} is that of line "
                f"{names[sentence.name]} too."
            )
        if refuse:
            read_words(model, [sentence], refuse, counts=False)
        elif not clean_line(sentence.text):
            _refuse_blank(sentence)
        if "\t" in sentence.text and not (tab or with_ids):
            tab = True
            logger.warning(
                "line %d has a tab, which is read as a space; give --ids if what stands before it is an id.",
                sentence.line,
            )
    if count == 0:
        raise ValueError(f"a text must have a sentence, but {source} is empty.")
    return Survey(digest.hexdigest(), count)


def iterate_sentences(source: Path, with_ids: bool, warns: bool = False) -> Iterator[NamedSentence]:
    """Yields the lines of a text with their ids.

    Args:
        source: the file.
        with_ids: whether the first column is an id.
        warns: whether lines that are not UTF-8 are reported.

    Raises:
        ValueError: if a line has no id, or one that no cache can hold.
    """
    with source.open("rb") as file:
        for number, (text, is_valid) in enumerate(iterate_stream(file), start=1):
            if warns and not is_valid:
                logger.warning("line %d is not valid UTF-8; its invalid bytes were replaced by U+FFFD.", number)
            if not with_ids:
                yield NamedSentence(number, str(number), text)
                continue
            name, tab, text = text.partition("\t")
            name = clean_line(name)
            if not tab or not name:
                raise ValueError(
                    f"with --ids, a line is an id, a tab and a sentence, but line {number} of {source} is "
                    f"{(name + tab + text)[:60]!r}."
                )
            if len(name.encode()) >= LONGEST_ID:
                raise ValueError(
                    f"an id must have fewer than {LONGEST_ID:,} bytes, but that in line {number} of {source} has "
                    f"{len(name.encode()):,}; shorten it."
                )
            yield NamedSentence(number, name, text)


def read_words(
    model: PairModel, sentences: Sequence[NamedSentence], refuse: bool, counts: bool = True
) -> tuple[list[list[str]], int]:
    """Turns sentences into the words that the model reads.

    Args:
        model: the model.
        sentences: what to read.
        refuse: whether long sentences are refused rather than cut.
        counts: whether words are counted for the report on unknown ones.

    Returns:
        The words of each, and how many were cut.

    Raises:
        ValueError: if a sentence is blank, or too long and such are refused; the sentence has its line.
    """
    read = []
    truncated = 0
    for sentence in sentences:
        words = model.predictor.settings.split_words(sentence.text)
        if not words:
            _refuse_blank(sentence)
        if model.predictor.is_too_long(words, sentence.line, refuse):
            truncated += 1
            words = words[: model.max_words]
        if counts:
            model.predictor.count_words(words)
        read.append(words)
    return read, truncated


def _refuse_blank(sentence: NamedSentence) -> None:
    raise ValueError(
        f"every line must have a sentence, for there is no vector of nothing, but line {sentence.line} is blank; "
        "remove it, and give --ids if the numbers of the other lines matter."
    )
