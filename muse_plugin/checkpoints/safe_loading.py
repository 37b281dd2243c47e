"""Reads checkpoint files without letting them run code, and writes them so that no half-written file is ever seen.

A checkpoint is a pickle, and a pickle may name any Python function to call. Since version 2.6 torch reads with
``weights_only=True``: it calls only what is on a list, and fairseq's own checkpoints need a few more names than that
list holds. ``register`` adds exactly those, so that fairseq's commands can read them; ``ALLOWED`` says which.
``load_checkpoint`` and ``save_atomically`` are the two functions through which the plugin itself touches such files.

What this does not protect against: text in the stored settings that fairseq evaluates later (``fairseq_repairs`` does).
"""

import argparse
import collections
import functools
import os
import pickle
import re
import types
import typing
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import omegaconf
import torch
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.logging import meters

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.pretrained.torch_files import check_stored_whole, check_torch_file

# ---- guarded stand-ins for numpy -------------------------------------------------------------------------------------
# numpy's own functions also build arrays of arbitrary objects, from which more could be called. These build numbers.

_NUMBER_CODE = re.compile(r"[biufc]\d{1,2}")  # bool, int, unsigned, float, complex: 'f8'; not 'O8', 'U10', 'V4', 'M8'


class _NumberDtype:
    """Stands in for ``numpy.dtype`` while a file is read: the description of one plain number.

    Args:
        code: numpy's code of kind and bytes, such as ``f8``; the arguments after it are about fields, of which a plain
            number has none.

    Raises:
        pickle.UnpicklingError: if the code stands for anything but a plain number.
    """

    def __init__(self, code: str, align: Any = False, copy: Any = True) -> None:
        if not isinstance(code, str) or not _NUMBER_CODE.fullmatch(code):
            raise pickle.UnpicklingError(f"numpy data of type {code!r} is refused: only plain numbers are read")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        """Applies the byte order; ``state`` is ``(3, byte order, None, None, None, -1, -1, 0)`` for a plain number."""
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a numpy type with fields is refused: only plain numbers are read")
        self.dtype = self.dtype.newbyteorder(state[1])

    def __reduce__(self) -> Any:
        return self.dtype.__reduce__()  # written again as numpy's own


class _NumberArray(np.ndarray):
    """Stands in for ``numpy.ndarray`` while a file is read: an array that is filled with plain numbers only.

    It is an ndarray in every other respect, and is pickled as one.
    """

    def __new__(cls) -> "_NumberArray":
        return super().__new__(cls, (0,), np.uint8)

    def __setstate__(self, state: Any) -> None:
        """Fills the array from ``(version, shape, dtype, is_fortran, bytes)``."""
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _NumberDtype):
            raise pickle.UnpicklingError("a numpy array of anything but plain numbers is refused")
        version, shape, number, is_fortran, data = state
        super().__setstate__((version, shape, number.dtype, is_fortran, data))

    def __reduce_ex__(self, protocol: typing.SupportsIndex) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _new_number_array(kind: Any, shape: Any, code: Any) -> _NumberArray:
    """Stands in for ``numpy._core.multiarray._reconstruct``: an empty array, filled by the instruction after it."""
    if not (isinstance(kind, type) and issubclass(kind, _NumberArray)):
        raise pickle.UnpicklingError("a numpy array of a special class is refused: only plain arrays are read")
    return kind()


def _number(number: Any, data: Any) -> Any:
    """Stands in for ``numpy._core.multiarray.scalar``: one number from its bytes."""
    if not isinstance(number, _NumberDtype) or not isinstance(data, bytes) or len(data) != number.dtype.itemsize:
        raise pickle.UnpicklingError("a numpy scalar that is no plain number is refused")
    return np.frombuffer(data, dtype=number.dtype)[0]


# ---- the list --------------------------------------------------------------------------------------------------------

