"""The flags of ``muse-plugin evaluate``."""

import argparse
from pathlib import Path

DEFAULT_METRIC = "tokenized_bleu"
DEFAULT_BOUNDS = "15,30,45,60,75,90,105"  # of length buckets, those of the MUSE paper
DEFAULT_RESAMPLES = {"bootstrap": 1000, "approximate_randomization": 10000}  # by paired test
DEFAULT_SEED = 12345  # sacreBLEU's


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
    which.add_argument(
        "--path", metavar="CHECKPOINT", help="translate with this checkpoint or folder first; needs --data"
    )
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
        "--post-process", choices=("subword_nmt", "sentencepiece", "none"),
        help="subword marks to remove, as for fairseq-generate (default: subword_nmt if '@@ ' occurs; "
        "with --path, sentencepiece if text_pipeline.json next to the data or the checkpoint says so)",
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
        "--lowercase",
        action="store_true",
        help="let case count in no score but COMET (TER ignores it anyway, as by default)",
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
    lengths.add_argument(
        "--length-score", choices=("corpus", "sentence"),
        help="corpus: BLEU of all sentences of a bucket together (default); sentence: the mean of the BLEU of each "
        "(smoothing method 1 of Chen and Cherry 2014, as in NLTK), which the MUSE paper's Figure 7 shows",
    )  # fmt: skip
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
    versus.add_argument("--significance", choices=tuple(DEFAULT_RESAMPLES), help="paired test (default: bootstrap)")
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
        help="say whether the score (the mean over several files) is in this interval; exit code 1 if not",
    )  # fmt: skip
    outputs.add_argument(
        "--expect-metric",
        choices=("tokenized_bleu", "compound_split_bleu", "bleu", "chrf", "ter"),
        help=f"which score (default: {DEFAULT_METRIC})",
    )
    outputs.add_argument("--output", type=Path, metavar="FILE", help="write everything as JSON")
    outputs.add_argument(
        "--record", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the run to store in the JSON; may be repeated",
    )  # fmt: skip
    outputs.add_argument("--record-file", type=Path, metavar="JSON", help="a JSON object with such settings")
