"""``muse-plugin analyze model``: figures and numbers about a trained model, from its parameters and a part of its data.

One pass over the sentences feeds every analysis of encoders and decoders that the model has parts for, see
``load.py``; one more those of a pooling with heads, see ``pooled_attention.py``.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from muse_plugin.analysis import (
    allocation,
    attended_words,
    attention_map,
    convolutions,
    directions,
    head_similarity,
    head_tables,
    shaded_document,
)
from muse_plugin.analysis.analyzed_model import (
    AnalyzedModel,
    Batches,
    check_same_data,
    choose_sentences,
    choose_shown_sentence,
    load_model,
    name_words,
)
from muse_plugin.analysis.attended_words import WordSettings
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin.analysis.load import AttentionObserver, KernelObserver, MapObserver, read_corpus
from muse_plugin.analysis.pooled_attention import find_pooling, read_document, read_pooling
from muse_plugin.analysis.report import REPORT_NAME, check_output, write_results
from muse_plugin.analysis.result import Result
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


def run(args: argparse.Namespace) -> None:
    """Analyses a model; the body of ``muse-plugin analyze model``.

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
    settings = WordSettings(args.words, args.top_words, args.min_documents, args.word_measure)
    if args.against_name is not None and args.against is None:
        raise ValueError("--against-name names a second model, but there is no --against; add that or drop the name.")
    check_output(args.output)
    models = [load_model(args.path, args.split, args.data, args.name, args.cpu)]
    if args.against is not None:
        models.append(load_model(args.against, args.split, args.data, args.against_name, args.cpu, "--against"))
        check_same_data(*models)
        if models[0].name == models[1].name:
            models = [one._replace(name=f"{one.name} {number}") for number, one in enumerate(models, start=1)]
    reports = [
        analyze(analyzed, wanted, args.sentences, args.sentence, args.max_tokens, settings) for analyzed in models
    ]
    if args.sentence is not None and reports[0].shown is None:
        raise ValueError(
            f"--sentence names whose attention is shown, but none is shown of {args.path}; drop it, or choose other "
            "analyses."
        )
    results, missing = combine(reports, wanted, settings)
    if "words" in missing and args.words is not None:
        raise ValueError(
            f"--words asks for what is not there: {missing['words']}; drop the flag, or name another checkpoint."
        )
    if args.only is not None and missing:
        name, reason = next(iter(missing.items()))
        raise ValueError(
            f"--only {name} asks for what is not there: {reason}; leave it out, or name another checkpoint."
        )
    if not results:
        raise ValueError(f"nothing of {args.path} can be shown: {'; '.join(missing.values())}.")
    record = {
        "models": [{"name": analyzed.name, **analyzed.settings} for analyzed in models],
        "data": {"split": args.split, "sentences": reports[0].sentences, "shown_sentence": reports[0].shown},
        **describe_run(),
    }
    title = " and ".join(analyzed.name for analyzed in models)
    write_results(args.output, f"Analysis of {title}", results, missing, record)
    for name, reason in missing.items():
        sys.stdout.write(f"{name} does not apply: {reason}\n")
    sys.stdout.write(f"figures written, with their numbers: {len(results)}; open {args.output / REPORT_NAME}\n")


def parse_only(text: Optional[str]) -> list[str]:
    """Reads ``--only``; None is all analyses.

    Raises:
        ValueError: if one is unknown.
    """
    if text is None:
        return list(NOT_THERE)
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NOT_THERE]
    if unknown:
        raise ValueError(f"--only must list analyses out of {', '.join(NOT_THERE)}, but got {unknown[0]!r}.")
    return [name for name in NOT_THERE if name in names]


class Report(NamedTuple):
    """What was found in one model.

    Attributes:
        rows: of each table, by its name; none for parts that the model does not have.
        sentences: how many were read.
        shown: number of the sentence whose attention is shown, from 1; None if none is.
        reasons: why an analysis has nothing to show, where ``NOT_THERE`` does not say it; by its name.
    """

    rows: Mapping[str, list[Any]]
    sentences: int
    shown: Optional[int]
    reasons: Mapping[str, str]


