"""The checks of the flags of ``muse-plugin evaluate`` that need no file to be read."""

import argparse
from pathlib import Path

from muse_plugin.contracts.flag import flag_name
from muse_plugin.evaluation.comet_score import import_comet
from muse_plugin.evaluation.expectation import check_interval
from muse_plugin.evaluation.length_buckets import parse_bounds
from muse_plugin.evaluation.scores import ON_WORDS
from muse_plugin.evaluation.text_forms import check_language
from muse_plugin.results.figures import check_format, import_matplotlib
from muse_plugin_command.flag_checks import check_positive, check_target
from muse_plugin_command.flags.evaluate import DEFAULT_BOUNDS, DEFAULT_METRIC

# Flag -> the flag without which it would do nothing.
NEEDS = {
    **dict.fromkeys(
        ("data", "gen_subset", "beam", "lenpen", "batch_size", "max_tokens", "results_path", "generate_arg"),
        "path",
    ),
    **dict.fromkeys(("versus_name", "significance"), "versus"),
    **dict.fromkeys(("num_resamples", "seed"), "versus or length_intervals"),
    "expect_metric": "expect",
    "cpu": "path or comet",
    **dict.fromkeys(("record", "record_file"), "output"),
}


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses what cannot work before anything takes time.

    Raises:
        ValueError: if flags do not fit together or a value is outside its range.
        FileNotFoundError: if the folder of an output does not exist.
        IsADirectoryError: if an output is a folder.
        ImportError: if a package that ``--plot`` needs is missing.
    """
    _check_company(args)
    check_positive(args, "num_sentences", "beam", "batch_size", "max_tokens", "num_resamples", "seed")
    for flag in ("source_lang", "target_lang"):
        if getattr(args, flag) is not None:
            check_language(getattr(args, flag), flag_name(flag))
    parse_bounds(args.length_buckets or DEFAULT_BOUNDS)
    if args.expect:
        check_interval(*args.expect)
    for flag in ("output", "plot"):
        check_target(getattr(args, flag), flag_name(flag))
    if args.plot is not None:
        check_format(args.plot)
        import_matplotlib()


def _check_company(args: argparse.Namespace) -> None:
    """Refuses flags that would do nothing without another, or miss one."""
    for flag, needed in NEEDS.items():
        choices = needed.split(" or ")
        if getattr(args, flag) not in (None, False, []) and not any(getattr(args, choice) for choice in choices):
            raise ValueError(
                f"{flag_name(flag)} works only together with {' or '.join(map(flag_name, choices))}; add that or leave "
                "it out."
            )
    if args.hypotheses and args.references is None:
        raise ValueError("--hypotheses needs --references, but got none; name a file with one reference a line.")
    if args.path is not None and args.data is None:
        raise ValueError("--path needs --data, but got none; name the folder that fairseq-preprocess wrote.")
    num_files = 1 if args.path is not None else len(given_files(args))
    if args.versus and len(args.versus) != num_files:
        raise ValueError(
            "--versus must name as many files as the system has, to compare them one to one, but got "
            f"{len(args.versus)} and the system has {num_files}; give one of each, or all seeds of both."
        )


def check_forms(args: argparse.Namespace) -> None:
    """Refuses flags that need words or raw text where there will be none; ``args.target_lang`` is final by now.

    Raises:
        ValueError: if there is such a flag.
        ImportError: if ``--comet`` is given and the package is missing.
    """
    has_words, has_raw = has_forms(args)
    if args.compound_split and not has_words:
        raise ValueError("--compound-split needs words, but the text is raw (--detokenized); add --target-lang.")
    if args.raw_references is not None and args.detokenized:
        raise ValueError(
            "--raw-references is for tokenised text, but got --detokenized; give raw references by --references."
        )
    if args.raw_references is not None and not has_raw:
        raise ValueError("--raw-references needs raw hypotheses, but they are tokenised; add --target-lang.")
    if args.expect:
        metric = args.expect_metric or DEFAULT_METRIC
        change = None
        if not (has_words if metric in ON_WORDS else has_raw):
            change = "add --target-lang"
        elif metric == "compound_split_bleu" and not args.compound_split:
            change = "add --compound-split"
        elif metric == "ter" and args.no_ter:
            change = "leave --no-ter out"
        if change is not None:
            raise ValueError(f"--expect needs the score {metric}, but it will not be computed; {change}.")
    if args.comet is not None:
        if not has_raw or (args.source_lang is None and not args.detokenized):
            raise ValueError("--comet needs raw text, but the text is tokenised; add --source-lang and --target-lang.")
        import_comet()


def has_forms(args: argparse.Namespace) -> tuple[bool, bool]:
    """Returns whether there will be words, and whether there will be raw text; a language makes either of the other."""
    is_known = args.target_lang is not None
    return is_known or not args.detokenized, is_known or args.detokenized


def given_files(args: argparse.Namespace) -> list[Path]:
    """Returns the files of the system; none with ``--path``."""
    return args.generation_log or args.hypotheses or []
