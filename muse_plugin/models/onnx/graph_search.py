"""fairseq's beam search by the program of exported folders, where a model is graphs of onnxruntime.

fairseq's own bookkeeping looks at every word of the dictionary for every hypothesis: with quick graphs it is up to half
of the time. ``runner/run.py`` looks at the best few, which the graph names, and finds the same translations. Whatever
is not an ordinary beam search, such as given beginnings, sampling or blocked n-grams, stays with fairseq.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from muse_plugin.models.onnx.sessions import OnnxDecoder, check_place
from muse_plugin.runner.run import EOS, PAD, beam_search

_FOUND_BY_FAIRSEQ = SequenceGenerator._generate


def search_by_graphs_() -> None:
    """Makes fairseq's generators in this process search that way; what they are given and give stays the same."""
    SequenceGenerator._generate = _generate


def _generate(
    generator: Any, sample: dict[str, Any], prefix_tokens: Optional[Tensor] = None, **others: Any
) -> list[list[dict[str, Tensor]]]:
    tokens = sample["net_input"].get("src_tokens")
    longest = -1 if tokens is None else _find_longest(generator, tokens.shape[1])
    is_ordinary = prefix_tokens is None and all(value is None for value in others.values()) and _is_ordinary(generator)
    if not is_ordinary or longest < generator.min_len:  # fairseq refuses the latter
        return _FOUND_BY_FAIRSEQ(generator, sample, prefix_tokens, **others)
    check_place(tokens)
    model = generator.model.models[0]
    hypotheses = beam_search(
        model.encoder.session.graph,
        model.decoder.session.graph,
        model.decoder.shapes,
        np.ascontiguousarray(tokens.numpy()),
        np.full(len(tokens), longest),
        min(2 * generator.beam_size + 2, generator.vocab_size),
        generator.beam_size,
        generator.len_penalty,
        generator.min_len,
    )
    return [[_describe(*own) for own in every] for every in hypotheses]


def _find_longest(generator: Any, source_length: int) -> int:
    """Most tokens of a translation, as fairseq counts them: by the longest source of the batch."""
    return min(int(generator.max_len_a * source_length + generator.max_len_b), generator.max_len - 1)


def _is_ordinary(generator: Any) -> bool:
    models = generator.model.models
    return (
        type(generator) is SequenceGenerator
        and type(generator.search) is BeamSearch
        and len(models) == 1
        and isinstance(models[0].decoder, OnnxDecoder)
        and (generator.pad, generator.eos) == (PAD, EOS)
        and (generator.temperature, generator.unk_penalty) == (1.0, 0.0)
        and generator.normalize_scores
        and not generator.match_source_len
        and generator.lm_model is generator.repeat_ngram_blocker is generator.token_indices_to_suppress is None
    )


def _describe(score: float, ids: list[int], scores: np.ndarray) -> dict[str, Tensor]:
    return {
        "tokens": torch.tensor([*ids, EOS]),
        "score": torch.tensor(score),
        "attention": torch.empty(0),
        "alignment": torch.empty(0),
        "positional_scores": torch.from_numpy(scores),
    }