def analyze(
    analyzed: AnalyzedModel,
    wanted: Sequence[str],
    count: int,
    shown: Optional[int] = None,
    max_tokens: int = MAX_TOKENS,
    settings: WordSettings = WordSettings(),  # noqa: B008  (immutable)
) -> Report:
    """Analyses one model.

    Args:
        analyzed: the model and its data.
        wanted: names of analyses.
        count: sentences to read.
        shown: number of the sentence whose attention is shown, from 1; None to choose one.
        max_tokens: of a batch, padding included.
        settings: what is shown of words.

    Raises:
        ValueError: if there is no such sentence, or a chosen word is unknown or does not occur.
    """
    name, model = analyzed.name, analyzed.model
    sites = find_sites(model) if "attention" in wanted else []
    attention = AttentionObserver(sites)
    kernel = KernelObserver(convolutions.find_kernel_sites(model) if "kernels" in wanted else [])
    direction = directions.DirectionObserver(directions.find_directions(model) if "directions" in wanted else [])
    chosen = choose_sentences(analyzed, count)
    used = [observer for observer in (attention, kernel, direction) if observer.sites]
    if used:
        read_corpus(model, Batches(analyzed, chosen, max_tokens), used, analyzed.padding, name)
    heads, distances, sharpness = head_tables.read_tables(name, attention)
    rows: defaultdict[str, list[Any]] = defaultdict(
        list,
        gates=convolutions.read_gates(name, model) if "gates" in wanted else [],
        kernels=convolutions.read_kernels(name, kernel),
        heads=heads,
        distances=distances,
        concentration=sharpness,
        allocation=allocation.read_allocation(name, model) if "allocation" in wanted else [],
        masks=directions.read_masks(name, direction.sites),
        offsets=directions.read_offsets(name, direction),
    )
    pools = find_pooling(model) is not None and not {"words", "pooling"}.isdisjoint(wanted)
    place: Optional[int] = None
    reasons: dict[str, str] = {}
    if sites or (pools and "pooling" in wanted):
        place = choose_shown_sentence(analyzed, chosen, shown)
    if sites and place is not None:
        (inputs,) = Batches(analyzed, [place])
        observer = MapObserver(sites)
        read_corpus(model, [inputs], [observer], analyzed.padding)
        rows["maps"] = attention_map.read_maps(name, sites, observer.maps, *name_words(analyzed, inputs))
    if pools:
        dictionary = analyzed.task.source_dictionary
        attended_words.check_words(settings.chosen or (), dictionary)
        pooled = read_pooling(analyzed, chosen, max_tokens, name)
        if place is not None and "pooling" in wanted:
            rows["shaded"] = read_document(analyzed, place)
            rows["similarity"] = head_similarity.read_similarity(name, pooled.similarity)
        if "words" in wanted:
            found = attended_words.read_words(name, dictionary, pooled.uses, pooled.class_sizes, settings)
            if isinstance(found, str):
                reasons["words"] = found
            else:
                rows.update(found)
    return Report(rows, len(chosen) if used or pools else 0, None if place is None else place + 1, reasons)


# Which tables an analysis has, the first of which says whether it applies, and how they become results.
_MAKERS: dict[str, tuple[tuple[str, ...], Callable[..., list[Result]]]] = {
    "gates": (("gates",), convolutions.make_gate_results),
    "kernels": (("kernels",), convolutions.make_kernel_results),
    "attention": (
        ("heads", "distances", "concentration", "maps"),
        lambda *rows: [*head_tables.make_results(*rows[:3]), *attention_map.make_results(rows[3])],
    ),
    "allocation": (("allocation",), allocation.make_results),
    "directions": (("masks", "offsets"), directions.make_results),
    "words": (("attended", "word_weights", "classes"), attended_words.make_results),
    "pooling": (
        ("shaded", "similarity"),
        lambda *rows: [*shaded_document.make_results(rows[0]), *head_similarity.make_results(rows[1])],
    ),
}


def combine(
    reports: Sequence[Report],
    wanted: Sequence[str],
    settings: WordSettings = WordSettings(),  # noqa: B008  (immutable)
) -> tuple[list[Result], dict[str, str]]:
    """Puts the models side by side: results of what at least one of them has, and why the others have none.

    Args:
        reports: of each model.
        wanted: names of analyses.
        settings: what is shown of words.
    """
    results: list[Result] = []
    missing: dict[str, str] = {}
    for name in wanted:
        tables, make = _MAKERS[name]
        rows = [[row for report in reports for row in report.rows[table]] for table in tables]
        if rows[0]:
            made = make(*rows, *([settings] if name == "words" else ()))
            results += [result for result in made if result.rows]  # sentences of one word have no distances
        else:
            missing[name] = next((r.reasons[name] for r in reports if name in r.reasons), NOT_THERE[name])
    return results, missing
