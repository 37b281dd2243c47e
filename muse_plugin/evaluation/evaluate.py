"""``muse-plugin evaluate``: scores translations and writes the scores with all that they depend on as JSON.

Input is the output of fairseq-generate, plain text, or a checkpoint that is then translated with. The way of the data:
``systems.py`` loads and checks them, ``text_forms.py`` makes words and raw text, ``scores.py`` counts; length buckets
and significance tests use the same counts. The result is made here, as one dict: the JSON but for rounding, which
``report.py`` prints.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from muse_plugin.contracts.flag import flag_name
from muse_plugin.evaluation import flag_checks
from muse_plugin.evaluation.comet_score import compute_comet
from muse_plugin.evaluation.expectation import judge
from muse_plugin.evaluation.generation import find_subwords, generate, infer_languages, name_log
from muse_plugin.evaluation.length_buckets import make_buckets, parse_bounds
from muse_plugin.evaluation.length_plot import draw_length_plot
from muse_plugin.evaluation.recorded_settings import collect_settings
from muse_plugin.evaluation.report import format_evaluation, shorten_names
from muse_plugin.evaluation.scores import Measure, Statistics, describe_score, make_measures
from muse_plugin.evaluation.sentence_bleu import MEAN_OF_SENTENCES, score_sentences
from muse_plugin.evaluation.significance import compare_systems, estimate_interval
from muse_plugin.evaluation.systems import load_texts
from muse_plugin.evaluation.text_forms import (
    LANGUAGES,
    TextForms,
    has_subwords,
    hide_unknown_words,
    make_forms,
    remove_subwords,
)
from muse_plugin.files.json_objects import write_json
from muse_plugin.files.lines import read_lines
from muse_plugin.results.deviation import mean_and_deviation
from muse_plugin.results.run_record import describe_run
from muse_plugin_command.flag_checks import check_apart
from muse_plugin_command.flags.evaluate import DEFAULT_BOUNDS, DEFAULT_METRIC, DEFAULT_RESAMPLES, DEFAULT_SEED

_LENGTH_FLAGS = ("length_buckets", "length_score", "length_unit", "length_intervals", "plot")
_NOT_OPTIONS = ("output", "plot", "record", "record_file", "traceback")  # flags that change no number
_DIGITS = dict.fromkeys(("bp", "ratio", "p_value"), 6)  # in the JSON, after the point; four for all others


def run(args: argparse.Namespace) -> int:
    """Scores translations; the body of ``muse-plugin evaluate``.

    Returns:
        0, or 1 if ``--expect`` was given and the score is outside.

    Raises:
        ValueError: if flags or files are wrong or do not fit together.
        FileNotFoundError: if a file is missing.
        ImportError: if a package that a flag needs is missing.
    """
    start = time.perf_counter()
    flag_checks.check_arguments(args)
    settings = collect_settings(args.record, args.record_file)
    given = [] if args.path is not None else flag_checks.given_files(args)
    others = (args.references, args.raw_references, args.sources, args.record_file)
    for path, flag in ((args.output, "--output"), (args.plot, "--plot")):
        check_apart(path, *given, *(args.versus or ()), *others, flag=flag)
    if args.plot is not None and args.output is not None and args.plot.resolve() == args.output.resolve():
        raise ValueError(f"--plot must be another file than --output, but both are {args.plot}; name another.")
    if args.results_path is not None:
        check_apart(name_log(args, args.results_path), *(args.versus or ()), *others, flag="--results-path")
    if args.path is not None:
        _fill_in_languages(args)
        args.post_process = args.post_process or find_subwords(args)
    options = _collect_options(args)
    flag_checks.check_forms(args)
    seconds: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        files = given if args.path is None else [_translate(args, stack, seconds)]
        result = _evaluate(args, files)
    print(format_evaluation(result, args.lowercase))
    if args.output is not None:
        seconds["total"] = round(time.perf_counter() - start, 3)
        rounded = {**_round(result), "expectation": result["expectation"]}
        record = {"options": options, "settings": settings, **describe_run(), "seconds": seconds}
        write_json(args.output, {**rounded, **record}, indent=2, ensure_ascii=False, allow_nan=False, default=os.fspath)
    if args.plot is not None:  # there are sources, or _score_lengths has raised an error
        systems = [result, result["versus"]] if args.versus else [result]
        draw_length_plot(args.plot, result["length_buckets"], [system["name"] for system in systems])
    verdict = result["expectation"]
    if verdict is None:
        return 0
    print(f"\n{verdict['sentence']}")
    return 0 if verdict["passed"] else 1


def _collect_options(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given and that numbers depend on."""
    return {
        name: value
        for name, value in vars(args).items()
        if value is not None and value is not False and name not in _NOT_OPTIONS
    }


