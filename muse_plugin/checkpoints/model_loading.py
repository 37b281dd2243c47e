"""Finds and loads a checkpoint by fairseq, with one sentence for what is wrong with the file or the data next to it."""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, utils
from fairseq.tasks import setup_task
from omegaconf import OmegaConf
from torch import nn

from muse_plugin.checkpoints.model_outline import check_model_fits
from muse_plugin.files.limits import LARGEST_VOCABULARY, check_size
from muse_plugin_command.flags.shared import CHECKPOINT_NAMES

_NAMES_FILE = re.compile(r"_path$|_checkpoint$|pretrained")


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


def read_state(path: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Reads a checkpoint, brought up to date by fairseq; if its folder was named, says on stderr which one it is.

    The data that it names are looked for as ``_find_data`` says, unless ``overrides`` has others.

    Args:
        path: what ``--path`` names; see ``find_checkpoint``.
        overrides: settings that replace the stored ones, by name.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if the file is damaged or no checkpoint.
    """
    checkpoint = find_checkpoint(path)
    OmegaConf.clear_resolver("oc.env")  # a checkpoint from elsewhere has no business with the user's variables
    with _faults_as_sentences(checkpoint):
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), arg_overrides=dict(overrides))
        state["args"] = None  # of older fairseq; what they say is in "cfg"
        _drop_files(state["cfg"].get("model"))
        task = state["cfg"]["task"]
        if isinstance(task, argparse.Namespace):  # of a task without typed settings
            raise ValueError(
                f"{checkpoint} was trained with --task {getattr(task, 'task', None)}, whose models the commands of "
                "muse-plugin do not take; use fairseq-generate or fairseq-interactive."
            )
        task["_name"]  # is there
        if path.is_dir():
            sys.stderr.write(f"using {_describe_choice(checkpoint, state)}\n")
        if "data" not in overrides:
            _point_to_data(checkpoint, task)
    return state


def _describe_choice(checkpoint: Path, state: Mapping[str, Any]) -> str:
    averaged = state.get("averaged_from")  # of muse-plugin average
    average = f", average of {len(averaged)}" if isinstance(averaged, list) else ""
    count = sum(1 for _ in checkpoint.parent.glob("*.pt"))
    others = "the only checkpoint" if count == 1 else f"of {count:,} checkpoints"
    return f"{checkpoint.name}{average}, {others} in the folder {checkpoint.parent}"


def _point_to_data(checkpoint: Path, task: MutableMapping[str, Any]) -> None:
    """Puts the place where the data are into the settings of a task, and says on stderr if it is another one."""
    stored = task.get("data")
    found = _find_data(checkpoint, stored) if isinstance(stored, str) else stored
    if found != stored:
        sys.stderr.write(f"using the data in {found}, which the checkpoint calls {stored}\n")
        task["data"] = found


def _find_data(checkpoint: Path, stored: str) -> str:
    """Where the data of a checkpoint are, which it stores as folders with ``os.pathsep`` between them.

    Where it says, if dictionaries are there. Otherwise a relative path may start at a folder above the checkpoint, as
    it does where training was started there and the command was not. Otherwise dictionaries next to the checkpoint
    are those of its data. If there are none, the path is as stored.
    """
    parts = utils.split_paths(stored, os.pathsep)
    if holds_dictionaries(Path(parts[0])):
        return stored
    is_relative = parts[0] and not os.path.isabs(parts[0])  # an empty path names no folder, so none above it either
    for folder in checkpoint.resolve().parents if is_relative else []:
        if holds_dictionaries(folder / parts[0]):
            return os.pathsep.join(str(folder / part) for part in parts)
    return str(checkpoint.parent) if holds_dictionaries(checkpoint.parent) else stored


def holds_dictionaries(folder: Path) -> bool:
    """Whether a folder has dictionaries as fairseq-preprocess and ``muse-plugin prepare-text`` lay them out."""
    return os.path.isdir(folder) and any(any(folder.glob(names)) for names in ("dict*.txt", "*/dict.txt"))


def check_data(checkpoint: Path, folder: Path) -> None:
    """Checks that a folder may be the data of a checkpoint.

    Raises:
        FileNotFoundError: if there is no such folder, or no dictionary in it.
    """
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"the data of {checkpoint} are looked for in {folder}, which does not exist; name their folder by --data."
        )
    if not holds_dictionaries(folder):
        raise FileNotFoundError(
            f"the data in {folder} must be those that {checkpoint} was trained with, but there is no dictionary in it; "
            "name the folder of the right ones by --data."
        )


@contextlib.contextmanager
def _faults_as_sentences(checkpoint: Path) -> Iterator[None]:
    """Turns whatever fairseq raises over odd settings into a sentence; what speaks for itself is left as it is.

    Raises:
        ValueError: the sentence.
    """
    try:
        yield
    except (ValueError, RuntimeError, OSError, ImportError):
        raise
    except Exception as error:
        shown = " ".join(f"{type(error).__name__}: {error}".split())[:250]
        raise ValueError(
            f"{checkpoint} and the data next to it must be as fairseq and this version of muse_plugin write them, but "
            f"reading them gave {shown}; use another checkpoint, or update muse_plugin."
        ) from error


def _drop_files(settings: Any) -> None:
    """Empties the settings that name files of parameters, all of which are in the checkpoint."""
    is_mapping = isinstance(settings, MutableMapping)
    for name, value in list((settings if is_mapping else getattr(settings, "__dict__", {})).items()):
        if isinstance(value, MutableMapping):
            _drop_files(value)
        elif isinstance(value, str) and _NAMES_FILE.search(name):
            if is_mapping:
                settings[name] = None
            else:
                setattr(settings, name, None)


def build_model(
    checkpoint: Path, state: dict[str, Any], overrides: Mapping[str, str], data: Any
) -> tuple[nn.Module, Any]:
    """Builds the model and the task of a checkpoint from what ``read_state`` read; ``data`` is named in messages.

    Raises:
        ValueError: if the parameters do not fit the data or the settings, or a dictionary is far too large.
    """
    for pattern in ("dict.*", "*/dict.*"):
        for path in Path(str(data)).glob(pattern):
            check_size(path, LARGEST_VOCABULARY, "copy the dictionary again from the folder of the training data")
    try:
        with _faults_as_sentences(checkpoint):
            task = setup_task(state["cfg"].task, from_checkpoint=True)
            task.load_state_dict(state.get("task_state", {}))
            settings = state["cfg"].model
            # The settings of a model are a config or, for older models, a Namespace.
            names = settings if isinstance(settings, Mapping) else vars(settings)
            check_model_fits(
                checkpoint, state["model"], names, lambda: task.build_model(settings, from_checkpoint=True)
            )
            (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
                [str(checkpoint)], dict(overrides), task=task, state=state
            )
    except RuntimeError as error:
        raise ValueError(
            f"the data in {data} must be those that {checkpoint} was trained with, but loading the model gave: "
            f"{' '.join(str(error).split())[:250]} ...; name the folder of the right ones by --data, or get the "
            "checkpoint again if its settings are not those of its parameters."
        ) from error
    return model, task
