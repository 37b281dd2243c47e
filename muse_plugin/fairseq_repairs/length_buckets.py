"""Makes --num-batch-buckets work with numpy 2, which dropped an argument and a name that fairseq uses for it."""

from types import ModuleType, SimpleNamespace

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(data_utils, "get_buckets")
    def get_buckets(_, sizes, num_buckets):
        # The upper end of bucket k of n is the size at rank k/n of all sizes, rounded down to a size that occurs.
        ordered = np.sort(np.asarray(sizes))
        ranks = np.arange(1, num_buckets + 1) * (len(ordered) - 1) // num_buckets
        return np.unique(ordered[ranks])

    if not hasattr(np, "compat"):
        for module in (language_pair_dataset, token_block_dataset):  # they say np.compat.long, and mean int
            module.np = _numpy_with_old_names()


def _numpy_with_old_names() -> ModuleType:
    """What the module holds as ``np``: all of numpy, and the old name. numpy itself stays as it is."""
    numpy = ModuleType("numpy")
    numpy.__getattr__ = lambda name: getattr(np, name)
    numpy.compat = SimpleNamespace(long=int)
    return numpy


REPAIR = Repair(
    why='--num-batch-buckets ends with "percentile() got an unexpected keyword argument \'interpolation\'" or "module '
    "'numpy' has no attribute 'compat'\"",
    remedy=_apply,
)