# Name in the file -> what is called for it. Each occurs in files that fairseq writes; a test takes each away in turn.
ALLOWED: dict[str, Any] = {
    # Every checkpoint of fairseq-train: the settings, either all (before 1.0) or those of the model (since).
    "argparse.Namespace": argparse.Namespace,
    # Numbers of the meters, e.g. with --eval-bleu, and best scores; numpy 1 calls its core "numpy.core".
    "numpy.dtype": _NumberDtype,
    "numpy.ndarray": _NumberArray,
    "numpy._core.multiarray._reconstruct": _new_number_array,
    "numpy._core.multiarray.scalar": _number,
    "numpy.core.multiarray._reconstruct": _new_number_array,
    "numpy.core.multiarray.scalar": _number,
    # Settings kept as omegaconf nodes: files of early fairseq-hydra-train, and what process 0 sends to the others when
    # a run with several processes resumes.
    "omegaconf.dictconfig.DictConfig": omegaconf.DictConfig,
    "omegaconf.listconfig.ListConfig": omegaconf.ListConfig,
    "omegaconf.nodes.AnyNode": omegaconf.AnyNode,
    "omegaconf.base.ContainerMetadata": omegaconf.base.ContainerMetadata,
    "omegaconf.base.Metadata": omegaconf.base.Metadata,
    "typing.Any": typing.Any,
    "collections.defaultdict": collections.defaultdict,
    "builtins.dict": dict,
    "builtins.list": list,
    "builtins.int": int,
    # Stands for a tensor in what process 0 sends.
    "fairseq.distributed.utils._TensorPlaceholder": _TensorPlaceholder,
    # Files of fairseq 0.6 to 0.8, under the module name of that time.
    "fairseq.meters.AverageMeter": meters.AverageMeter,
    "fairseq.meters.StopwatchMeter": meters.StopwatchMeter,
    "fairseq.meters.TimeMeter": meters.TimeMeter,
}


@functools.cache  # the same twin each time, so that registering again adds nothing
def _under_name(target: Any, name: str) -> Any:
    """A twin of ``target`` whose own name is ``name``, for torch 2.4 and 2.5, which ask the object for its name."""
    module, _, short = name.rpartition(".")
    if target.__module__ == module and target.__name__ == short:
        return target
    if isinstance(target, type):
        return type(short, (target,), {"__module__": module, "__qualname__": short})
    twin = types.FunctionType(target.__code__, target.__globals__, short)
    twin.__module__, twin.__qualname__ = module, short
    return twin


def register() -> None:
    """Puts ``ALLOWED`` on torch's list, for this process. Calling it again changes nothing.

    torch 2.4 and 2.5 have the list, but restrict only who asks for it, which ``load_checkpoint`` does and fairseq does
    not.
    """
    if _takes_names():
        torch.serialization.add_safe_globals([(target, name) for name, target in ALLOWED.items()])
    else:
        torch.serialization.add_safe_globals([_under_name(target, name) for name, target in ALLOWED.items()])


def _takes_names() -> bool:
    """Whether torch's list takes (callable, name) pairs, as it does since 2.6."""
    return bool(torch.__version__ >= "2.6")  # compared as versions, not as text


# ---- reading ---------------------------------------------------------------------------------------------------------

_DAMAGED = "{path} is cut short or damaged; copy or download it again, or use an earlier checkpoint."
_FOREIGN = "{path} is not a checkpoint: it was not written by torch.save with parameters in it."
_TOO_LARGE = (
    "{path} asks for more memory than there is; if it should be smaller, it is damaged or was made to do harm: get it "
    "from a source you trust."
)
_OTHER_SOURCE = "use another one, or get it from a source you trust"