def _round(value: Any, digits: int = 4) -> Any:
    if isinstance(value, dict):
        return {key: _round(part, _DIGITS.get(key, digits)) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(part, digits) for part in value]
    return round(value, digits) if isinstance(value, float) else value


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
    log = generate(args, folder)
    seconds["generation"] = round(time.perf_counter() - start, 3)
    return log


# ---- scoring ---------------------------------------------------------------------------------------------------------


def _evaluate(args: argparse.Namespace, files: Sequence[Path]) -> dict[str, Any]:
    """Everything that was computed, not rounded; lists by file have the system's files, then the other system's."""
    texts = load_texts(args, files)
    references = _make_references(args, texts.references)
    forms = [make_forms(lines, args.detokenized, args.target_lang) for lines in texts.hypotheses]
    measures = make_measures(references, args.lowercase, args.compound_split, not args.no_ter, args.target_lang)
    statistics = [{measure.name: measure.collect(form) for measure in measures} for form in forms]
    comet = _score_with_comet(args, texts.sources, forms, references)
    counts = [found[measures[0].name] for found in statistics]
    lengths = _score_lengths(args, texts.sources, measures[0], counts, len(files))
    names = _name_files(args, files)
    systems = [
        _describe_system(args, title or _join(names[part]), names[part], measures, statistics[part], comet[part])
        for part, title in ((slice(len(files)), args.name), (slice(len(files), None), args.versus_name))
        if names[part]
    ]
    metric = args.expect_metric or DEFAULT_METRIC
    return {
        **systems[0],
        "versus": systems[1] if args.versus else None,
        "significance": _compare(args, names, measures, statistics),
        "length_buckets": lengths,
        "expectation": judge(metric, systems[0]["scores"][metric]["mean"], *args.expect) if args.expect else None,
        "num_sentences": len(texts.references),
        "subwords_removed": texts.subword_kind,
        "notes": [*texts.notes, *_note_missing_forms(args)],
    }


def _name_files(args: argparse.Namespace, files: Sequence[Path]) -> list[str]:
    """Short names for the reader; the name of a system is that of its file, if it has only one."""
    own = files if args.path is None else [Path(args.path.split(os.pathsep)[0])]
    names = shorten_names([*own, *(args.versus or [])])
    if len(files) == 1:
        names = [given or name for given, name in zip([args.name, args.versus_name], names, strict=False)]
    return names


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _make_references(args: argparse.Namespace, references: list[str]) -> TextForms:
    words, raw = make_forms(references, args.detokenized, args.target_lang)
    if args.raw_references is None:
        return TextForms(words, None if raw is None else hide_unknown_words(raw))
    lines = read_lines(args.raw_references, "--raw-references")
    if len(lines) != len(references):
        raise ValueError(
            f"--raw-references must have a line for each reference, but {args.raw_references} has {len(lines)} and "
            f"there are {len(references)} references; give the untokenised text of the same test set."
        )
    return TextForms(words, lines)


def _score_with_comet(
    args: argparse.Namespace, sources: Optional[list[str]], forms: Sequence[TextForms], references: TextForms
) -> list[float]:
    if args.comet is None:
        return []
    if sources is None:
        raise ValueError("--comet needs source sentences, but there are none; give them by --sources.")
    raw = make_forms(remove_subwords(sources, args.post_process), args.detokenized, args.source_lang).raw
    return compute_comet(args.comet, raw, [form.raw or [] for form in forms], references.raw, args.cpu)


