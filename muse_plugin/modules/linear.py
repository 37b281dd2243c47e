"""A linear layer whose training takes the quicker products of ``ops/linear.py``."""

import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.ops.linear import linear


class Linear(nn.Linear):
    """``nn.Linear``: the same parameters, initialisation and numbers, up to rounding.

    Outside training it is PyTorch's, since a new shape, of which inference has many, costs oneDNN a millisecond.
    """

    def forward(self, input: Tensor) -> Tensor:
        """x W^T + b."""
        apply = linear if self.training else F.linear
        return apply(input, self.weight, self.bias)
