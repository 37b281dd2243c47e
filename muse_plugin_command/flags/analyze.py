"""The flags of ``muse-plugin analyze`` and of its kinds."""

import argparse
from pathlib import Path

from muse_plugin_command.flags.shared import add_path_argument

MAX_TOKENS = 4000  # of a batch, padding included
TOP_WORDS = 10
MIN_DOCUMENTS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the kinds of analysis and their flags."""
    parser.description = (
        "Look into models and training runs: figures as PNG and SVG, numbers as CSV and JSON, and a report that opens "
        "from disk. BLEU by sentence length, with confidence intervals, is drawn by muse-plugin evaluate --plot."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    _add_model_arguments(
        kinds.add_parser(
            "model", help="figures and numbers about a trained model, from its parameters and a part of its data."
        )
    )
    _add_bert_arguments(
        kinds.add_parser("bert", help="how far the heads of a BERT look (arXiv:1912.00544, Figure 3), and how sharply.")
    )
    _add_training_arguments(
        kinds.add_parser(
            "training", help="several training runs in one plot, loss, BLEU, learning rate, gradient norm."
        )
    )


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Look into a trained model: gates and kernels of convolutions, what heads look at, how far and how sharply, "
        "windows of heads, masks of the distance network, words and documents as the heads of a pooling see them. "
        "Writes each figure as PNG and SVG with its numbers as CSV, all numbers as numbers.json, and report.html with "
        "everything in one file."
    )
    add_path_argument(parser)
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR_OR_CHECKPOINT",
        help="a second model of the same data, such as a Transformer, to show next to the first in every figure",
    )
    parser.add_argument("--name", help="what to call the model (default: its architecture)")
    parser.add_argument("--against-name", metavar="NAME", help="what to call the second (default: its architecture)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the data (default: as trained)")
    parser.add_argument("--split", default="valid", metavar="NAME", help="part of the data (default: valid)")
    parser.add_argument(
        "--sentences", type=int, default=500, metavar="N", help="sentences read, spread over the split (default: 500)"
    )
    parser.add_argument(
        "--sentence",
        type=int,
        metavar="N",
        help="number of the sentence, from 1, whose attention is shown (default: one of at most 20 tokens)",
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help="analyses out of gates, kernels, attention, allocation, directions, words, pooling (default: all that the "
        "model has parts for)",
    )
    _add_word_flags(parser)
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help="most tokens in a batch, padding included (default: 4000)"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def _add_bert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Look at the attention of a BERT, a folder as Hugging Face's transformers writes it, while it reads raw text: "
        "how far each head looks, how its weight is spread over distances, how sharp it is by sentence length, and "
        "what heads look at in one sentence."
    )
    parser.add_argument(
        "--bert-dir",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder with config.json, vocab.txt and model.safetensors or pytorch_model.bin",
    )
    parser.add_argument("--input", required=True, type=Path, metavar="FILE", help="raw text, one sentence a line")
    parser.add_argument(
        "--sentences", type=int, default=500, metavar="N", help="sentences read from the beginning (default: 500)"
    )
    parser.add_argument(
        "--sentence",
        type=int,
        default=1,
        metavar="N",
        help="number of the sentence, from 1 and blank lines left out, whose attention is shown (default: 1)",
    )
    parser.add_argument("--name", default="BERT", help="what to call the model (default: BERT)")
    parser.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, help="most word pieces in a batch (default: 4000)"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def _add_training_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw the course of training runs from their logs: loss, perplexity, BLEU or accuracy, learning rate and "
        "gradient norm by updates, several runs in one plot. Writes PNG, SVG, CSV, numbers.json and report.html."
    )
    parser.add_argument(
        "logs",
        nargs="*",
        type=Path,
        metavar="FILE_OR_DIR",
        help="logs of fairseq-train (--log-format simple or json), or folders of its --tensorboard-logdir; one per run "
        "(a recipe's published_validation.tsv draws the authors' validation as well)",
    )
    parser.add_argument(
        "--logs", dest="more_logs", nargs="+", type=Path, default=[], metavar="FILE_OR_DIR", help="the same"
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: the parts in which paths differ)"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write to")


def _add_word_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags about words on ``parser``."""
    words = parser.add_argument_group(
        "words", "of a classifier whose pooling has heads; documents are cut to --max-words as in training"
    )
    words.add_argument(
        "--words",
        nargs="+",
        metavar="WORD",
        help="words whose attention is shown by class (default: those that differ most between classes)",
    )
    words.add_argument(
        "--top-words",
        type=int,
        default=TOP_WORDS,
        metavar="N",
        help=f"most words shown of a class (default: {TOP_WORDS})",
    )
    words.add_argument(
        "--min-documents",
        type=int,
        default=MIN_DOCUMENTS,
        metavar="N",
        help=f"documents of a class that a word must occur in to be ranked there (default: {MIN_DOCUMENTS})",
    )
    words.add_argument(
        "--word-measure",
        choices=("weight", "ratio"),
        default="weight",
        help="what words are ranked by: weight, of all places of the word in a document (the default), or ratio, that "
        "divided by what equal weights would give it, which favours neither frequent words nor short documents",
    )
