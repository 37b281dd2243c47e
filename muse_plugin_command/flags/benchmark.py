"""The flags of ``muse-plugin benchmark`` and of its kinds."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SETTINGS = ("tiny", "six_layers", "base", "large")
# The scales of windows in arXiv:1912.00544: of its tasks of classification, and of tagging.
SCALES = ["1,3,N/16,N/8,N/4", "1,3,5,7,9"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the kinds of benchmark and their flags."""
    parser.description = (
        "Measure speed and memory on this machine. Contestants run in turn in one process, so that a busy moment slows "
        "all of them; numbers are medians, with the range of the middle half of the rounds."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    for name, kind in KINDS.items():
        own = kinds.add_parser(name, help=kind.help, description=kind.description)
        kind.add_arguments(own)
        _add_common_arguments(own)
    _add_report_arguments(kinds.add_parser("report", help="write BENCHMARKS.md from the JSON of the other kinds"))


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=_parse_count, default=7, help="measured runs each (default: %(default)s)")
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=120.0,
        help="no further round of a case begins after this time; one always runs (default: %(default)s)",
    )
    parser.add_argument("--threads", type=_parse_count, help="of PyTorch on the CPU (default: what PyTorch chooses)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "float16", "bfloat16"),
        help="of weights (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and words (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number, and the machine, here")


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {text}")
    return count


def _add_train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--setting", nargs="+", default=["base"], choices=SETTINGS, help="sizes of the models (default: base)"
    )
    parser.add_argument(
        "--lengths", type=_parse_count, nargs="+", default=[25, 100], help="in tokens (default: 25 100)"
    )
    parser.add_argument("--tokens", type=_parse_count, default=2000, help="per batch and side (default: %(default)s)")
    parser.add_argument("--vocabulary", type=_parse_count, default=10_000, help="in words (default: %(default)s)")
    parser.add_argument("--share-all-embeddings", action="store_true", help="one matrix of embeddings (default: three)")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="contestants to leave out")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")


def _add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--setting",
        nargs="+",
        default=["six_layers", "base"],
        choices=SETTINGS,
        help="sizes of the models (default: six_layers base)",
    )
    parser.add_argument("--sentences", type=_parse_count, nargs="+", default=[1, 32], help="per batch (default: 1 32)")
    parser.add_argument("--lengths", type=_parse_count, nargs="+", default=[25], help="in tokens (default: 25)")
    parser.add_argument("--beam", type=_parse_count, nargs="+", default=[5], help="its sizes (default: 5)")
    parser.add_argument("--vocabulary", type=_parse_count, default=10_000, help="in words (default: %(default)s)")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="contestants to leave out")


def _add_conv_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        default="auto",
        choices=("auto", "reference", "band", "taps", "triton", "fairseq_cuda"),
        help="of ours (default: %(default)s)",
    )
    parser.add_argument("--tokens", type=_parse_count, default=2000, help="per batch (default: %(default)s)")
    parser.add_argument("--heads", type=_parse_count, default=4, help="(default: %(default)s)")
    parser.add_argument("--channels", type=_parse_count, default=96, help="per head (default: %(default)s)")
    parser.add_argument("--tap-dropout", type=float, default=0.0, help="probability (default: %(default)s)")
    parser.add_argument(
        "--lengths",
        type=_parse_count,
        nargs="+",
        default=[10, 25, 50, 100, 200, 400, 1000],
        help="in tokens (default: 10 25 50 100 200 400 1000)",
    )
    parser.add_argument(
        "--kernels",
        type=_parse_sizes,
        nargs="+",
        default=[[3], [7], [15], [31], [3, 15]],
        metavar="K[+K...]",
        help="sizes in tokens; 3+15: two side by side (default: 3 7 15 31 3+15)",
    )


def _parse_sizes(text: str) -> list[int]:
    return [_parse_count(size) for size in text.split("+")]


def _add_attention_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=_parse_count, default=2000, help="per batch (default: %(default)s)")
    parser.add_argument("--heads", type=_parse_count, default=4, help="(default: %(default)s)")
    parser.add_argument("--channels", type=_parse_count, default=96, help="per head (default: %(default)s)")
    parser.add_argument(
        "--lengths", type=_parse_count, nargs="+", help="in tokens (default: 10 to 1000; with --windows 22 to 800)"
    )
    group = parser.add_argument_group("with --windows")
    group.add_argument("--windows", action="store_true", help="measure encoder layers with windows instead")
    group.add_argument("--sentences", type=_parse_count, default=128, help="per batch (default: %(default)s)")
    group.add_argument("--layers", type=_parse_count, default=3, help="(default: %(default)s)")
    group.add_argument("--embed-dim", type=_parse_count, default=300, help="width (default: %(default)s)")
    group.add_argument("--window-heads", type=_parse_count, default=10, help="(default: %(default)s)")
    group.add_argument("--scales", nargs="+", default=SCALES, help="lists of scales (default: the paper's)")
    group.add_argument("--without-dense", action="store_true", help="leave the dense masks out: they take memory")


