"""Checkpoints of sentence models that were never trained, next to the data that were prepared for them."""

from pathlib import Path
from typing import Any

from support.fairseq_commands import save_untrained
from torch import nn

from muse_plugin_command import cli


def prepare_text(folder: Path, text: str, *flags: str, data: str = "data") -> Path:
    """Runs ``prepare-text`` on one text for all splits, which it writes next to the data; returns their folder."""
    source = str(folder / f"{data}.txt")
    Path(source).write_text(text)
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", source)]
    assert cli.main(["prepare-text", *splits, "--output", str(folder / data), *flags]) == 0
    return folder / data


def save_model(folder: Path, task: str, arch: str, *flags: str) -> tuple[nn.Module, Any]:
    """Writes a checkpoint for the data of ``prepare_text``; returns the model and its task."""
    words = [folder / "data", "--task", task, "--criterion", task, "--arch", arch, "--cpu", *flags]
    words += ["--optimizer", "adam", "--encoder-embed-dim", "8", "--word-embed-dim", "8"]
    return save_untrained(folder / "checkpoint_best.pt", *words)


def make_pair_model(folder: Path) -> Path:
    """A model of pairs in two labels, and its data."""
    prepare_text(folder, "a b\tc\tyes\nc\ta\tno\n" * 3, "--format", "tsv:text=1,pair=2,label=3")
    save_model(folder, "muse_sentence_classification", "sentence_average")
    return folder
