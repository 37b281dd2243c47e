"""The flags of ``muse-plugin export``."""

import argparse
from pathlib import Path

from muse_plugin_command.flags.shared import add_path_argument, add_translation_data_argument

FORMATS = ("onnx", "ctranslate2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin export`` on ``parser``."""
    parser.description = (
        "Write a translation model to a folder that needs neither fairseq nor torch: graphs of ONNX with dictionaries, "
        "text pipeline, a model card and a program, python run.py < in.txt > out.txt; or a model of CTranslate2."
    )
    add_path_argument(parser)
    add_translation_data_argument(parser)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="the folder to write: a new or an empty one")
    add(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="onnx: with its own program, every translation model; ctranslate2: plain Transformers (default: onnx)",
    )
    add("--int8", action="store_true", help="store the weights of matrix products in 8 bits")
    add(
        "--evaluate",
        nargs=2,
        type=Path,
        metavar=("SOURCE", "REFERENCE"),
        help="two files of raw text, one sentence a line: translate the first, put BLEU into the model card; with "
        "--int8 also that before rounding (--format onnx)",
    )
    add("--licence", metavar="NAME", help="licence of model and data, for the model card")