# Parts of torch's own messages.
_REFUSED_GLOBAL = re.compile(r"GLOBAL (\S+) (?:was not an allowed global|whose module \S+ is blocked)")
_REFUSED_CALL = re.compile(r"(Trying to call reduce|Can only (?:build|create|append|extend|SET)|persistent)[^\n]*")
_REFUSED_NUMPY = re.compile(r"[^\n]*(?:is|are) refused[^\n]*")


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a checkpoint into main memory; nothing in the file is run.

    Args:
        path: a file written by ``torch.save``, of fairseq, this plugin or a fork.

    Returns:
        The stored dict; ``["model"]`` maps parameter names to CPU tensors. The rest (``args``, ``cfg``,
        ``extra_state`` ...) is as stored: fairseq's upgrades of old files are not applied.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is a folder, is cut short or damaged, is no checkpoint, asks for a Python object that
            checkpoints do not need, or would take more memory than the file is large.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}; check the path.")
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a checkpoint; name a file in it, such as {path / 'checkpoint_best.pt'}."
        )
    register()
    with path.open("rb") as file:  # raises what the system says, such as PermissionError
        start = file.read(2)
    # An archive, or before torch 1.6 a pickle of protocol 2.
    if start not in (b"", b"PK", b"\x80\x02") or (start == b"PK" and _is_other_archive(path)):
        raise ValueError(_FOREIGN.format(path=path))
    check_torch_file(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign file may raise anything
        raise ValueError(_reason(path, start, error)) from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        found = f"a dict with {sorted(map(str, state))[:5]}" if isinstance(state, dict) else f"a {type(state).__name__}"
        raise ValueError(
            f"{path} is not a checkpoint: a checkpoint is a dict whose 'model' holds the parameters, but this file "
            f"holds {found}."
        )
    check_stored_whole(path, state)
    if faults := _find_odd_parts(state):
        raise ValueError(f"{path} is not a checkpoint as fairseq writes it: {'; '.join(faults)}; {_OTHER_SOURCE}.")
    return state


def _find_odd_parts(state: dict[str, Any]) -> list[str]:
    """Names the parts of a checkpoint that are of a type which fairseq never stores."""
    history = state.get("optimizer_history") or [{}]
    is_list = isinstance(history, list) and all(isinstance(entry, dict) for entry in history)
    rules = {
        "the names of parameters must be text": all(isinstance(name, str) for name in state["model"]),
        "'optimizer_history' must be a list of dicts": is_list,
        "'num_updates' must be a whole number": is_list and type(history[-1].get("num_updates", 0)) is int,
        "'cfg' must be a dict": isinstance(state.get("cfg"), (dict, omegaconf.DictConfig, type(None))),
        "'args' must be a Namespace": isinstance(state.get("args"), (argparse.Namespace, type(None))),
    }
    return [rule for rule, holds in rules.items() if not holds]


def check_finite(path: Path, parameters: dict[str, torch.Tensor]) -> None:
    """Checks that the parameters of a checkpoint are numbers.

    Raises:
        ValueError: if one holds NaN or infinity; it is named.
    """
    for name, tensor in parameters.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(
                f"parameters must be finite, but {name} in {path} holds NaN or infinity: its training diverged, or the "
                "file is damaged; use an earlier checkpoint."
            )


def _reason(path: Path, start: bytes, error: Exception) -> str:
    """Says in one or two sentences why ``torch.load`` failed on ``path``, whose first two bytes are ``start``."""
    text = str(error)
    if isinstance(error, pickle.UnpicklingError):
        if name := _REFUSED_GLOBAL.search(text):
            return (
                f"{path} is refused: reading it would use the Python object {name.group(1)}, which could run code and "
                "which no fairseq checkpoint needs; nothing was run. Get the file from a source you trust, without it."
            )
        if what := _REFUSED_NUMPY.search(text) or _REFUSED_CALL.search(text):
            return f"{path} is refused: {what.group(0).strip()}; nothing was run."
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return _TOO_LARGE.format(path=path)
    return (_FOREIGN if "magic number" in text else _DAMAGED).format(path=path)


def _is_other_archive(path: Path) -> bool:
    """Whether a whole zip archive is not of torch.save but, for example, a document or a TorchScript model."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.rpartition("/")[2] for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError):
        return False
    return "data.pkl" not in names or "constants.pkl" in names


# ---- writing ---------------------------------------------------------------------------------------------------------


def save_atomically(obj: Any, path: str | os.PathLike[str]) -> None:
    """Writes ``obj`` with ``torch.save`` so that ``path`` holds either its old content or all of the new.

    See ``open_atomically`` for how, and for what happens when it fails.

    Raises:
        FileNotFoundError: if the folder of ``path`` does not exist.
        OSError: if writing fails.
    """
    with open_atomically(path) as file:
        try:
            torch.save(obj, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # the write failed; then the archive could not be closed
                raise error.__context__ from None
            raise
