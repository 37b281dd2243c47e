"""Runs fairseq-generate on a checkpoint, for ``muse-plugin evaluate --path``."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from fairseq.data.data_utils import infer_language_pair

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


class GenerationSettings(NamedTuple):
    """What to translate and how; fields are flags of fairseq-generate.

    Attributes:
        path: a checkpoint, or several with the path separator of the system (``:``) between them: an ensemble.
        data: folder of the binarised data.
        gen_subset: name of the test set in it.
        source_lang: taken from the names of the files in ``data`` if None; so is ``target_lang``.
        target_lang: see above.
        beam: beam size.
        lenpen: exponent of the length by which the score of a hypothesis is divided.
        batch_size: most sentences in a batch, or None.
        max_tokens: most source tokens in a batch, padding included, or None for fairseq's default.
        cpu: if false, a GPU is used when there is one.
        post_process: kind of subword marks that fairseq removes, or None to keep them.
        more: further words of the command line.
    """

    path: str
    data: Path
    gen_subset: str = "test"
    source_lang: Optional[str] = None
    target_lang: Optional[str] = None
    beam: int = 5
    lenpen: float = 1.0
    batch_size: Optional[int] = None
    max_tokens: Optional[int] = None
    cpu: bool = False
    post_process: Optional[str] = None
    more: Sequence[str] = ()


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


def make_command(settings: GenerationSettings, results_path: Path) -> list[str]:
    """Returns the command line of fairseq-generate as a list of words."""
    command = [sys.executable, "-m", "fairseq_cli.generate", str(settings.data), "--user-dir", str(PACKAGE_FOLDER)]
    command += ["--path", settings.path, "--results-path", str(results_path), "--gen-subset", settings.gen_subset]
    command += ["--beam", str(settings.beam), "--lenpen", str(settings.lenpen)]
    for flag, value in (
        ("--source-lang", settings.source_lang),
        ("--target-lang", settings.target_lang),
        ("--batch-size", settings.batch_size),
        ("--max-tokens", settings.max_tokens),
        ("--post-process", settings.post_process),
    ):
        if value is not None:
            command += [flag, str(value)]
    return [*command, *(["--cpu"] if settings.cpu else []), *settings.more]


def generate(settings: GenerationSettings, results_path: Path) -> Path:
    """Translates a test set in a process of its own, with messages on standard error.

    Args:
        settings: what to translate and how.
        results_path: folder for the log, made if missing.

    Returns:
        The log.

    Raises:
        FileNotFoundError: if the checkpoint is missing, or fairseq wrote no log.
        ValueError: if fairseq-generate failed.
    """
    for part in settings.path.split(os.pathsep):
        if not Path(part).is_file():
            raise FileNotFoundError(f"--path must name a checkpoint, but there is no file {part}; check the path.")
    command = make_command(settings, results_path)
    environment = {"LOGLEVEL": "WARNING", **os.environ}  # else fairseq prints all its settings
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode != 0:
        raise ValueError(
            f"fairseq-generate must end with exit code 0, but got {done.returncode}; its own message is above. The "
            f"command was: {shlex.join(command)}"
        )
    log = results_path / f"generate-{settings.gen_subset}.txt"
    if not log.is_file():
        raise FileNotFoundError(
            f"fairseq-generate must write {log}, but did not; leave --results-path and --gen-subset out of "
            "--generate-arg."
        )
    return log
