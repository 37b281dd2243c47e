"""``muse-plugin evaluate``: scores translations and writes the scores with all that they depend on as JSON.

Input is the output of fairseq-generate, plain text, or a checkpoint that is then translated with. The way of the data:
``systems.py`` loads and checks them, ``text_forms.py`` makes words and raw text, ``scores.py`` counts; length buckets
and significance tests use the same counts. ``flags.py`` has the command line, ``evaluation_result.py`` what comes out.
"""

import argparse
import contextlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from muse_plugin.evaluation import flags
from muse_plugin.evaluation.comet_score import compute_comet
from muse_plugin.evaluation.evaluation_result import COMET, Evaluation, LengthScores, describe_evaluation
from muse_plugin.evaluation.expectation import judge
from muse_plugin.evaluation.generation import GenerationSettings, generate, infer_languages
from muse_plugin.evaluation.length_buckets import (
    DEFAULT_BOUNDS,
    estimate_buckets,
    make_buckets,
    parse_bounds,
    score_buckets,
)
from muse_plugin.evaluation.length_plot import Curve, draw_length_plot
from muse_plugin.evaluation.recorded_settings import collect_settings
from muse_plugin.evaluation.report import format_evaluation, shorten_names
from muse_plugin.evaluation.scores import TITLES, make_measures, mean_and_deviation
from muse_plugin.evaluation.significance import (
    DEFAULT_RESAMPLES,
    DEFAULT_SEED,
    Comparison,
    PairedTestSettings,
    compare_systems,
)
from muse_plugin.evaluation.systems import Inputs, Texts, load_texts
from muse_plugin.evaluation.text_forms import (
    LANGUAGES,
    TextForms,
    has_subwords,
    hide_unknown_words,
    make_forms,
    remove_subwords,
)
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import read_lines
from muse_plugin.results.run_record import describe_run
from muse_plugin_command.flag_checks import check_apart

_NOT_OPTIONS = ("output", "plot", "record", "record_file", "traceback")  # flags that change no number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin evaluate`` on ``parser``."""
    flags.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Scores translations; the body of ``muse-plugin evaluate``.

    Args:
        args: the flags declared by ``add_arguments``.

    Returns:
        0, or 1 if ``--expect`` was given and the score lies outside.

    Raises:
        ValueError: if flags or files are wrong or do not fit together.
        FileNotFoundError: if a file is missing.
        ImportError: if a package that a flag needs is missing.
    """
    start = time.perf_counter()
    for name in ("sacrebleu", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they report each step
    flags.check_arguments(args)
    settings = collect_settings(args.record, args.record_file)
    given = [] if args.path is not None else flags.given_files(args)
    check_apart(args.output, *given, *(args.versus or ()), args.references, args.sources)
    if args.path is not None:
        _fill_in_languages(args)
    options = _collect_options(args)
    flags.check_forms(args)
    seconds: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        files = given if args.path is None else [_translate(args, stack, seconds)]
        result = _evaluate(args, files)
    if args.plot is not None:
        _draw(args.plot, result)
    print(format_evaluation(result, args.lowercase))
    if args.output is not None:
        seconds["total"] = round(time.perf_counter() - start, 3)
        record = {"options": options, "settings": settings, **describe_run(), "seconds": seconds}
        _write_json(args.output, {**describe_evaluation(result), **record})
    if result.verdict is None:
        return 0
    print(f"\n{result.verdict.sentence}")
    return 0 if result.verdict.passed else 1


def _collect_options(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given and that numbers depend on."""
    return {
        name: _make_plain(value)
        for name, value in vars(args).items()
        if value is not None and value is not False and name not in _NOT_OPTIONS
    }


def _make_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_make_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# ---- translating -----------------------------------------------------------------------------------------------------


def _fill_in_languages(args: argparse.Namespace) -> None:
    """Takes languages that are not given from the data, where their names there are codes of languages."""
    languages = infer_languages(args.data)
    for flag, lang in zip(("source_lang", "target_lang"), languages, strict=True):
        if getattr(args, flag) is None and lang in LANGUAGES:
            setattr(args, flag, lang)


