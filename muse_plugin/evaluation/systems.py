"""Loads what is scored: translations of one or two systems, the references and the sources, and checks that they fit.

A system is one or more files, each a generation log or plain text: several files are runs with other seeds. Nothing is
guessed where a mistake would go unseen: numbers of lines, sentence ids and references have to agree.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from muse_plugin.evaluation.generation_log import GenerationLog, check_complete, read_generation_log
from muse_plugin.evaluation.text_forms import (
    UNKNOWN_REFERENCE,
    find_subword_kind,
    has_sentencepiece_marks,
    mark_unknown_words,
    remove_subwords,
)
from muse_plugin.files.lines import read_lines


class Texts(NamedTuple):
    """What was loaded; all lists have one entry for each sentence of the test set.

    Attributes:
        hypotheses: of each file of the system and then of the other system, subword marks removed.
        references: subword marks removed, unknown words marked so that they match nothing.
        sources: as they were, with their subword marks, or None if there are none.
        subword_kind: the marks that were removed from the hypotheses.
        notes: what the user should know, each a sentence.
    """

    hypotheses: list[list[str]]
    references: list[str]
    sources: Optional[list[str]]
    subword_kind: str
    notes: list[str]


def load_texts(args: argparse.Namespace, files: Sequence[Path]) -> Texts:
    """Reads all files.

    Args:
        args: the flags of ``muse-plugin evaluate``.
        files: of the system: plain text with ``--hypotheses``, else logs.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged or incomplete, or two do not fit together.
    """
    references = None if args.references is None else read_lines(args.references, "--references")
    sources = None if args.sources is None else read_lines(args.sources, "--sources")
    if references is not None and args.num_sentences not in (None, len(references)):
        raise ValueError(
            f"--num-sentences must be the number of lines of --references, but got {args.num_sentences} and "
            f"{args.references} has {len(references)}; leave one of the two out."
        )
    flag = "--hypotheses" if args.hypotheses else "--generation-log"
    inputs = [*((path, flag) for path in files), *((path, "--versus") for path in args.versus or ())]
    notes: list[str] = []
    if args.hypotheses:
        hypotheses = [read_lines(path, flag) for path, flag in inputs]
        for (path, flag), lines in zip(inputs, hypotheses, strict=True):
            _check_lengths("--references", args.references, references, flag, path, lines)
    else:
        logs = _load_logs(inputs, args.num_sentences if references is None else len(references), notes)
        references = _agree_on_references(logs, args.post_process) if references is None else references
        hypotheses = [_choose_hypotheses(log, args.post_process, args.detokenized) for log in logs]
        sources = logs[0].in_order("S") if sources is None else sources
    if sources is not None:
        _check_lengths("--sources", args.sources, sources, "the references", args.references, references)
    if args.post_process is None and any(has_sentencepiece_marks(lines) for lines in hypotheses):
        notes.append(
            "'\u2581' occurs in the hypotheses: if it marks SentencePiece tokens, add --post-process sentencepiece"
        )
    references = remove_subwords(references, args.post_process)
    if not args.detokenized:
        references = mark_unknown_words(references)
    if unknown := sum(line.count(UNKNOWN_REFERENCE) for line in references):
        words = "1 word of the references is" if unknown == 1 else f"{unknown} words of the references are"
        notes.append(
            f"{words} unknown to the dictionary and wrong in every hypothesis; "
            "--references with the full text counts every word"
        )
    return Texts(
        [remove_subwords(lines, args.post_process) for lines in hypotheses],
        references,
        sources,
        args.post_process or find_subword_kind([line for lines in hypotheses for line in lines]),
        notes,
    )


def _load_logs(
    inputs: Sequence[tuple[Path, str]], num_sentences: Optional[int], notes: list[str]
) -> list[GenerationLog]:
    """Reads logs, each with its flag, that all have to hold the same number of sentences."""
    logs = [read_generation_log(path, flag) for path, flag in inputs]
    sizes = [check_complete(log, num_sentences, flag) for log, (_, flag) in zip(logs, inputs, strict=True)]
    for log, size in zip(logs, sizes, strict=True):
        if size != sizes[0]:
            raise ValueError(
                f"all logs must hold the same sentences, but {logs[0].path} has {sizes[0]} of them and {log.path} has "
                f"{size}; generate both from the same test set."
            )
        if not log.is_closed and num_sentences is None:
            notes.append(
                f"{log.path.name} lacks the closing line 'Generate ... with beam=...' of fairseq-generate and may be "
                "cut short at its end; --num-sentences makes sure"
            )
    return logs


def _agree_on_references(logs: Sequence[GenerationLog], post_process: Optional[str]) -> list[str]:
    """The ``T-`` lines of the first log, which those of all others have to equal."""
    references = logs[0].in_order("T")
    for log in logs:
        lines = log.in_order("T")
        if references is None or lines is None:
            raise ValueError(
                f"a score needs references, but {log.path} has no T- lines: its data had no target side; give them by "
                "--references."
            )
        first, second = remove_subwords(references, post_process), remove_subwords(lines, post_process)
        if differing := [i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]]:
            i = differing[0]
            raise ValueError(
                f"all logs must have the same references, but the T- lines of {logs[0].path} and {log.path} differ in "
                f"{len(differing)} sentences, first in {i}: {first[i][:60]!r} and {second[i][:60]!r}; generate both "
                "from the same test set, or give its references by --references."
            )
    return references


def _choose_hypotheses(log: GenerationLog, post_process: Optional[str], detokenized: bool) -> list[str]:
    """The ``D-`` lines, which fairseq compares with the ``T-`` lines; ``H-`` lines where there are none."""
    printed, decoded = log.in_order("H"), log.in_order("D")
    if decoded is None:
        return printed
    if not detokenized:
        pairs = zip(*(remove_subwords(lines, post_process) for lines in (printed, decoded)), strict=True)
        for i, (words, text) in enumerate(pairs):
            if words.split() != text.split():
                raise ValueError(
                    f"D- and H- lines must agree but for subword marks, but in {log.path} sentence {i} is "
                    f"{text[:60]!r} after D- and {words[:60]!r} after H-; if fairseq-generate detokenised "
                    "(--tokenizer, --bpe sentencepiece), add --detokenized."
                )
    return decoded


def _check_lengths(
    what: str, path: Optional[Path], lines: list[str], other: str, other_path: Optional[Path], other_lines: list[str]
) -> None:
    if len(lines) != len(other_lines):
        raise ValueError(
            f"{what} and {other} must have the same number of lines, but {_name(path)} has {len(lines)} and "
            f"{_name(other_path)} has {len(other_lines)}; give files of the same test set, one sentence a line."
        )


def _name(path: Optional[Path]) -> str:
    return "the log" if path is None else str(path)
