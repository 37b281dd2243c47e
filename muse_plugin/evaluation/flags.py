"""The flags of ``muse-plugin evaluate``, and the checks that need no file to be read."""

import argparse
from pathlib import Path
from typing import Optional

from muse_plugin.evaluation.comet_score import import_comet
from muse_plugin.evaluation.expectation import check_interval
from muse_plugin.evaluation.length_buckets import DEFAULT_BOUNDS, parse_bounds
from muse_plugin.evaluation.scores import ON_WORDS, TITLES
from muse_plugin.evaluation.significance import DEFAULT_RESAMPLES, DEFAULT_SEED, METHODS
from muse_plugin.evaluation.text_forms import SUBWORD_CHOICES, check_language
from muse_plugin.results.figures import check_format, import_matplotlib

# Flag -> the flag without which it would do nothing.
NEEDS = {
    **dict.fromkeys(
        ("data", "gen_subset", "beam", "lenpen", "batch_size", "max_tokens", "cpu", "results_path", "generate_arg"),
        "path",
    ),
    **dict.fromkeys(("versus_name", "significance"), "versus"),
    **dict.fromkeys(("num_resamples", "seed"), "versus or length_intervals"),
    "expect_metric": "expect",
}
DEFAULT_METRIC = "tokenized_bleu"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin evaluate`` on ``parser``."""
    parser.description = (
        "Score translations on 0-100: tokenised BLEU as multi-bleu.perl computes it, sacreBLEU's BLEU, chrF and TER, "
        "by source length, and against another system. Files may be compressed with gzip."
    )
    _add_input_flags(parser)
    _add_text_flags(parser)
    _add_generation_flags(parser)
    _add_comparison_flags(parser)
    _add_output_flags(parser)


def _add_input_flags(parser: argparse.ArgumentParser) -> None:
    inputs = parser.add_argument_group("what is scored (exactly one of the first three)")
    which = inputs.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--generation-log", type=Path, nargs="+", metavar="FILE",
        help="output of fairseq-generate; several files are runs with other seeds: mean and standard deviation",
    )  # fmt: skip
    which.add_argument(
        "--hypotheses", type=Path, nargs="+", metavar="FILE", help="plain text, one sentence a line; needs --references"
    )
    which.add_argument("--path", metavar="CHECKPOINT", help="translate with this checkpoint first; needs --data")
    inputs.add_argument(
        "--references", type=Path, metavar="FILE",
        help="one reference a line, in the order of the test set (default for a log: its T- lines, where unknown "
        "words count as wrong)",
    )  # fmt: skip
    inputs.add_argument(
        "--raw-references", type=Path, metavar="FILE",
        help="untokenised references for sacreBLEU (default: the references, detokenised)",
    )  # fmt: skip
    inputs.add_argument(
        "--sources", type=Path, metavar="FILE", help="one source sentence a line (default for a log: its S- lines)"
    )
    inputs.add_argument("--num-sentences", type=int, metavar="N", help="refuse a log without the sentences 0 to N-1")
    inputs.add_argument("--name", help="what to call the system (default: the name of its file)")


def _add_text_flags(parser: argparse.ArgumentParser) -> None:
    texts = parser.add_argument_group("what the text is")
    texts.add_argument(
        "--post-process", choices=SUBWORD_CHOICES,
        help="subword marks to remove, as for fairseq-generate (default: subword_nmt if '@@ ' occurs)",
    )  # fmt: skip
    texts.add_argument(
        "--target-lang", metavar="LANG",
        help="language, such as de: turns words into raw text for sacreBLEU with Moses' rules",
    )  # fmt: skip
    texts.add_argument("--source-lang", metavar="LANG", help="the same for sources; only COMET needs it")
    texts.add_argument(
        "--detokenized", action="store_true",
        help="hypotheses, references and sources are raw text; with --target-lang, tokenised BLEU is computed on the "
        "words of Moses' tokeniser, else left out",
    )  # fmt: skip
    texts.add_argument(
        "--lowercase", action="store_true", help="let case count in no score (TER ignores it anyway, as by default)"
    )
    texts.add_argument(
        "--compound-split", action="store_true",
        help="tokenised BLEU also with a-b as 'a ##AT##-##AT## b', as published for WMT14 English-German",
    )  # fmt: skip
    texts.add_argument("--no-ter", action="store_true", help="leave out TER, which takes longer than all other scores")


def _add_generation_flags(parser: argparse.ArgumentParser) -> None:
    generation = parser.add_argument_group("translating with --path")
    generation.add_argument("--data", type=Path, metavar="DIR", help="folder that fairseq-preprocess wrote")
    generation.add_argument("--gen-subset", metavar="NAME", help="which set in it (default: test)")
    generation.add_argument("--beam", type=int, help="beam size (default: 5)")
    generation.add_argument("--lenpen", type=float, help="length penalty (default: 1)")
    size = generation.add_mutually_exclusive_group()
    size.add_argument("--batch-size", type=int, metavar="N", help="most sentences in a batch")
    size.add_argument("--max-tokens", type=int, metavar="N", help="most tokens in a batch (default: fairseq's)")
    generation.add_argument("--cpu", action="store_true", help="do not use the GPU")
    generation.add_argument("--results-path", type=Path, metavar="DIR", help="keep the log there")
    generation.add_argument(
        "--generate-arg", action="append", metavar="=WORD",
        help="a word more for fairseq-generate, as in --generate-arg=--fp16; may be repeated",
    )  # fmt: skip


def _add_comparison_flags(parser: argparse.ArgumentParser) -> None:
    lengths = parser.add_argument_group("by source length")
    lengths.add_argument(
        "--length-buckets", metavar="N,N,...", help=f"upper bounds, one bucket more above (default: {DEFAULT_BOUNDS})"
    )
    lengths.add_argument("--length-unit", choices=("word", "subword"), help="what source length counts (default: word)")
    lengths.add_argument(
        "--length-intervals", action="store_true",
        help="also the 95%% interval of each score, by bootstrap resampling of the sentences (see --num-resamples)",
    )  # fmt: skip
    lengths.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw it; .png, .pdf or .svg; needs the extra 'figures'"
    )
    versus = parser.add_argument_group("against another system")
    versus.add_argument(
        "--versus", type=Path, nargs="+", metavar="FILE",
        help="the other system's translations of the same sentences: a log for a log, else plain text; as many files "
        "as the system has, compared one to one",
    )  # fmt: skip
    versus.add_argument("--versus-name", metavar="NAME", help="what to call it (default: the name of its file)")
    versus.add_argument("--significance", choices=tuple(METHODS), help="paired test (default: bootstrap)")
    versus.add_argument(
        "--num-resamples", type=int, metavar="N",
        help="default: " + ", ".join(f"{number} for {name}" for name, number in DEFAULT_RESAMPLES.items()),
    )  # fmt: skip
    versus.add_argument("--seed", type=int, help=f"of resampling, at least 1 (default: {DEFAULT_SEED})")


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    outputs = parser.add_argument_group("more scores, verdict and record")
    outputs.add_argument(
        "--comet", metavar="MODEL", help="also COMET, times 100, with a model file or name; needs 'unbabel-comet'"
    )
    outputs.add_argument(
        "--expect", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="say whether the score (the mean over several files) lies in this interval; exit code 1 if not",
    )  # fmt: skip
    outputs.add_argument("--expect-metric", choices=tuple(TITLES), help=f"which score (default: {DEFAULT_METRIC})")
    outputs.add_argument("--output", type=Path, metavar="FILE", help="write everything as JSON")
    outputs.add_argument(
        "--record", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the run to store in the JSON; may be repeated",
    )  # fmt: skip
    outputs.add_argument("--record-file", type=Path, metavar="JSON", help="a JSON object with such settings")


def check_arguments(args: argparse.Namespace) -> None:
    """Refuses what cannot work before anything takes time.

    Raises:
        ValueError: if flags do not fit together or a value is outside its range.
        FileNotFoundError: if the folder of an output does not exist.
        IsADirectoryError: if an output is a folder.
        ImportError: if a package that ``--plot`` needs is missing.
    """
    _check_company(args)
    for flag in ("num_sentences", "beam", "batch_size", "max_tokens", "num_resamples", "seed"):
        if getattr(args, flag) is not None and getattr(args, flag) < 1:
            raise ValueError(
                f"{spell(flag)} must be at least 1, but got {getattr(args, flag)}; leave it out for the default."
            )
    for flag in ("source_lang", "target_lang"):
        if getattr(args, flag) is not None:
            check_language(getattr(args, flag), spell(flag))
    parse_bounds(args.length_buckets or DEFAULT_BOUNDS)
    if args.expect:
        check_interval(*args.expect)
    for flag in ("output", "plot"):
        _check_writable(getattr(args, flag), spell(flag))
    if args.plot is not None:
        check_format(args.plot)
        import_matplotlib()


def _check_company(args: argparse.Namespace) -> None:
    """Refuses flags that would do nothing without another, or miss one."""
    for flag, needed in NEEDS.items():
        choices = needed.split(" or ")
        if getattr(args, flag) not in (None, False) and not any(getattr(args, choice) for choice in choices):
            raise ValueError(
                f"{spell(flag)} works only together with {' or '.join(map(spell, choices))}; add that or leave it out."
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
        _check_expected_score(args)
    if args.comet is not None:
        if not has_raw or (args.source_lang is None and not args.detokenized):
            raise ValueError("--comet needs raw text, but the text is tokenised; add --source-lang and --target-lang.")
        import_comet()


def _check_expected_score(args: argparse.Namespace) -> None:
    has_words, has_raw = has_forms(args)
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


def has_forms(args: argparse.Namespace) -> tuple[bool, bool]:
    """Returns whether there will be words, and whether there will be raw text; a language makes either of the other."""
    is_known = args.target_lang is not None
    return is_known or not args.detokenized, is_known or args.detokenized


def _check_writable(path: Optional[Path], flag: str) -> None:
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{flag} must name a file, but {path} is a folder; add a file name.")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"{flag} must lie in an existing folder, but {path.absolute().parent} does not exist; make it first."
        )


def spell(flag: str) -> str:
    """Returns the name of a flag as people type it."""
    return "--" + flag.replace("_", "-")


def given_files(args: argparse.Namespace) -> list[Path]:
    """Returns the files of the system; none with ``--path``."""
    return args.generation_log or args.hypotheses or []
