"""Averages the parameters of several checkpoints of one training run into one: ``muse-plugin average``.

The flags are those that fairseq users know from its averaging script. Read ``safe_loading`` next: it decides what a
checkpoint file may contain and how a file is written.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
from torch import Tensor
from tqdm import tqdm

from muse_plugin.checkpoints.safe_loading import check_finite, load_checkpoint, save_atomically
from muse_plugin_command.flag_checks import check_apart, check_target

PathLike = Union[str, os.PathLike[str]]

# How fairseq names its checkpoints (save_dir/...), by what --num-*-checkpoints calls them. The number decides about the
# order; that of the best ones ends in a digit that breaks ties, after three decimals.
NAMES = {
    "epoch": re.compile(r"checkpoint(?P<number>\d+)\.pt"),
    "update": re.compile(r"checkpoint_\d+_(?P<number>\d+)\.pt"),
    "best": re.compile(r"checkpoint\.best_(?P<metric>.+)_(?P<number>-?\d+\.?\d*)\.pt"),
}

# A batch counter of BatchNorm says how long one checkpoint was trained: the newest one's value is kept.
COUNTER_SUFFIX = "num_batches_tracked"

NAMES_SHOWN = 5  # file and parameter names listed in an error before "and N more"
_SAME_RUN = "average checkpoints of one training run"


def run(args: argparse.Namespace) -> int:
    """Averages the checkpoints that the flags select and writes the result; every failure is an exception.

    Raises:
        ValueError: if the flags contradict each other, if the output is one of the inputs, or if the checkpoints do
            not fit together.
        FileNotFoundError: if an input, or the folder of the output, does not exist.
        IsADirectoryError: if the output is a folder.
    """
    numbers = {kind: getattr(args, f"num_{kind}_checkpoints") for kind in NAMES}
    kind = next((kind for kind in NAMES if numbers[kind] is not None), None)
    paths = select_checkpoints(args.inputs, kind, numbers.get(kind), args.checkpoint_upper_bound)
    output = Path(args.output)
    check_target(output, "--output")
    check_apart(output, *paths)
    state = average_checkpoints(paths)
    save_atomically(state, output)
    print(f"averaged {len(paths)} checkpoints ({_shorten([path.name for path in paths])}) into {output}")
    return 0


def average_checkpoints(paths: Sequence[PathLike]) -> dict[str, Any]:
    """Averages checkpoints, one file in memory at a time.

    Floating-point parameters are summed in float32, float64 ones and sums too large for float32 in float64, and the
    mean is cast back to the dtype stored in the newest file. Integer and boolean tensors have no meaningful mean: they
    must be equal in all files, except BatchNorm's batch counters, which are taken from the newest file. Parameters that
    share one storage in the newest file (tied embeddings) share one in the result.

    Everything else (configuration, task state, history) is the newest file's, the newest being the one with the most
    updates and, among equals, the first of ``paths``. Its optimizer state is left out: it belongs to that file's
    parameters, not to their mean. The key ``averaged_from``, which fairseq ignores, lists the averaged file names.

    Args:
        paths: checkpoint files, at least one.

    Returns:
        A checkpoint as fairseq writes it, with tensors on the CPU.

    Raises:
        ValueError: if ``paths`` is empty or names a file twice; if a file is damaged, holds no model or parameters that
            are not finite; if two files differ in parameter names, in shapes or in an integer tensor.
        FileNotFoundError: if a file does not exist.
    """
    files = [Path(path) for path in paths]
    _check_inputs(files)
    totals: dict[str, Tensor] = {}
    newest: dict[str, Any] = {}
    newest_updates = -1
    for path in tqdm(files, desc="averaging", unit="file", disable=None):
        state = _load_listed(path)
        model = _get_parameters(state, path)
        check_finite(path, model)
        _add_to_totals(totals, model, files[0], path)
        updates = int((state.get("optimizer_history") or [{}])[-1].get("num_updates", 0))
        if updates > newest_updates:
            newest_updates = updates
            newest = {key: value for key, value in state.items() if key not in ("last_optimizer_state", "model")}
            # Only what the result needs from the newest parameters: dtypes, counters, and who shares with whom.
            newest["model"] = _describe(model)
        del state, model

    newest["model"] = _finish(totals, newest["model"], count=len(files))
    newest["averaged_from"] = [path.name for path in files]
    return newest


def select_checkpoints(
    inputs: Sequence[PathLike], kind: Optional[str] = None, number: int = 0, upper_bound: Optional[int] = None
) -> list[Path]:
    """Finds the files to average.

    Args:
        inputs: checkpoint files; or one folder with ``kind``.
        kind: a key of ``NAMES``, to choose the last checkpoints of the folder, by epoch or by number of updates, or the
            best. Whether a high or a low value is good is read from the training options in the file; it is not needed
            when all of them are asked for. None for the inputs themselves.
        number: how many of that kind.
        upper_bound: last epoch or update that may be used.

    Returns:
        The files, newest or best first when they come from a folder, otherwise as given.

    Raises:
        ValueError: if the arguments contradict each other or the folder holds too few checkpoints.
        FileNotFoundError: if an input does not exist.
    """
    if upper_bound is not None and kind not in ("epoch", "update"):
        raise ValueError(
            f"--checkpoint-upper-bound {upper_bound} needs --num-epoch-checkpoints or --num-update-checkpoints; add "
            "one of them or leave the bound out."
        )
    paths = [Path(path) for path in inputs]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"--inputs must name existing files or a folder, but {path} does not exist.")
    folders = [path for path in paths if path.is_dir()]
    if kind is None and folders:
        raise ValueError(
            f"--inputs names the folder {folders[0]}, which needs one of "
            f"{', '.join(f'--num-{kind}-checkpoints' for kind in NAMES)}; add one, or name the checkpoint files "
            "themselves."
        )
    if kind is None:
        return paths
    flag = f"--num-{kind}-checkpoints"
    if number < 1:
        raise ValueError(f"{flag} must be at least 1, but got {number}.")
    if len(paths) != 1 or not folders:
        raise ValueError(
            f"{flag} chooses among the checkpoints of one folder, but --inputs names {_shorten(paths)}; give one "
            f"folder, or leave {flag} out."
        )
    found = _find(folders[0], kind, number, upper_bound)
    if len(found) < number:
        bound = "" if upper_bound is None else f" up to {upper_bound}"
        others = sorted(path.name for path in folders[0].glob("*.pt"))
        contents = f"its .pt files are {_shorten(others)}" if others else "it holds no .pt file at all"
        raise ValueError(
            f"{flag} {number} needs {number} {kind} checkpoints{bound}, but {folders[0]} holds {len(found)}: "
            f"{contents}; ask for fewer, or name another folder."
        )
    return found[:number]


def _find(folder: Path, kind: str, number: int, upper_bound: Optional[int]) -> list[Path]:
    """The checkpoints of a folder that are of one kind, those to prefer first."""
    matches = [(match, path) for path in folder.iterdir() if (match := NAMES[kind].fullmatch(path.name))]
    ranked = sorted(((float(match["number"]), path) for match, path in matches), reverse=True)
    if kind != "best":
        return [path for value, path in ranked if upper_bound is None or value <= upper_bound]
    metrics = sorted({match["metric"] for match, _ in matches})
    if len(metrics) > 1:
        raise ValueError(
            f"--num-best-checkpoints needs checkpoints ranked by one metric, but {folder} holds some ranked by "
            f"{', '.join(metrics)}; name the files themselves in --inputs."
        )
    if number >= len(ranked) or not _maximizes_metric(ranked[-1][1]):
        ranked.reverse()
    return [path for _, path in ranked]


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


def _get_parameters(state: dict[str, Any], path: Path) -> dict[str, Tensor]:
    model: dict[str, Tensor] = state["model"]  # a dict, as load_checkpoint makes sure
    if not model:
        raise ValueError(f"a fairseq checkpoint holds its parameters under 'model', but {path} has none there.")
    if strangers := [str(name) for name, value in model.items() if not isinstance(value, Tensor)]:
        raise ValueError(
            f"'model' of a checkpoint must hold tensors only, but in {path} these are none: {_shorten(strangers)}."
        )
    return model


def _add_to_totals(totals: dict[str, Tensor], model: dict[str, Tensor], first: Path, path: Path) -> None:
    """Adds a file's parameters, in the precision of sums; ``totals`` is empty for the first file."""
    if totals:
        _check_same_parameters(totals, model, first, path)
    for name, tensor in model.items():
        if not tensor.is_floating_point():
            totals.setdefault(name, tensor.clone())  # not averaged
            continue
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        if name not in totals:
            totals[name] = tensor.to(wide, copy=True)
        elif wide == torch.float64 and totals[name].dtype != wide:
            totals[name] = tensor + totals[name]  # a file in float64 after one in float32: keep the higher precision
        else:
            total = totals[name] + tensor.to(totals[name].dtype)
            # A sum may be too large for its mean's type.
            totals[name] = total if torch.isfinite(total).all() else totals[name].double() + tensor


