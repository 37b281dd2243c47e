"""``muse-plugin benchmark batches``: sentences gathered into batches, by fairseq's compiled extension and by numpy."""

import argparse
from collections.abc import Iterator
from functools import partial

import numpy as np
from fairseq.data import data_utils_fast as in_use

from muse_plugin.benchmark.measurement import Case
from muse_plugin.fairseq_stand_ins.data import data_utils_fast as stand_in

COMPILED = "fairseq, compiled"
OURS = "numpy"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every number of sentences, in order of their length, and without order."""
    modules = {OURS: stand_in} if in_use is stand_in else {COMPILED: in_use, OURS: stand_in}
    for sentences in args.sentences:
        generator = np.random.default_rng(args.seed)
        # As in parallel text: 20 tokens in the median, and in rough order, since the longer side of a pair counts.
        lengths = np.clip(generator.lognormal(3, 0.6, sentences), 1, args.max_tokens).astype(np.int64)
        for order in ("by length", "none"):
            sizes = np.sort(lengths) + generator.integers(0, 3, sentences) if order == "by length" else lengths
            given = (np.arange(sentences), np.minimum(sizes, args.max_tokens), args.max_tokens, -1, args.multiple)
            runs = {name: partial(module.batch_by_size_vec, *given) for name, module in modules.items()}
            yield Case({"sentences": sentences, "order": order}, runs.items(), int(sizes.sum()))