def _add_loss_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=_parse_count, default=2000, help="per batch (default: %(default)s)")
    parser.add_argument("--widths", type=_parse_count, nargs="+", default=[384], help="of the states (default: 384)")
    parser.add_argument("--vocabularies", type=_parse_count, nargs="+", default=[6000, 10_000, 32_000], help="in words")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")


def _add_sentence_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentences", type=_parse_count, default=128, help="per batch (default: %(default)s)")
    parser.add_argument(
        "--lengths", type=_parse_count, nargs="+", default=(22, 109, 201), help="in words (default: %(default)s)"
    )
    parser.add_argument("--embed-dim", type=_parse_count, default=300, help="width (default: %(default)s)")
    parser.add_argument("--heads", type=_parse_count, default=10, help="(default: %(default)s)")
    parser.add_argument("--layers", type=_parse_count, default=3, help="(default: %(default)s)")
    parser.add_argument("--vocabulary", type=_parse_count, default=10_000, help="in words (default: %(default)s)")


def _add_batches_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sentences", type=_parse_count, nargs="+", default=[1_000_000, 10_000_000], help="of a data set"
    )
    parser.add_argument("--max-tokens", type=_parse_count, default=4000, help="per batch (default: %(default)s)")
    parser.add_argument(
        "--multiple", type=_parse_count, default=8, help="of sentences in a batch (default: %(default)s)"
    )


def _add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write BENCHMARKS.md from what the other kinds of benchmark wrote with --json, on any machines."
    )
    parser.add_argument("records", type=Path, nargs="+", metavar="JSON", help="what --json wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the Markdown file to write")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="also draw how cost grows, into this folder")
    parser.add_argument("--gpu-steps", type=Path, metavar="FOLDER", help="what examples/benchmark/gpu.sh wrote there")
    parser.add_argument("--script", default="examples/benchmark/run.sh", help="named as what measures it all again")


class Kind(NamedTuple):
    """A kind of benchmark.

    Attributes:
        help: one line for ``muse-plugin benchmark --help``.
        description: what is measured, for its own ``--help`` and for BENCHMARKS.md.
        add_arguments: declares the flags that the others do not have.
    """

    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


KINDS = {
    "train": Kind(
        "time and memory of a training step, against fairseq's models and the plain form.",
        "A step is forward, label-smoothed loss, backward, clipping and Adam, for batches of sentences of one length. "
        "Our models are measured with the fused loss and with fairseq's, all others with fairseq's.",
        _add_train_arguments,
    ),
    "generate": Kind(
        "beam search with fairseq's generator, against fairseq's own models and CTranslate2.",
        "Translates batches of random sentences with beam search; source and translation have the same, given length. "
        "Models have the form that fairseq-generate brings them into. CTranslate2 searches by itself, with "
        "fairseq's Transformer of the same table.",
        _add_generate_arguments,
    ),
    "conv": Kind(
        "the dynamic convolution, forward and backward, against fairseq's in Python.",
        "Both sides start from the same logits and values of shape (T, B, C) and end with gradients for them. Several "
        "kernel sizes (3+15) are that many convolutions for fairseq, weighed and added up, and one for us. On a GPU, a "
        "round replays a CUDA graph: the time is that of the kernels, not of starting them.",
        _add_conv_arguments,
    ),
    "attention": Kind(
        "multi-head self-attention, forward and backward, against fairseq's module.",
        "Projections included, with the same weights, from states of shape (T, B, C) to gradients for states and "
        "weights. Causal attention is that of a decoder; in the other cases, a quarter of each sentence but the first "
        "is padding. With --windows: encoder layers, forward only, as at test time. fairseq's layers attend and have a "
        "feed-forward network, four times as wide as the layer; layers of windows have none (arXiv:1912.00544 claims "
        "not to need it). Heads per scale by alpha = 0.5. Dense: the same layers, with one mask over all pairs of "
        "words per head.",
        _add_attention_arguments,
    ),
    "loss": Kind(
        "output layer and label-smoothed loss, forward and backward, against fairseq's.",
        "From the decoder's states to gradients for them and for the weight of the output layer, label smoothing 0.1. "
        "Memory is what is held at the highest beyond states, weight and targets; both gradients are part of it.",
        _add_loss_arguments,
    ),
    "sentence": Kind(
        "whole sentence models, forward, against fairseq's Transformer encoder.",
        "From ids to scores of two classes, as at test time: embeddings, three layers of width 300 with ten heads (one "
        "layer for the GRU), pooling, classifier. fairseq's encoder ends with its states. Transformers have a "
        "feed-forward network four times as wide as the layer; a layer of the Multi-Scale Transformer, which has none, "
        "has a third of their parameters.",
        _add_sentence_arguments,
    ),
    "batches": Kind(
        "sentences gathered into batches, by numpy against fairseq's compiled extension.",
        "The batches of a whole data set, as at the start of an epoch. Where fairseq is not compiled, numpy is alone.",
        _add_batches_arguments,
    ),
}
