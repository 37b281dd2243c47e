"""``muse-plugin analyze model``: figures and numbers about a trained model, from its parameters and a part of its data.

One pass over the sentences feeds every analysis of encoders and decoders that the model has parts for, see
``reading.py``; one more those of a pooling with heads, see ``pooled_attention.py``.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from muse_plugin.analysis import (
    allocation,
    attention_distance,
    attention_map,
    concentration,
    directions,
    gates,
    kernels,
)
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.analysis.load import AttentionObserver, KernelObserver, MapObserver, Observer, read_corpus
from muse_plugin.analysis.pooled_attention import find_pooling
from muse_plugin.analysis.pooling_tables import TABLES, WordSettings, list_makers, read_tables
from muse_plugin.analysis.report import REPORT_NAME, check_output, write_results
from muse_plugin.analysis.result import Missing, Result
from muse_plugin.analysis.subject import (
    Batches,
    Subject,
    check_same_data,
    choose_sentences,
    choose_shown_sentence,
    load_subject,
    name_words,
)
from muse_plugin.results.run_record import describe_run
from muse_plugin_command.flag_checks import check_positive
from muse_plugin_command.flags.analyze import MAX_TOKENS

_NO_HEADS = "the model has no pooling with heads, which --pooling low_rank_attention or structured_attention gives"
NOT_THERE = {
    "gates": "the model has no gate between kernel sizes",
    "kernels": "the model has no dynamic or lightweight convolution",
    "attention": "the model has no attention heads",
    "allocation": "no head of the model has a window",
    "directions": "the model is no distance-based self-attention network",
    "words": _NO_HEADS,
    "pooling": _NO_HEADS,
}


def run(args: argparse.Namespace) -> int:
    """Analyses a model; the body of ``muse-plugin analyze model``.

    Args:
        args: the parsed flags.

    Returns:
        0.

    Raises:
        ValueError: if a flag is wrong, the models do not fit each other, or the model lacks a part that ``--only``
            names.
        FileNotFoundError: if a checkpoint or its data are missing.
    """
    check_positive(args, "sentences", "max_tokens", "top_words", "min_documents")
    wanted = parse_only(args.only)
    if args.words is not None and "words" not in wanted:
        raise ValueError(
            f"--words belongs to the analysis words, but --only is {args.only}; add words, or drop the flag."
        )
    settings = WordSettings.from_flags(args)
    if args.against_name is not None and args.against is None:
        raise ValueError("--against-name names a second model, but there is no --against; add that or drop the name.")
    check_output(args.output)
    for logger in ("fairseq", "muse_plugin.tasks", "matplotlib"):  # which report each step
        logging.getLogger(logger).setLevel(logging.WARNING)
    subjects = [load_subject(args.path, args.split, args.data, args.name, args.cpu)]
    if args.against is not None:
        subjects.append(load_subject(args.against, args.split, args.data, args.against_name, args.cpu, "--against"))
        check_same_data(*subjects)
        subjects = _tell_apart(subjects)
    findings = [
        analyze(subject, wanted, args.sentences, args.sentence, args.max_tokens, settings) for subject in subjects
    ]
    results, missing = combine(findings, wanted, settings)
    for part in missing:
        if part.name == "words" and args.words is not None:
            raise ValueError(
                f"--words asks for what is not there: {part.reason}; drop the flag, or name another checkpoint."
            )
    if args.only is not None and missing:
        raise ValueError(
            f"--only {missing[0].name} asks for what is not there: {missing[0].reason}; leave it out, or name another "
            "checkpoint."
        )
    if not results:
        raise ValueError(f"nothing of {args.path} can be shown: {'; '.join(part.reason for part in missing)}.")
    record = {
        "models": [{"name": subject.name, **subject.settings} for subject in subjects],
        "data": {"split": args.split, "sentences": findings[0].sentences, "shown_sentence": findings[0].shown},
        **describe_run(),
    }
    title = " and ".join(subject.name for subject in subjects)
    write_results(args.output, f"Analysis of {title}", results, missing, record)
    for part in missing:
        sys.stdout.write(f"{part.name} does not apply: {part.reason}\n")
    sys.stdout.write(f"{len(results)} figures with their numbers written; open {args.output / REPORT_NAME}\n")
    return 0


def parse_only(text: Optional[str]) -> list[str]:
    """Reads ``--only``; None is all analyses.

    Raises:
        ValueError: if one is unknown.
    """
    if text is None:
        return list(NOT_THERE)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in NOT_THERE:
            raise ValueError(f"--only must list analyses out of {', '.join(NOT_THERE)}, but got {name!r}.")
    return [name for name in NOT_THERE if name in names]


def _tell_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """Two models of one name are numbered."""
    if len({subject.name for subject in subjects}) == len(subjects):
        return list(subjects)
    names = [f"{s.name} {number}" for number, s in enumerate(subjects, start=1)]
    return [subject._replace(name=name) for subject, name in zip(subjects, names, strict=True)]


class Findings(NamedTuple):
    """What was found in one model.

    Attributes:
        rows: of each table, by its name; tables of parts that the model does not have are empty.
        sentences: how many were read.
        shown: number of the sentence whose attention is shown, from 1; None if none is.
        reasons: why an analysis has nothing to show, where ``NOT_THERE`` does not say it; by its name.
    """

    rows: dict[str, list[Any]]
    sentences: int
    shown: Optional[int]
    reasons: dict[str, str]


def analyze(
    subject: Subject,
    wanted: Sequence[str],
    count: int,
    shown: Optional[int] = None,
    max_tokens: int = MAX_TOKENS,
    settings: WordSettings = WordSettings(),  # noqa: B008  (immutable)
) -> Findings:
    """Analyses one model.

    Args:
        subject: the model and its data.
        wanted: names of analyses.
        count: sentences to read.
        shown: number of the sentence whose attention is shown, from 1; None to choose one.
        max_tokens: of a batch, padding included.
        settings: what is shown of words.

    Raises:
        ValueError: if there is no such sentence, or a chosen word does not occur.
    """
    name, model = subject.name, subject.model
    sites = find_sites(model) if "attention" in wanted else []
    convolutions = kernels.find_kernel_sites(model) if "kernels" in wanted else []
    both = directions.find_directions(model) if "directions" in wanted else []
    attention = AttentionObserver(sites)
    kernel = KernelObserver([site.module for site in convolutions])
    direction = directions.DirectionObserver(both)
    chosen = choose_sentences(subject, count)
    observers: list[tuple[Observer, Sequence[Any]]] = [(attention, sites), (kernel, convolutions), (direction, both)]
    used = [observer for observer, found in observers if found]
    if used:
        read_corpus(model, Batches(subject, chosen, max_tokens), used, subject.padding, name)
    rows: dict[str, list[Any]] = {
        "gates": gates.read_gates(name, model) if "gates" in wanted else [],
        "kernels": kernels.read_kernels(name, convolutions, kernel),
        "heads": attention_distance.read_heads(name, sites, attention.statistics),
        "distances": attention_distance.read_distances(name, sites, attention.statistics),
        "concentration": concentration.read_concentration(name, sites, attention.statistics),
        "maps": [],
        "allocation": allocation.read_allocation(name, model) if "allocation" in wanted else [],
        "masks": directions.read_masks(name, both),
        "offsets": directions.read_offsets(name, direction),
        **{table: [] for table in TABLES},
    }
    pools = find_pooling(model) is not None and not {"words", "pooling"}.isdisjoint(wanted)
    place: Optional[int] = None
    reasons: dict[str, str] = {}
    if sites or (pools and "pooling" in wanted):
        place = choose_shown_sentence(subject, chosen, shown)
    if sites and place is not None:
        (inputs,) = Batches(subject, [place])
        observer = MapObserver(sites)
        read_corpus(model, [inputs], [observer], subject.padding)
        rows["maps"] = attention_map.read_maps(name, sites, observer.maps, *name_words(subject, inputs))
    if pools:
        tables, reasons = read_tables(subject, wanted, chosen, place, max_tokens, settings)
        rows.update(tables)
    return Findings(rows, len(chosen) if used or pools else 0, None if place is None else place + 1, reasons)


# Which tables an analysis has, the first of which says whether it applies, and how they become results.
_MAKERS: dict[str, tuple[tuple[str, ...], Callable[..., list[Result]]]] = {
    "gates": (("gates",), lambda rows: [gates.make_result(rows)]),
    "kernels": (("kernels",), lambda rows: [kernels.make_result(rows)]),
    "attention": (
        ("heads", "distances", "concentration", "maps"),
        lambda heads, distances, sharpness, maps: [
            *attention_distance.make_results(heads, distances),
            concentration.make_result(sharpness),
            *attention_map.make_results(maps),
        ],
    ),
    "allocation": (("allocation",), lambda rows: [allocation.make_result(rows)]),
    "directions": (("masks", "offsets"), directions.make_results),
}


def combine(
    findings: Sequence[Findings],
    wanted: Sequence[str],
    settings: WordSettings = WordSettings(),  # noqa: B008  (immutable)
) -> tuple[list[Result], list[Missing]]:
    """Puts the models side by side.

    Args:
        findings: of each model.
        wanted: names of analyses.
        settings: what is shown of words.

    Returns:
        Results of what at least one model has, and what none has.
    """
    makers = {**_MAKERS, **list_makers(settings)}
    results, missing = [], []
    for name in wanted:
        tables, make = makers[name]
        rows = [[row for found in findings for row in found.rows[table]] for table in tables]
        if rows[0]:
            results += make(*rows)
        else:
            reasons = [found.reasons[name] for found in findings if name in found.reasons]
            missing.append(Missing(name, reasons[0] if reasons else NOT_THERE[name]))
    return results, missing
