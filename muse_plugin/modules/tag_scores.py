"""A score for every tag of every word, with or without a conditional random field on top."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from muse_plugin.modules.padding_mask import mask_padding


class TagScores(nn.Module):
    """Dropout and a linear layer; the field is that of the package pytorch-crf.

    Args:
        input_size: width of a word's state.
        tags: number of tags.
        crf: tags of neighbours depend on each other.
        dropout: probability in [0, 1) of dropping a channel, training only.

    Raises:
        ImportError: if a field is wanted and pytorch-crf is not installed.
    """

    def __init__(self, input_size: int, tags: int, crf: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(input_size, tags)
        self.crf: nn.Module | None = None
        if crf:
            try:
                from torchcrf import CRF
            except ImportError:
                raise ImportError(
                    "a conditional random field needs the package pytorch-crf, which is not installed; run "
                    "'pip install pytorch-crf', or leave it out."
                ) from None
            self.crf = CRF(tags, batch_first=True)

    def forward(self, states: Tensor) -> Tensor:
        """Scores, shape (B, T, tags), for states of shape (B, T, C)."""
        return self.linear(self.dropout(states))

    def losses(self, scores: Tensor, lengths: Tensor, tags: Tensor) -> Tensor:
        """Negative log-likelihood of tag sequences under the field.

        Args:
            scores: shape (B, T, tags).
            lengths: number of words, at least 1, shape (B,).
            tags: shape (B, T), anything at padding.

        Returns:
            Shape (B,), float32, in nats.
        """
        assert self.crf is not None, "without a field, tags are scored one by one"
        real = _real(scores, lengths)
        # In float32, also with weights in half precision: the package adds up the scores of a sentence in theirs.
        weights = {name: parameter.float() for name, parameter in self.crf.named_parameters()}
        inputs = scores.float(), tags.masked_fill(~real, 0), real
        likelihood: Tensor = functional_call(self.crf, weights, inputs, {"reduction": "none"})
        # A sentence of one word has no transition, but DistributedDataParallel waits for the gradient, also for zeros.
        return weights["transitions"].sum() * 0.0 - likelihood

    def decode(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """The best tags of each sentence: Viterbi with a field, the best of each word without; arguments as above."""
        if self.crf is not None:
            return self.crf.decode(scores.float(), _real(scores, lengths))  # type: ignore[operator]
        return [row[:length] for row, length in zip(scores.argmax(-1).tolist(), lengths.tolist(), strict=True)]


def _real(scores: Tensor, lengths: Tensor) -> Tensor:
    """Bool (B, T), true at words."""
    return ~mask_padding(lengths.to(scores.device), scores.shape[1])
