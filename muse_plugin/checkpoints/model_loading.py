"""Loads a checkpoint by fairseq, with one sentence for what is wrong with the file or with the data beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from torch import nn


def read_state(checkpoint: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Reads a checkpoint, brought up to date by fairseq.

    Args:
        checkpoint: the file.
        overrides: settings that replace the stored ones, by name.

    Raises:
        ValueError: if the file is damaged or no checkpoint.
    """
    state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), arg_overrides=dict(overrides))
    return state


def build_model(
    checkpoint: Path, state: dict[str, Any], overrides: Mapping[str, str], data: Any
) -> tuple[nn.Module, Any]:
    """Builds the model and the task of a checkpoint.

    Args:
        checkpoint: the file.
        state: of ``read_state``.
        overrides: as for ``read_state``.
        data: folder of the data, for messages.

    Raises:
        ValueError: if the parameters do not fit the data.
    """
    try:
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], dict(overrides), state=state
        )
    except RuntimeError as error:
        raise ValueError(
            f"the data in {data} must be those that {checkpoint} was trained with, but loading the model gave: "
            f"{' '.join(str(error).split())[:250]} ...; name the folder of the right ones by --data."
        ) from error
    return model, task