def _translate(args: argparse.Namespace, stack: contextlib.ExitStack, seconds: dict[str, float]) -> Path:
    """Runs fairseq-generate; the log lives as long as ``stack``, or in ``--results-path``."""
    start = time.perf_counter()
    folder = args.results_path or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muse-plugin-")))
    keeps_subwords = args.length_unit == "subword" or args.post_process == "none"
    names = ("gen_subset", "source_lang", "target_lang", "beam", "lenpen", "batch_size", "max_tokens")
    settings = GenerationSettings(
        path=args.path,
        data=args.data,
        cpu=args.cpu,
        post_process=None if keeps_subwords else args.post_process or "subword_nmt",
        more=args.generate_arg or (),
        **{name: getattr(args, name) for name in names if getattr(args, name) is not None},
    )
    log = generate(settings, folder)
    seconds["generation"] = round(time.perf_counter() - start, 3)
    return log


# ---- scoring ---------------------------------------------------------------------------------------------------------


def _evaluate(args: argparse.Namespace, files: Sequence[Path]) -> Evaluation:
    versus = args.versus or []
    texts = load_texts(
        Inputs(
            files=files,
            versus=versus,
            are_logs=not args.hypotheses,
            references=args.references,
            sources=args.sources,
            num_sentences=args.num_sentences,
            post_process=args.post_process,
            detokenized=args.detokenized,
        )
    )
    references = _make_references(args, texts)
    forms = [make_forms(lines, args.detokenized, args.target_lang) for lines in texts.hypotheses]
    measures = make_measures(references, args.lowercase, args.compound_split, not args.no_ter, args.target_lang)
    statistics = [{measure.name: measure.collect(form) for measure in measures} for form in forms]
    names = _name_files(args, files)
    result = Evaluation(
        files=names,
        num_own=len(files),
        titles=[_join(names[: len(files)], args.name)],
        texts=texts,
        measures=measures,
        statistics=statistics,
        scores=[{measure.name: measure.compute(counts[measure.name]) for measure in measures} for counts in statistics],
        signatures={measure.name: measure.signature for measure in measures},
    )
    if args.comet is not None:
        result.comet = _score_with_comet(args, texts, forms, references)
        result.signatures[COMET] = f"{args.comet}, times 100"
    result.lengths = _score_lengths(args, result)
    if versus:
        result.titles.append(_join(names[len(files) :], args.versus_name))
        result.test = _make_test_settings(args)
        result.comparisons = [_compare(result, i, j, result.test) for i, j in result.pairs]
    if args.expect:
        metric = args.expect_metric or flags.DEFAULT_METRIC
        mean, _ = mean_and_deviation([result.numbers(i)[metric] for i in range(len(files))])
        result.verdict = judge(metric, mean, *args.expect)
    _note_missing_forms(args, texts.notes)
    return result


def _name_files(args: argparse.Namespace, files: Sequence[Path]) -> list[str]:
    """Short names for the reader; the name of a system is that of its file, if it has only one."""
    own = files if args.path is None else [Path(args.path.split(os.pathsep)[0])]
    names = shorten_names([*own, *(args.versus or [])])
    if len(files) == 1:
        names = [given or name for given, name in zip([args.name, args.versus_name], names, strict=False)]
    return names


