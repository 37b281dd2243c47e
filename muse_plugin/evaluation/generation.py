"""Runs fairseq-generate on a checkpoint, for ``muse-plugin evaluate --path``."""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import fairseq_cli
from fairseq.data.data_utils import infer_language_pair

from muse_plugin.checkpoints.model_loading import find_checkpoint
from muse_plugin.text.text_settings import FILE_NAME, load_texts

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
# Flags of fairseq-generate that are also ours, with the values where they are not given; None leaves it to fairseq.
DEFAULTS: dict[str, Any] = {
    "gen_subset": "test",
    "beam": 5,
    "lenpen": 1.0,
    "source_lang": None,
    "target_lang": None,
    "batch_size": None,
    "max_tokens": None,
}


def infer_languages(data: Path) -> tuple[Optional[str], Optional[str]]:
    """Finds source and target language in the names of binarised files, or None for both.

    Raises:
        FileNotFoundError: if there is no such folder.
        NotADirectoryError: if ``data`` is no folder.
    """
    if not data.exists():
        raise FileNotFoundError(
            f"--data must name a folder that fairseq-preprocess wrote, but {data} does not exist; check the path."
        )
    if not data.is_dir():
        raise NotADirectoryError(f"--data must name a folder that fairseq-preprocess wrote, but {data} is a file.")
    source, target = infer_language_pair(str(data))
    return source, target


def make_command(args: argparse.Namespace, results_path: Path) -> list[str]:
    """Returns the command line of fairseq-generate, with the flags of the same names, as a list of words."""
    keeps_subwords = args.length_unit == "subword" or args.post_process == "none"
    values = {
        "path": args.path,
        "results_path": results_path,
        **{flag: default if getattr(args, flag) is None else getattr(args, flag) for flag, default in DEFAULTS.items()},
        "post_process": None if keeps_subwords else args.post_process or "subword_nmt",
    }
    # By its path: -m and -c would put the current folder first on the module path, and run a random.py that is there.
    program = Path(fairseq_cli.__file__).with_name("generate.py")
    command = [sys.executable, str(program), str(args.data), "--user-dir", str(PACKAGE_FOLDER)]
    for flag, value in values.items():
        command += [] if value is None else ["--" + flag.replace("_", "-"), str(value)]
    return [*command, *(["--cpu"] if args.cpu else []), *(args.generate_arg or ())]


def find_subwords(args: argparse.Namespace) -> Optional[str]:
    """What ``--post-process`` is for a model with SentencePiece by its text pipeline, next to data or checkpoint.

    Returns:
        "sentencepiece", or None for other models, whose marks are found in the text.

    Raises:
        ValueError: if the file of the text pipeline is damaged.
    """
    places = map(Path, args.path.split(os.pathsep))
    for folder in (args.data, *(place if place.is_dir() else place.parent for place in places)):
        if (folder / FILE_NAME).is_file():
            texts, _ = load_texts(folder / FILE_NAME, ("source", "target"))
            return "sentencepiece" if texts["target"].settings.subwords == "sentencepiece" else None
    return None


def generate(args: argparse.Namespace, results_path: Path) -> Path:
    """Translates a test set in a process of its own, with messages on standard error.

    Args:
        args: the flags of ``muse-plugin evaluate``. ``path`` may be several checkpoints or folders with the path
            separator of the system (``:``) between them: an ensemble.
        results_path: folder for the log, made if missing.

    Returns:
        The log.

    Raises:
        FileNotFoundError: if the checkpoint is missing, or fairseq wrote no log.
        ValueError: if fairseq-generate failed.
    """
    places = list(map(Path, args.path.split(os.pathsep)))
    checkpoints = list(map(find_checkpoint, places))
    for place, checkpoint in zip(places, checkpoints, strict=True):
        if place != checkpoint:
            sys.stderr.write(f"using {checkpoint.name} in the folder {place}\n")
    path = os.pathsep.join(map(str, checkpoints))
    command = make_command(argparse.Namespace(**{**vars(args), "path": path}), results_path)
    environment = {"LOGLEVEL": "WARNING", **os.environ}  # else fairseq prints all its settings
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode != 0:
        raise ValueError(
            f"fairseq-generate must end with exit code 0, but got {done.returncode}; its own message is above. The "
            f"command was: {shlex.join(command)}"
        )
    log = name_log(args, results_path)
    if not log.is_file():
        raise FileNotFoundError(
            f"fairseq-generate must write {log}, but did not; leave --results-path and --gen-subset out of "
            "--generate-arg."
        )
    return log


def name_log(args: argparse.Namespace, folder: Path) -> Path:
    """The file that fairseq-generate writes into a folder."""
    return folder / f"generate-{args.gen_subset or DEFAULTS['gen_subset']}.txt"
