"""Reads flags that list layers: ``--encoder-layers-to-keep``, ``--encoder-attention-bias-layers``."""

from __future__ import annotations


def parse_layer_numbers(text: str | None, layers: int, flag: str) -> list[int]:
    """Reads numbers of layers, comma-separated and counted from 0; None stands for all. Returns them from the lowest.

    Raises:
        ValueError: if an entry is no layer number, or occurs twice; it names the flag.
    """
    if not text:
        return list(range(layers))
    entries = [entry.strip() for entry in text.split(",")]
    numbers = {int(entry) for entry in entries if entry.isdecimal() and int(entry) < layers}
    if len(numbers) != len(entries):
        raise ValueError(f"{flag} must list different layers from 0 to {layers - 1}, e.g. 0,1, but got {text!r}.")
    return sorted(numbers)