def _check_same_parameters(totals: dict[str, Tensor], model: dict[str, Tensor], first: Path, path: Path) -> None:
    missing = [name for name in totals if name not in model]
    added = [name for name in model if name not in totals]
    if missing or added:
        differences = [f"{path} lacks {_shorten(missing)}"] if missing else []
        differences += [f"{path} has in addition {_shorten(added)}"] if added else []
        raise ValueError(
            f"checkpoints to be averaged must hold the same parameters, but compared with {first}, "
            f"{' and '.join(differences)}; {_SAME_RUN}."
        )
    reshaped, retyped, unequal = [], [], []
    for name, total in totals.items():
        tensor = model[name]
        if tensor.shape != total.shape:
            reshaped.append(f"{name} ({tuple(tensor.shape)} instead of {tuple(total.shape)})")
        elif tensor.is_floating_point() != total.is_floating_point():
            retyped.append(f"{name} ({tensor.dtype} instead of {total.dtype})")
        elif not tensor.is_floating_point() and not name.endswith(COUNTER_SUFFIX) and not torch.equal(tensor, total):
            unequal.append(name)
    for faults, rule in (
        (reshaped, "checkpoints to be averaged must have parameters of the same shapes"),
        (retyped, "a parameter must be a floating-point tensor in all checkpoints or in none"),
    ):
        if faults:
            raise ValueError(f"{rule}, but compared with {first}, {path} differs in {_shorten(faults)}; {_SAME_RUN}.")
    if unequal:
        raise ValueError(
            f"integer tensors cannot be averaged and must be equal in all checkpoints, but {_shorten(unequal)} "
            f"in {path} differs from {first}; {_SAME_RUN}."
        )


# Of each parameter: dtype; the first one that is the same piece of memory (tied, or itself); the value of a counter.
_Described = dict[str, tuple[torch.dtype, str, Optional[Tensor]]]


def _describe(model: dict[str, Tensor]) -> _Described:
    owners: dict[tuple[Any, ...], str] = {}
    described = {}
    for name, tensor in model.items():
        place = tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride()
        owner = owners.setdefault((tensor.dtype, *place), name)
        is_counter = not tensor.is_floating_point() and name.endswith(COUNTER_SUFFIX)
        described[name] = tensor.dtype, owner, tensor.clone() if is_counter else None
    return described


def _finish(totals: dict[str, Tensor], newest: _Described, count: int) -> dict[str, Tensor]:
    averaged: dict[str, Tensor] = {}
    for name, (dtype, partner, counter) in newest.items():
        mean = totals.pop(name) if counter is None else counter
        if mean.is_floating_point():
            mean = mean.div_(count).to(dtype)
        # Tied in the newest file and equal in the mean, hence tied in every file or indistinguishable from it.
        shared = averaged.get(partner, mean)
        averaged[name] = shared if torch.equal(shared, mean) else mean
    return averaged


def _shorten(names: Sequence[Any]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(str, names[:NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")
