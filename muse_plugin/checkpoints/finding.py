"""Which checkpoint a folder stands for."""

from pathlib import Path

CHECKPOINT_NAMES = ("checkpoint_avg.pt", "checkpoint_best.pt", "checkpoint_last.pt")


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that ``--path`` means: the file itself, or the first of ``CHECKPOINT_NAMES`` in a folder.

    Raises:
        FileNotFoundError: if there is none.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"--path must name a checkpoint or a folder with one, but {path} does not exist; "
            "train one first, e.g. by a recipe in examples."
        )
    for name in CHECKPOINT_NAMES:
        if (path / name).is_file():
            return path / name
    inner = path / "model"
    hint = f"did you mean {inner}?" if inner.is_dir() else "name the checkpoint file itself or train a model first."
    raise FileNotFoundError(
        f"--path must name a folder with one of {', '.join(CHECKPOINT_NAMES)}, but {path} holds none; {hint}"
    )
