"""``muse-plugin export``: a trained translation model to a folder that needs neither fairseq nor torch."""

import argparse
import sys

from muse_plugin.checkpoints.model_loading import find_checkpoint
from muse_plugin.exporting.model_card import describe_training, find_scores
from muse_plugin.files.built_folder import build_folder
from muse_plugin.files.lines import check_file
from muse_plugin.inference.translate import Translator
from muse_plugin_command.flag_checks import check_packages, check_target_folder


def run(args: argparse.Namespace) -> int:
    """Writes the folder; the body of ``muse-plugin export``.

    Raises:
        FileExistsError: if the folder is there and not empty.
        FileNotFoundError: if a file is missing.
        ImportError: if a package is missing that writes the format.
        NotImplementedError: if the model cannot be written in the format.
        ValueError: if flags do not fit or a file is damaged.
    """
    _check(args)
    if args.format == "onnx":
        check_packages("muse-plugin export", "onnx", "onnxruntime", extra="export")
        from muse_plugin.exporting.onnx_folder import fill_folder
    else:
        check_packages("muse-plugin export", "ctranslate2", extra="ctranslate2")
        from muse_plugin.exporting.ctranslate2_folder import fill_folder
    translator = Translator.load(args.path, data=args.data, cpu=True, inference_backend="torch")
    checkpoint = find_checkpoint(args.path)
    if translator.pipeline.source.settings.subwords == "wordpiece":
        raise NotImplementedError(
            "muse-plugin export takes text pipelines of byte-pair encoding, SentencePiece or whole words, but got word "
            "pieces; translate with muse-plugin translate."
        )
    home = checkpoint.parent.resolve()
    facts = {
        "training": describe_training(translator.state),
        "scores": find_scores(checkpoint),
        "licence": args.licence,
        "name": home.parent.name if home.name in ("model", "checkpoints") else home.name,
        "file": checkpoint.name,
    }
    with build_folder(args.output) as folder:
        fill_folder(folder, translator, facts, args.int8, args.evaluate)
    sys.stdout.write(f"written to {args.output}: {', '.join(sorted(path.name for path in args.output.iterdir()))}\n")
    if args.format == "onnx":
        sys.stdout.write(f"translate raw text:\n  python {args.output / 'run.py'} < in.txt > out.txt\n")
    return 0


def _check(args: argparse.Namespace) -> None:
    check_target_folder(args.output, "--output")
    if args.output.exists() and any(args.output.iterdir()):
        raise FileExistsError(
            f"--output must name a new or an empty folder, but {args.output} holds "
            f"{', '.join(sorted(path.name for path in args.output.iterdir())[:3])}; name another folder."
        )
    for path in args.evaluate or ():
        check_file(path, "--evaluate")
    if args.evaluate and args.format != "onnx":
        raise ValueError(
            "--evaluate translates with the program of --format onnx, but got --format ctranslate2; leave it out."
        )
