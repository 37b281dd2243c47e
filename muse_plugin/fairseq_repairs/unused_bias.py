"""Sets a parameter of fairseq's dynamic convolution that nothing uses, so that checkpoints hold no chance values."""

from typing import Any

from fairseq.modules.dynamic_convolution import DynamicConv_scripatable
from torch import nn

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(DynamicConv_scripatable, "reset_parameters")
    def reset_parameters(original: Any, self: Any) -> None:
        original(self)
        if not self.has_conv_bias:
            nn.init.zeros_(self.conv_bias)


REPAIR = Repair(
    why="without a GPU, a dynamic convolution without bias has one all the same, neither set nor trained: a checkpoint "
    "holds what was in memory, even NaN, and equal trainings write different files",
    remedy=_apply,
)
