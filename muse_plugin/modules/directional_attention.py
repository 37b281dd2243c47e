"""DiSAN's attention to one side of the sentence, with a weight per pair of words and channel, and a gate behind it.

Source: Shen et al. 2018, "DiSAN: Directional Self-Attention Network for RNN/CNN-Free Language Understanding",
arXiv:1709.04696. ``models/directional_attention_network.py`` puts both directions side by side.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from muse_plugin.modules.attention_heads import in_full_precision
from muse_plugin.modules.linear import Linear
from muse_plugin.ops.dropout import dropout

DIRECTIONS = ("forward", "backward")


class DirectionalAttention(nn.Module):
    """F * h + (1 - F) * s, with h = ELU(x W + b) and s the attended sum of the h on one side of each word.

    The weights of key i for query j are, for each channel on its own, softmax over i of c * tanh((W_1 h_i + W_2 h_j +
    b_1) / c); the gate is F = sigmoid(W_f1 h + W_f2 s + b_f). A word does not see itself; one without a word on its
    side gets s = 0. The gate has three biases, which add up, as the published number of parameters counts them.

    All weights of a batch are B * T * T * C numbers, half of them needed. They are computed for blocks of queries, and
    where there are several blocks once more for the gradient, so that memory grows with B * T * C only.

    Args:
        input_size: width of what it reads.
        embed_dim: width C of h and of the result.
        direction: "forward" (earlier words) or "backward" (later words).
        dropout: probability in [0, 1) of dropping a channel of what W_1, W_2, W_f1 and W_f2 read, training only.

    Raises:
        ValueError: if the direction is unknown.
    """

    bound = 5.0  # c, which no logit exceeds; up to 40, or exp(-2 c), the smallest weight, is 0
    # Of a block of queries: 64 MiB in float32; for the gradient, a few numbers are kept for each of them.
    weights_at_once = 1 << 24

    def __init__(self, input_size: int, embed_dim: int, direction: str, dropout: float = 0.0) -> None:
        super().__init__()
        if direction not in DIRECTIONS:
            raise ValueError(f"a direction must be one of {', '.join(DIRECTIONS)}, but got {direction!r}.")
        self.output_size = embed_dim
        self.direction = direction
        self.dropout = dropout
        self.input_proj = Linear(input_size, embed_dim)
        self.key_proj = Linear(embed_dim, embed_dim, bias=False)
        self.query_proj = Linear(embed_dim, embed_dim)
        self.state_gate = Linear(embed_dim, embed_dim)
        self.context_gate = Linear(embed_dim, embed_dim)
        self.gate_bias = nn.Parameter(torch.zeros(embed_dim))
        for module in (self.input_proj, self.key_proj, self.query_proj, self.state_gate, self.context_gate):
            nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes.

        Args:
            x: shape (B, T, input_size).
            lengths: not needed, the mask says the same.
            key_padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            Shape (B, T, C), zeros at padding.
        """
        states = F.elu(self.input_proj(x))
        noisy = dropout(states, self.dropout, self.training)
        context = self._attend(states, self.key_proj(noisy), self.query_proj(noisy), key_padding_mask)
        gate = self.state_gate(noisy) + self.context_gate(dropout(context, self.dropout, self.training))
        gate = torch.sigmoid(gate + self.gate_bias)
        out = gate * states + (1 - gate) * context
        return out if key_padding_mask is None else out.masked_fill(key_padding_mask.unsqueeze(-1), 0.0)

    def _attend(self, states: Tensor, keys: Tensor, queries: Tensor, padding: Tensor | None) -> Tensor:
        """The attended sums, shape (B, T, C): for blocks of queries, from the keys on their side alone."""
        batch, length, width = states.shape
        size = min(length, max(1, self.weights_at_once // max(1, batch * length * width)))
        blocks = []
        for start in range(0, length, size):
            end = min(start + size, length)
            low, high = (0, end - 1) if self.direction == "forward" else (start + 1, length)
            if low >= high:  # the first or last word on its own
                blocks.append(0.0 * (keys + queries)[:, start:end])  # DistributedDataParallel waits for gradients
                continue
            at_key = torch.arange(low, high, device=states.device)
            at_query = torch.arange(start, end, device=states.device)[:, None]
            seen = (at_key < at_query if self.direction == "forward" else at_key > at_query)[None]
            if padding is not None:
                seen = seen & ~padding[:, None, low:high]
            inputs = states[:, low:high], keys[:, low:high], queries[:, start:end], seen
            if size < length and torch.is_grad_enabled():
                blocks.append(checkpoint(self._attend_block, *inputs, use_reentrant=False, preserve_rng_state=False))
            else:
                blocks.append(self._attend_block(*inputs))
        return torch.cat(blocks, dim=1)

    def _attend_block(self, states: Tensor, keys: Tensor, queries: Tensor, seen: Tensor) -> Tensor:
        """Attends from some queries to some keys.

        Args:
            states: h of the keys, shape (B, S, C).
            keys: W_1 h, the same.
            queries: W_2 h + b_1 of the queries, shape (B, Q, C).
            seen: bool, shape (B or 1, Q, S), true where a query may see a key.

        Returns:
            Shape (B, Q, C), zeros for queries that see no key.
        """
        dtype = states.dtype
        # The gradient of the quotient does not fit into float16 where all weights are small.
        states, keys, queries = (in_full_precision(x) for x in (states, keys, queries))
        logits = torch.tanh((keys[:, None] + queries[:, :, None]) / self.bound)  # (B, Q, S, C)
        # Logits are at most c: taking c away keeps sums small, and no other maximum is needed.
        weights = torch.exp(self.bound * (logits - 1)) * seen.unsqueeze(-1)
        total = weights.sum(dim=2)
        summed = (weights * states[:, None]).sum(dim=2)
        return (summed / total.masked_fill(~seen.any(dim=-1, keepdim=True), 1.0)).to(dtype)
