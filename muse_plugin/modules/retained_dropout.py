"""Dropout that stays on after training: Monte Carlo dropout, which fairseq can ask for in generation."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch import nn


class RetainsDropout(nn.Module):
    """Base of modules that drop something in training, and on request in evaluation, too.

    Source: Gal and Ghahramani 2016, "Dropout as a Bayesian Approximation", arXiv:1506.02142.

    Attributes:
        retains_dropout: whether dropout acts in evaluation.
    """

    retains_dropout = False

    @property
    def drops(self) -> bool:
        """Whether dropout acts now."""
        return self.training or self.retains_dropout

    def make_generation_fast_(self, **options: Any) -> None:
        """fairseq calls this on every module before generation; see ``choose_dropout``."""
        self.choose_dropout(**options)

    def choose_dropout(
        self, retain_dropout: bool = False, retain_dropout_modules: Container[str] | None = None, **_: Any
    ) -> None:
        """Decides whether dropout stays on.

        Args:
            retain_dropout: whether dropout stays on in some module.
            retain_dropout_modules: names of the classes where it does; None for all.
            **_: what other modules are told.
        """
        chosen = retain_dropout_modules is None or type(self).__name__ in retain_dropout_modules
        self.retains_dropout = bool(retain_dropout) and chosen
