"""Averages the parameters of several checkpoints of one training run into one: ``muse-plugin average``.

The flags are those that fairseq users know from its averaging script. Read ``safe_loading`` next: it decides what a
checkpoint file may contain and how a file is written.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor
from tqdm import tqdm

from muse_plugin.checkpoints.safe_loading import load_checkpoint, save_atomically

PathLike = Union[str, os.PathLike[str]]

# How fairseq names its checkpoints (save_dir/...). The last one ends in a digit that breaks ties, after three decimals.
EPOCH_NAME = re.compile(r"checkpoint(?P<epoch>\d+)\.pt")
UPDATE_NAME = re.compile(r"checkpoint_(?P<epoch>\d+)_(?P<updates>\d+)\.pt")
BEST_NAME = re.compile(r"checkpoint\.best_(?P<metric>.+)_(?P<value>\d+\.?\d*)\.pt")

# A batch counter of BatchNorm says how long one checkpoint was trained: the newest one's value is kept.
COUNTER_SUFFIX = "num_batches_tracked"

NAMES_SHOWN = 5  # file and parameter names listed in an error before "and N more"


def run(args: argparse.Namespace) -> int:
    """Averages the checkpoints that the flags select and writes the result.

    Args:
        args: the parsed flags.

    Returns:
        0; every failure is an exception.

    Raises:
        ValueError: if the flags contradict each other, if the output is one of the inputs, or if the checkpoints do
            not fit together.
        FileNotFoundError: if an input, or the folder of the output, does not exist.
    """
    paths = select_checkpoints(
        args.inputs,
        num_epoch_checkpoints=args.num_epoch_checkpoints,
        num_update_checkpoints=args.num_update_checkpoints,
        num_best_checkpoints=args.num_best_checkpoints,
        checkpoint_upper_bound=args.checkpoint_upper_bound,
    )
    output = Path(args.output)
    _check_output(output, paths)
    state = average_checkpoints(paths, progress=True)
    save_atomically(state, output)
    print(f"averaged {len(paths)} checkpoints ({_shorten([path.name for path in paths])}) into {output}")
    return 0


def average_checkpoints(paths: Sequence[PathLike], progress: bool = False) -> dict[str, Any]:
    """Averages checkpoints, one file in memory at a time.

    Floating-point parameters are summed in float32, float64 ones in float64, and the mean is cast back to the dtype
    stored in the newest file. Integer and boolean tensors have no meaningful mean: they must be equal in all files,
    except BatchNorm's batch counters, which are taken from the newest file. Parameters that share one storage in the
    newest file (tied embeddings) share one in the result.

    Everything else (configuration, task state, history) is the newest file's, the newest being the one with the most
    updates and, among equals, the first of ``paths``. Its optimizer state is left out: it belongs to that file's
    parameters, not to their mean. The key ``averaged_from``, which fairseq ignores, lists the averaged file names.

    Args:
        paths: checkpoint files, at least one.
        progress: if true, a progress bar goes to stderr when that is a terminal.

    Returns:
        A checkpoint as fairseq writes it, with tensors on the CPU.

    Raises:
        ValueError: if ``paths`` is empty or names a file twice; if a file is damaged or holds no model; if two files
            differ in parameter names, in shapes or in an integer tensor.
        FileNotFoundError: if a file does not exist.
    """
    files = [Path(path) for path in paths]
    _check_inputs(files)
    totals: dict[str, Tensor] = {}
    first: Optional[Path] = None
    newest: dict[str, Any] = {}
    newest_updates = -1
    for path in tqdm(files, desc="averaging", unit="file", disable=None if progress else True):
        state = _load_listed(path)
        model = _get_parameters(state, path)
        if first is None:
            first = path
            totals = {name: _start_total(tensor) for name, tensor in model.items()}
        else:
            _check_same_parameters(totals, model, first, path)
            _add_to_totals(totals, model, first, path)
        updates = _get_num_updates(state)
        if updates > newest_updates:
            newest, newest_updates = _without_optimizer(state), updates
            # Only what the result needs from the newest parameters: dtypes, counters, and who shares with whom.
            newest["model"] = {name: _describe(tensor, name) for name, tensor in model.items()}
        del state, model

    newest["model"] = _finish(totals, newest["model"], count=len(files))
    newest["averaged_from"] = [path.name for path in files]
    return newest


def select_checkpoints(
    inputs: Sequence[PathLike],
    num_epoch_checkpoints: Optional[int] = None,
    num_update_checkpoints: Optional[int] = None,
    num_best_checkpoints: Optional[int] = None,
    checkpoint_upper_bound: Optional[int] = None,
) -> list[Path]:
    """Finds the files to average.

    Args:
        inputs: checkpoint files; or one folder when one of the three numbers is given.
        num_epoch_checkpoints: how many of the last epoch checkpoints of the folder.
        num_update_checkpoints: how many of the last checkpoints of the folder that were saved by number of updates.
        num_best_checkpoints: how many of the best checkpoints of the folder. Whether a high or a low value is good
            is read from the training options in the file; it is not needed when all of them are asked for.
        checkpoint_upper_bound: last epoch or update that may be used.

    Returns:
        The files, newest or best first when they come from a folder, otherwise as given.

    Raises:
        ValueError: if the arguments contradict each other or the folder holds too few checkpoints.
        FileNotFoundError: if an input does not exist.
    """
    given = {
        "--num-epoch-checkpoints": num_epoch_checkpoints,
        "--num-update-checkpoints": num_update_checkpoints,
        "--num-best-checkpoints": num_best_checkpoints,
    }
    chosen = [(flag, number) for flag, number in given.items() if number is not None]
    flags = ", ".join(given)
    if len(chosen) > 1:
        raise ValueError(f"only one of {flags} may be given, but got {' and '.join(flag for flag, _ in chosen)}.")
    if checkpoint_upper_bound is not None and (not chosen or chosen[0][0] == "--num-best-checkpoints"):
        raise ValueError(
            f"--checkpoint-upper-bound {checkpoint_upper_bound} needs --num-epoch-checkpoints or "
            "--num-update-checkpoints; add one of them or leave the bound out."
        )
    paths = [Path(path) for path in inputs]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"--inputs must name existing files or a folder, but {path} does not exist.")
    folders = [path for path in paths if path.is_dir()]
    if not chosen:
        if folders:
            raise ValueError(
                f"--inputs names the folder {folders[0]}, which needs one of {flags}; "
                "add one, or name the checkpoint files themselves."
            )
        return paths

    flag, number = chosen[0]
    if number < 1:
        raise ValueError(f"{flag} must be at least 1, but got {number}.")
    if len(paths) != 1 or not folders:
        raise ValueError(
            f"{flag} chooses among the checkpoints of one folder, but --inputs names "
            f"{_shorten([str(path) for path in paths])}; give one folder, or leave {flag} out."
        )
    folder = folders[0]
    if flag == "--num-best-checkpoints":
        found = _find_best(folder, number)
    else:
        pattern, key = (EPOCH_NAME, "epoch") if flag == "--num-epoch-checkpoints" else (UPDATE_NAME, "updates")
        found = _find_numbered(folder, pattern, key, checkpoint_upper_bound)
    if len(found) < number:
        kind = flag.removeprefix("--num-").removesuffix("-checkpoints")
        bound = "" if checkpoint_upper_bound is None else f" up to {checkpoint_upper_bound}"
        others = sorted(path.name for path in folder.glob("*.pt"))
        contents = f"its .pt files are {_shorten(others)}" if others else "it holds no .pt file at all"
        raise ValueError(
            f"{flag} {number} needs {number} {kind} checkpoints{bound}, but {folder} holds {len(found)}: {contents}; "
            "ask for fewer, or name another folder."
        )
    return found[:number]


class _Match(NamedTuple):
    value: float
    path: Path
    metric: str


def _find_numbered(folder: Path, pattern: re.Pattern[str], key: str, upper_bound: Optional[int]) -> list[Path]:
    numbered = []
    for path in folder.iterdir():
        match = pattern.fullmatch(path.name)
        if match and (upper_bound is None or int(match[key]) <= upper_bound):
            numbered.append((int(match[key]), path))
    return [path for _, path in sorted(numbered, reverse=True)]


def _find_best(folder: Path, number: int) -> list[Path]:
    matches = []
    for path in folder.iterdir():
        match = BEST_NAME.fullmatch(path.name)
        if match:
            matches.append(_Match(float(match["value"]), path, match["metric"]))
    metrics = sorted({match.metric for match in matches})
    if len(metrics) > 1:
        raise ValueError(
            f"--num-best-checkpoints needs checkpoints ranked by one metric, but {folder} holds some ranked by "
            f"{', '.join(metrics)}; name the files themselves in --inputs."
        )
    matches.sort()
    if number < len(matches) and _maximizes_metric(matches[0].path):
        matches.reverse()
    return [match.path for match in matches]


def _maximizes_metric(path: Path) -> bool:
    state = _load_listed(path)
    cfg, args = state.get("cfg"), state.get("args")
    try:
        if cfg is not None:
            return bool(cfg["checkpoint"]["maximize_best_checkpoint_metric"])
        if args is not None:
            return bool(args.maximize_best_checkpoint_metric)
    except (KeyError, AttributeError, TypeError):
        pass
    raise ValueError(
        f"{path} does not say whether a high or a low value of its metric is best "
        "(--maximize-best-checkpoint-metric); name the files themselves in --inputs."
    )


def _load_listed(path: Path) -> dict[str, Any]:
    """Loads a file that was there a moment ago.

    Raises:
        FileNotFoundError: if it is gone.
        ValueError: if it is damaged or no checkpoint.
    """
    try:
        return load_checkpoint(path)
    except (FileNotFoundError, ValueError) as error:
        if path.exists():
            raise
        raise FileNotFoundError(
            f"checkpoints must not vanish while they are averaged, but {path} is gone, perhaps removed by a training "
            "with --keep-last-epochs, --keep-interval-updates or --keep-best-checkpoints; start again."
        ) from error


def _check_inputs(files: Sequence[Path]) -> None:
    if not files:
        raise ValueError("at least one checkpoint is needed to average, but got none.")
    seen: dict[Path, Path] = {}
    for path in files:
        other = seen.setdefault(path.resolve(), path)
        if other is not path:
            raise ValueError(f"each checkpoint may be averaged once, but {path} and {other} are the same file.")


def _check_output(output: Path, inputs: Sequence[Path]) -> None:
    if output.is_dir():
        raise ValueError(f"--output must name a file, but {output} is a folder; add a file name to it.")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"--output {output} lies in a folder that does not exist; create it first.")
    if output.resolve() in {path.resolve() for path in inputs}:
        raise ValueError(f"--output {output} is one of the inputs and would be overwritten; choose another name.")


def _get_parameters(state: dict[str, Any], path: Path) -> dict[str, Tensor]:
    model = state.get("model")
    if not isinstance(model, dict) or not model:
        raise ValueError(
            f"a fairseq checkpoint holds its parameters under 'model', but {path} holds "
            f"{_shorten(sorted(map(str, state)))}; leave this file out."
        )
    strangers = [str(name) for name, value in model.items() if not isinstance(value, Tensor)]
    if strangers:
        raise ValueError(
            f"'model' of a checkpoint must hold tensors only, but in {path} these are none: {_shorten(strangers)}."
        )
    return model


def _get_num_updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def _without_optimizer(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in ("last_optimizer_state", "model")}


def _start_total(tensor: Tensor) -> Tensor:
    """Copies ``tensor`` into the precision that sums are kept in; tensors that are not averaged stay as they are."""
    if not tensor.is_floating_point():
        return tensor.clone()
    return tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32, copy=True)


def _check_same_parameters(totals: dict[str, Tensor], model: dict[str, Tensor], first: Path, path: Path) -> None:
    differences = []
    missing = [name for name in totals if name not in model]
    added = [name for name in model if name not in totals]
    if missing:
        differences.append(f"{path} lacks {_shorten(missing)}")
    if added:
        differences.append(f"{path} has in addition {_shorten(added)}")
    if differences:
        raise ValueError(
            f"checkpoints to be averaged must hold the same parameters, but compared with {first}, "
            f"{' and '.join(differences)}; average checkpoints of one training run."
        )
    reshaped = [
        f"{name} ({tuple(model[name].shape)} instead of {tuple(total.shape)})"
        for name, total in totals.items()
        if model[name].shape != total.shape
    ]
    if reshaped:
        raise ValueError(
            f"checkpoints to be averaged must have parameters of the same shapes, but compared with {first}, "
            f"{path} differs in {_shorten(reshaped)}; average checkpoints of one training run."
        )
    retyped = [
        f"{name} ({model[name].dtype} instead of {total.dtype})"
        for name, total in totals.items()
        if model[name].is_floating_point() != total.is_floating_point()
    ]
    if retyped:
        raise ValueError(
            f"a parameter must be a floating-point tensor in all checkpoints or in none, but compared with {first}, "
            f"{path} differs in {_shorten(retyped)}; average checkpoints of one training run."
        )


def _add_to_totals(totals: dict[str, Tensor], model: dict[str, Tensor], first: Path, path: Path) -> None:
    unequal = []
    for name, tensor in model.items():
        total = totals[name]
        if not tensor.is_floating_point():
            if not name.endswith(COUNTER_SUFFIX) and not torch.equal(tensor, total):
                unequal.append(name)
        elif tensor.dtype == torch.float64 and total.dtype != torch.float64:
            totals[name] = tensor + total  # a file in float64 after one in float32: keep the higher precision
        else:
            total.add_(tensor.to(total.dtype))
    if unequal:
        raise ValueError(
            f"integer tensors cannot be averaged and must be equal in all checkpoints, but {_shorten(unequal)} "
            f"in {path} differs from {first}; average checkpoints of one training run."
        )


class _Description(NamedTuple):
    """What is kept of a parameter of the newest file."""

    dtype: torch.dtype
    memory: tuple[Any, ...]  # equal for two parameters that are one and the same piece of memory
    counter: Optional[Tensor]


def _describe(tensor: Tensor, name: str) -> _Description:
    memory = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    is_counter = not tensor.is_floating_point() and name.endswith(COUNTER_SUFFIX)
    return _Description(tensor.dtype, memory, tensor.clone() if is_counter else None)


def _finish(totals: dict[str, Tensor], newest: dict[str, _Description], count: int) -> dict[str, Tensor]:
    averaged: dict[str, Tensor] = {}
    by_memory: dict[tuple[Any, ...], Tensor] = {}
    for name, description in newest.items():
        total = totals.pop(name)
        if total.is_floating_point():
            mean = total.div_(count).to(description.dtype)
        else:
            mean = total if description.counter is None else description.counter
        # Tied in the newest file and equal in the mean, hence tied in every file or indistinguishable from it.
        partner = by_memory.setdefault((description.dtype, *description.memory), mean)
        averaged[name] = partner if torch.equal(partner, mean) else mean
    return averaged


def _shorten(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