def _join(names: Sequence[str], title: Optional[str]) -> str:
    return title or (names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more")


def _make_references(args: argparse.Namespace, texts: Texts) -> TextForms:
    words, raw = make_forms(texts.references, args.detokenized, args.target_lang)
    if args.raw_references is None:
        return TextForms(words, None if raw is None else hide_unknown_words(raw))
    lines = read_lines(args.raw_references, "--raw-references")
    if len(lines) != len(texts.references):
        raise ValueError(
            f"--raw-references must have a line for each reference, but {args.raw_references} has {len(lines)} and "
            f"there are {len(texts.references)} references; give the untokenised text of the same test set."
        )
    return TextForms(words, lines)


def _score_lengths(args: argparse.Namespace, result: Evaluation) -> Optional[LengthScores]:
    """Scores by source length, with tokenised BLEU where it can be computed."""
    sources = result.texts.sources
    if sources is None:
        if asked := [
            flag for flag in ("length_buckets", "length_unit", "length_intervals", "plot") if getattr(args, flag)
        ]:
            raise ValueError(
                f"{flags.spell(asked[0])} needs source sentences, but there are none; give them by --sources."
            )
        return None
    if args.length_unit != "subword":
        unit, sources = "words", remove_subwords(sources, args.post_process)
    elif has_subwords(sources, args.post_process):
        unit = "subwords"
    else:
        raise ValueError(
            "--length-unit subword needs sources in subword tokens, but they have no subword marks; generate without "
            "--remove-bpe, or give the encoded text by --sources."
        )
    lengths = [len(line.split()) for line in sources]
    buckets = make_buckets(lengths, parse_bounds(args.length_buckets or DEFAULT_BOUNDS))
    measure = result.measures[0]
    scores = [score_buckets(buckets, measure, counts[measure.name]) for counts in result.statistics]
    intervals = []
    if args.length_intervals:
        resampling = args.num_resamples or DEFAULT_RESAMPLES["bootstrap"], args.seed or DEFAULT_SEED
        intervals = [
            estimate_buckets(buckets, measure, counts[measure.name], *resampling) for counts in result.statistics
        ]
    return LengthScores(unit, measure.name, buckets, scores, intervals)


def _make_test_settings(args: argparse.Namespace) -> PairedTestSettings:
    method = args.significance or "bootstrap"
    return PairedTestSettings(method, args.num_resamples or DEFAULT_RESAMPLES[method], args.seed or DEFAULT_SEED)


def _compare(result: Evaluation, system: int, versus: int, settings: PairedTestSettings) -> dict[str, Comparison]:
    own, other = result.statistics[system], result.statistics[versus]
    return {
        measure.name: compare_systems(measure, own[measure.name], other[measure.name], settings)
        for measure in result.measures
    }


def _score_with_comet(
    args: argparse.Namespace, texts: Texts, forms: Sequence[TextForms], references: TextForms
) -> list[float]:
    if texts.sources is None:
        raise ValueError("--comet needs source sentences, but there are none; give them by --sources.")
    sources = make_forms(remove_subwords(texts.sources, args.post_process), args.detokenized, args.source_lang).raw
    assert sources is not None  # check_forms has asked for a language
    assert references.raw is not None
    return compute_comet(args.comet, sources, [form.raw or [] for form in forms], references.raw, args.cpu)


def _note_missing_forms(args: argparse.Namespace, notes: list[str]) -> None:
    has_words, has_raw = flags.has_forms(args)
    if not has_raw:
        notes.append(
            "sacreBLEU's BLEU, chrF and TER are left out, for they need raw text: --target-lang makes it with Moses' "
            "rules, --detokenized says that the text is raw"
        )
    if not has_words:
        notes.append("tokenised BLEU is left out, for it needs words: --target-lang makes them with Moses' rules")


# ---- files -----------------------------------------------------------------------------------------------------------


def _draw(path: Path, result: Evaluation) -> None:
    lengths = result.lengths
    assert lengths is not None  # without sources, _score_lengths has raised an error
    draw_length_plot(
        path,
        labels=[bucket.label for bucket in lengths.buckets],
        counts=[len(bucket.members) for bucket in lengths.buckets],
        curves=[
            Curve(title, [lengths.scores[i] for i in files], [lengths.intervals[i] for i in files if lengths.intervals])
            for title, files in zip(result.titles, result.systems, strict=True)
        ],
        unit=lengths.unit,
        score_title=TITLES[lengths.measure],
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    with open_atomically(path) as file:
        file.write(text.encode("utf-8") + b"\n")
