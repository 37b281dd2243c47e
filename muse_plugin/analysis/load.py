"""Lets a model read sentences of its data while observers look on; one pass serves all of them."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Optional

import torch
from torch import Tensor, nn
from tqdm import tqdm

from muse_plugin.analysis.attention_sites import BACKWARD, CROSS, DECODER, FORWARD, Site, watch_sites
from muse_plugin.analysis.attention_statistics import AttentionStatistics
from muse_plugin.modules.attends import AttentionWeights
from muse_plugin.modules.kernel_weights import HeadConv, MeanKernel, watch_kernels

_VISIBLE = {DECODER: "until", FORWARD: "before", BACKWARD: "after"}


class Observer:
    """Looks on while a model reads.

    Attributes:
        target_padding: of the batch that is being read, bool, shape (B, T), true at padding; None without a decoder.
    """

    target_padding: Optional[Tensor] = None

    def watch(self) -> AbstractContextManager[Any]:
        """Looks on as long as the context lasts."""
        raise NotImplementedError

    def find_real(self, mask: Optional[Tensor], batch: int, length: int, device: torch.device) -> Tensor:
        """The opposite of a padding mask, shape (B, T); all true for None."""
        return torch.ones(batch, length, dtype=torch.bool, device=device) if mask is None else ~mask


class AttentionObserver(Observer):
    """Adds up statistics of all attention of a model.

    Args:
        sites: of ``find_sites``.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.statistics = [
            AttentionStatistics(site.heads, _VISIBLE.get(site.side, "all"), has_offsets=site.side != CROSS)
            for site in sites
        ]

    def watch(self) -> AbstractContextManager[Any]:
        """See ``Observer.watch``."""
        return watch_sites(self.sites, self._receive)

    def _receive(self, number: int, found: AttentionWeights) -> None:
        weights, side = found.weights, self.sites[number].side
        batch, _, length, positions = weights.shape
        keys = self.find_real(
            self.target_padding if side == DECODER else found.key_padding_mask, batch, positions, weights.device
        )
        queries = keys
        if side == CROSS:
            queries = self.find_real(self.target_padding, batch, length, weights.device)
        self.statistics[number].add(weights, queries, keys)


class KernelObserver(Observer):
    """Adds up the kernels of all convolutions of a model.

    Args:
        modules: of ``find_kernels``.
    """

    def __init__(self, modules: Sequence[HeadConv]) -> None:
        self.modules = modules
        self.means = [MeanKernel(module) for module in modules]

    def watch(self) -> AbstractContextManager[Any]:
        """See ``Observer.watch``."""
        return watch_kernels(self.modules, self._receive)

    def _receive(self, number: int, kernels: Tensor, mask: Optional[Tensor]) -> None:
        if self.modules[number].causal:
            mask = self.target_padding
        self.means[number].add(kernels, self.find_real(mask, kernels.shape[0], kernels.shape[2], kernels.device))


class MapObserver(Observer):
    """Keeps the weights of one sentence.

    Args:
        sites: of ``find_sites``.

    Attributes:
        maps: weights by their place in ``sites``, each of shape (H, T, S), on the CPU; of the first text of a pair.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.maps: dict[int, Tensor] = {}

    def watch(self) -> AbstractContextManager[Any]:
        """See ``Observer.watch``."""
        return watch_sites(self.sites, self._receive)

    def _receive(self, number: int, found: AttentionWeights) -> None:
        self.maps.setdefault(number, found.weights[0].cpu())


@torch.no_grad()
def read_corpus(
    model: nn.Module,
    batches: Iterable[dict[str, Any]],
    observers: Sequence[Observer],
    padding: int,
    title: Optional[str] = None,
) -> None:
    """Runs a model on batches, in evaluation mode; a translation model reads the right translation so far.

    Args:
        model: called with the entries of a batch; moved nowhere.
        batches: arguments of the model.
        observers: what looks on.
        padding: id that fills short sentences.
        title: of the progress bar; None for no bar.
    """
    model.eval()
    device = next(model.parameters()).device
    with ExitStack() as stack:
        for observer in observers:
            stack.enter_context(observer.watch())
        for batch in tqdm(batches, desc=title, unit="batch", disable=True if title is None else None):
            inputs = move_inputs(batch, device)
            previous = inputs.get("prev_output_tokens")
            for observer in observers:
                observer.target_padding = None if previous is None else previous.eq(padding)
            model(**inputs)


def move_inputs(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Arguments of a model, the tensors among them on ``device``."""
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
