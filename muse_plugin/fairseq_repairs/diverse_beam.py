"""Makes --diverse-beam-groups work on all sentences of a data set.

fairseq's generator tells the search which sentences are left by their numbers in the data set, and the search takes
them for their rows in the batch.
"""

from typing import Any, Optional

from fairseq.search import DiverseBeamSearch
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(DiverseBeamSearch, "step")
    def step(
        original: Any,
        self: DiverseBeamSearch,
        step: int,
        lprobs: Tensor,
        scores: Optional[Tensor],
        prev_output_tokens: Optional[Tensor] = None,
        original_batch_idxs: Optional[Tensor] = None,
    ) -> Any:
        if original_batch_idxs is not None:
            if step == 0:
                self.numbers_of_rows = original_batch_idxs
            is_row = original_batch_idxs.unsqueeze(1) == self.numbers_of_rows  # (sentences left, rows)
            original_batch_idxs = is_row.int().argmax(dim=1)
        return original(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)


REPAIR = Repair(
    why="--diverse-beam-groups ends with 'index 103 is out of bounds for dimension 0 with size 88', or, where the "
    "numbers of the sentences are small, counts the words of one sentence for another",
    remedy=_apply,
)
