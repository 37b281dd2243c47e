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
from muse_plugin.modules.kernel_weights import MeanKernel, watch_kernels

_VISIBLE = {DECODER: "until", FORWARD: "before", BACKWARD: "after"}


class Observer:
    """Looks on while a model reads.

    Args:
        sites: of ``find_sites``, where it looks.

    Attributes:
        target_padding: of the batch that is being read, bool, shape (B, T), true at padding; None without a decoder.
    """

    target_padding: Optional[Tensor] = None

    def __init__(self, sites: Sequence[Any]) -> None:
        self.sites = sites

    def watch(self) -> AbstractContextManager[Any]:
        """Looks on as long as the context lasts."""
        return watch_sites(self.sites, self.receive)

    def receive(self, number: int, found: AttentionWeights) -> None:
        """Takes the weights of the site of this number."""
        raise NotImplementedError


def find_real(mask: Optional[Tensor], weights: Tensor, axis: int) -> Tensor:
    """The opposite of a padding mask, shape (B, T) with the T of an axis of ``weights``; all true for None."""
    if mask is not None:
        return ~mask
    return torch.ones(weights.shape[0], weights.shape[axis], dtype=torch.bool, device=weights.device)


class AttentionObserver(Observer):
    """Adds up statistics of all attention of a model."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.statistics = [
            AttentionStatistics(site.heads, _VISIBLE.get(site.side, "all"), has_offsets=site.side != CROSS)
            for site in sites
        ]

    def receive(self, number: int, found: AttentionWeights) -> None:
        """See ``Observer.receive``."""
        weights, side = found.weights, self.sites[number].side
        keys = find_real(self.target_padding if side == DECODER else found.key_padding_mask, weights, 3)
        queries = find_real(self.target_padding, weights, 2) if side == CROSS else keys
        self.statistics[number].add(weights, queries, keys)


class MapObserver(Observer):
    """Keeps the weights of one sentence.

    Attributes:
        maps: weights by their place in ``sites``, each of shape (H, T, S), on the CPU; of the first text of a pair.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.maps: dict[int, Tensor] = {}

    def receive(self, number: int, found: AttentionWeights) -> None:
        """See ``Observer.receive``."""
        self.maps.setdefault(number, found.weights[0].cpu())


class KernelObserver(Observer):
    """Adds up the kernels of all convolutions of a model; its sites are those of ``find_kernel_sites``."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
        self.means = [MeanKernel(site.module) for site in sites]

    def watch(self) -> AbstractContextManager[Any]:
        """See ``Observer.watch``."""
        return watch_kernels([site.module for site in self.sites], self._add)

    def _add(self, number: int, kernels: Tensor, mask: Optional[Tensor]) -> None:
        mask = self.target_padding if self.sites[number].module.causal else mask
        self.means[number].add(kernels, find_real(mask, kernels, 2))


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