def _describe_system(
    args: argparse.Namespace,
    title: str,
    names: Sequence[str],
    measures: Sequence[Measure],
    statistics: Sequence[dict[str, Statistics]],
    comet: Sequence[float],
) -> dict[str, Any]:
    """The scores of one system: over its files, and of each."""
    computed = [{measure.name: measure.compute(counts[measure.name]) for measure in measures} for counts in statistics]
    values = {measure.name: [scores[measure.name].score for scores in computed] for measure in measures}
    signatures = {measure.name: measure.signature for measure in measures}
    if comet:
        values["comet"], signatures["comet"] = comet, f"{args.comet}, times 100"
    scores = {}
    for name, numbers in values.items():
        mean, deviation = mean_and_deviation(numbers)
        scores[name] = {"mean": mean, "sd": deviation, "values": numbers, "signature": signatures[name]}
    files = [
        {"file": file, **{name: describe_score(name, score) for name, score in found.items()}}
        for file, found in zip(names, computed, strict=True)
    ]
    return {"name": title, "scores": scores, "files": files}


def _score_lengths(
    args: argparse.Namespace,
    sources: Optional[list[str]],
    measure: Measure,
    statistics: Sequence[Statistics],
    num_own: int,
) -> Optional[dict[str, Any]]:
    """Scores by source length, on words where there are some."""
    if sources is None:
        if asked := [flag for flag in _LENGTH_FLAGS if getattr(args, flag)]:
            raise ValueError(
                f"{flag_name(asked[0])} needs source sentences, but there are none; give them by --sources."
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
    resampling = args.num_resamples or DEFAULT_RESAMPLES["bootstrap"], args.seed or DEFAULT_SEED
    bounds = parse_bounds(args.length_buckets or DEFAULT_BOUNDS)
    if args.length_score == "sentence":
        measure, statistics = MEAN_OF_SENTENCES, [score_sentences(counts) for counts in statistics]
    buckets = []
    for bucket in make_buckets([len(line.split()) for line in sources], bounds):
        parts = [[counts[i] for i in bucket.members] for counts in statistics]
        found = {"scores": [measure.compute(part).score if part else None for part in parts]}
        if args.length_intervals:
            found["intervals_95"] = [estimate_interval(measure, part, *resampling) if part else None for part in parts]
        described = {"low": bucket.low, "high": bucket.high, "num_sentences": len(bucket.members)}
        for key, of_files in found.items():
            described |= {key: of_files[:num_own], f"versus_{key}": of_files[num_own:]}
        buckets.append(described)
    return {"unit": unit, "score": measure.name, "buckets": buckets}


def _compare(
    args: argparse.Namespace,
    names: Sequence[str],
    measures: Sequence[Measure],
    statistics: Sequence[dict[str, Statistics]],
) -> Optional[dict[str, Any]]:
    """Tests the files of the two systems one to one."""
    if not args.versus:
        return None
    method = args.significance or "bootstrap"
    num_resamples, seed = args.num_resamples or DEFAULT_RESAMPLES[method], args.seed or DEFAULT_SEED
    own, other = slice(len(args.versus)), slice(len(args.versus), None)
    pairs = []
    for file, versus, counts, others in zip(names[own], names[other], statistics[own], statistics[other], strict=True):
        tests = {
            measure.name: compare_systems(
                measure, counts[measure.name], others[measure.name], method, num_resamples, seed
            )
            for measure in measures
        }
        pairs.append({"file": file, "versus": versus, **tests})
    return {"method": method, "num_resamples": num_resamples, "seed": seed, "pairs": pairs}


def _note_missing_forms(args: argparse.Namespace) -> list[str]:
    has_words, has_raw = flag_checks.has_forms(args)
    notes = []
    if not has_raw:
        notes.append(
            "sacreBLEU's BLEU, chrF and TER are left out, for they need raw text: --target-lang makes it with Moses' "
            "rules, --detokenized says that the text is raw"
        )
    if not has_words:
        notes.append("tokenised BLEU is left out, for it needs words: --target-lang makes them with Moses' rules")
    return notes
