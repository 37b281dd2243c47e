"""Builds the outline of a model, names and shapes without memory, and compares it with the parameters of a file.

The settings in a checkpoint say how large the model is. They are believed only as far as the file holds the parameters:
what it does not hold would be made here, be it a matrix of terabytes or millions of layers.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode

# A model has this many parameters and modules for each parameter in its file, and this many more, at most.
_PARTS_PER_PARAMETER = 8
_FREE_PARTS = 1000
_LONGEST_SETTING = 1 << 16  # characters
# Numbers that a model may have without any in the file, such as a table of positions; 64 MiB.
_FREE_NUMBERS = 1 << 24

_SOURCE = "the file is damaged or was made to do harm: get it from a source you trust"


class _WithoutNumbers(TorchFunctionMode):
    """Passes over drawing numbers: fairseq's BART does so on the CPU, and torch imports half of itself first."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.cpu, Tensor.normal_, nn.init.normal_):
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def _outline_positions(rows: int, width: int, padding_idx: Any = None) -> Tensor:
    return torch.empty(rows, width)


def check_model_fits(
    file: object, parameters: dict[str, Tensor], settings: Mapping[str, Any], build: Callable[[], nn.Module]
) -> None:
    """Checks that a model is no larger than its parameters in a file; it takes neither memory nor long.

    Args:
        file: its name, for messages.
        parameters: by name, as stored.
        settings: of the model, as stored.
        build: builds the model, without its parameters.

    Raises:
        ValueError: if the model is larger.
        RuntimeError: if names or shapes differ; of torch, which names them.
    """
    for name, value in settings.items():  # what is planned for each layer before the first one is built
        number = len(value) if isinstance(value, str) else value if "layers" in name else 0
        most = _LONGEST_SETTING if isinstance(value, str) else len(parameters)
        if isinstance(number, (int, float)) and number > most:
            raise ValueError(
                f"{file} is refused: its setting {name} asks for more than the {len(parameters):,} parameters in it "
                f"are for; {_SOURCE}."
            )
    with outlines(file, _FREE_PARTS + _PARTS_PER_PARAMETER * len(parameters)):
        model = build()
        model.load_state_dict(dict(parameters))
    storages = [(tensor.untyped_storage(), tensor.element_size()) for tensor in parameters.values()]
    stored = sum({storage.data_ptr(): storage.nbytes() // size for storage, size in storages}.values())
    wanted = sum(tensor.numel() for tensor in _find_tensors(model))
    if wanted > 2 * stored + _FREE_NUMBERS:
        raise ValueError(
            f"{file} is refused: its settings ask for a model of {wanted:,} numbers, but it holds {stored:,}; "
            f"{_SOURCE}."
        )


def _find_tensors(model: nn.Module) -> list[Tensor]:
    """Parameters, buffers and other tensors of a model, each once."""
    found = {}
    for part in model.modules():
        for value in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(value, Tensor):
                found[id(value)] = value
    return list(found.values())


@contextlib.contextmanager
def outlines(file: object, most_parts: int) -> Iterator[None]:
    """Within it, modules are built without memory for their parameters.

    Args:
        file: its name, for messages.
        most_parts: how many modules and parameters may be built.

    Raises:
        ValueError: as soon as there are more.
    """
    left = most_parts

    def count(module: nn.Module, name: str, part: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(
                f"{file} is refused: its settings ask for a model of more than {most_parts:,} parts, for which it does "
                f"not hold enough parameters; {_SOURCE}."
            )
        if isinstance(part, nn.Parameter) and not part.is_meta:  # made by torch.Tensor(sizes), and not filled yet
            return nn.Parameter(torch.empty_like(part, device="meta"), part.requires_grad)
        return None

    handles = [
        torch_modules.register_module_parameter_registration_hook(count),
        torch_modules.register_module_module_registration_hook(count),
    ]
    try:
        with (
            torch.device("meta"),
            _WithoutNumbers(),
            mock.patch.object(SinusoidalPositionalEmbedding, "get_embedding", _outline_positions),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message=".*copying from a non-meta parameter")
            yield
    finally:
        for handle in handles:
            handle.remove()
