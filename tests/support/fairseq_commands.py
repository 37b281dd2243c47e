"""fairseq's commands inside the test process (importing fairseq takes seconds), on tiny made-up data."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.helpers import save_checkpoint
from torch import nn

import muse_plugin

USER_DIR = str(Path(muse_plugin.__file__).parent)
WORDS = [f"w{i}" for i in range(20)]
# Sizes that let every preset train within a second.
SMALL = [
    f"--{side}-{name}={value}"
    for side in ("encoder", "decoder")
    for name, value in (("embed-dim", 16), ("ffn-embed-dim", 32), ("layers", 2), ("attention-heads", 4))
]


def run(tool: str, *arguments: object) -> str:
    """Runs ``fairseq-<tool>`` and returns what it printed on standard output.

    Raises:
        SystemExit: if the command line is wrong.
    """
    import importlib

    module = importlib.import_module(f"fairseq_cli.{tool}")
    argv, sys.argv = sys.argv, [f"fairseq-{tool}", *map(str, arguments)]
    root = logging.getLogger()
    handlers = list(root.handlers)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            module.cli_main()
    finally:
        sys.argv = argv
        root.handlers = handlers
    return printed.getvalue()


def parse_training(*words: object) -> Namespace:
    """What ``fairseq-train WORDS`` reads from its command line."""
    return options.parse_args_and_arch(options.get_training_parser(), [*map(str, words)])


def save_untrained(
    path: Path, *words: object, seed: int = 1, change: Callable[[str, nn.Parameter], Any] | None = None, **entries: Any
) -> tuple[nn.Module, Any]:
    """Writes a checkpoint as fairseq-train does, of a model that has not been trained.

    Args:
        path: where to.
        *words: of the command line.
        seed: of the parameters.
        change: is called with name and value of each of them.
        **entries: see ``helpers.save_checkpoint``.

    Returns:
        The model, in evaluation mode, and its task.
    """
    cfg = convert_namespace_to_omegaconf(parse_training(*words))
    torch.manual_seed(seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    with torch.no_grad():
        for name, parameter in model.named_parameters() if change else ():
            change(name, parameter)
    save_checkpoint(path, model.state_dict(), **{"args": None, "cfg": cfg, "task_state": task.state_dict(), **entries})
    return model.eval(), task


def sharpen(name: str, parameter: nn.Parameter) -> None:
    """For ``change``: gates are uneven, and heads look at something."""
    if name.endswith("gate"):
        parameter.normal_(std=0.5)
    elif parameter.dim() > 1 and "embed" not in name:
        parameter.mul_(3)


def make_data(folder: Path, sizes: dict[str, int], seed: int = 1) -> Path:
    """Writes binarised "de"-"en" data with one dictionary; the target is the source reversed.

    Args:
        folder: where to write; the binarised data is in ``folder/bin``.
        sizes: number of sentences of "train", "valid" and "test".
        seed: of the sentences.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)
    for split, size in sizes.items():
        lines = [generator.choices(WORDS, k=generator.randint(2, 9)) for _ in range(size)]
        (folder / f"{split}.de").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.en").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    prefixes = [f"--{split}pref={folder / split}" for split in sizes]
    run(
        "preprocess", *prefixes, "-s", "de", "-t", "en", "--destdir", folder / "bin", "--joined-dictionary",
        "--workers", 1,
    )  # fmt: skip
    return folder / "bin"


def train(data: Path | None, save_dir: Path, arch: str, *arguments: object) -> str:
    """Trains on the CPU with settings that suit tiny data; later arguments win. None: the task needs no folder."""
    from fairseq.checkpoint_utils import save_checkpoint
    from fairseq_cli.train import should_stop_early

    # In a process of its own, fairseq starts without these.
    vars(save_checkpoint).pop("best", None)
    vars(should_stop_early).clear()
    if "--criterion" not in arguments:
        arguments = ("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1, *arguments)
    return run(
        "train", *([] if data is None else [data]), "--user-dir", USER_DIR, "--arch", arch, "--save-dir", save_dir,
        "--cpu",
        "--optimizer", "adam", "--lr", "0.01", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 2,
        "--max-tokens", 200,
        "--no-progress-bar", "--log-format", "none", "--num-workers", 0, "--seed", 3, *arguments,
    )  # fmt: skip


def generate(data: Path, checkpoint: Path, *arguments: object) -> dict[int, str]:
    """Translates the test set; returns hypotheses by sentence id."""
    printed = run(
        "generate", data, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--beam", 3, "--max-tokens", 200,
        "--num-workers", 0, *arguments,
    )  # fmt: skip
    return {int(number): text for number, text in re.findall(r"^H-(\d+)\t\S+\t(.*)$", printed, re.MULTILINE)}
