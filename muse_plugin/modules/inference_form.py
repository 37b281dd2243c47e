"""A module that has a second form, for inference only: copies of its parameters that are quicker to compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class InferenceForm(nn.Module):
    """Base of modules that pack their parameters before generation.

    The packed form is exact up to the order of summation (8-bit weights excepted), is never part of a checkpoint,
    follows the parameters to another device or dtype, survives copying and pickling, and is dropped when parameters are
    loaded. Training mode does not use it.
    """

    _packed: Any = None

    def pack(self) -> Any:
        """Returns the packed form of the parameters as they are now."""
        raise NotImplementedError

    @property
    def packed(self) -> Any:
        """The packed form; None while training, or if the module was not prepared."""
        return None if self.training else self._packed

    def make_generation_fast_(self, **_: Any) -> None:
        """Makes the packed form; fairseq calls this on every module before generation."""
        with torch.no_grad():
            self._packed = self.pack()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> InferenceForm:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._packed is not None:
            with torch.no_grad():
                self._packed = self.pack()
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        self._packed = None
        super()._load_from_state_dict(*args)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": self._packed is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        was_packed = state.pop("_packed")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._packed = None
        if was_packed:
            with torch.no_grad():
                self._packed = self.pack()
