"""Says which scores validation has, where ``--best-checkpoint-metric`` names one that it has not."""

from types import ModuleType
from typing import Any

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply(module: ModuleType) -> None:
    @replace(module, "get_valid_stats")
    def get_valid_stats(original: Any, cfg: Any, trainer: Any, stats: dict[str, Any], tracking_best: bool) -> Any:
        metric = cfg.checkpoint.best_checkpoint_metric
        if tracking_best and metric not in stats:
            raise ValueError(
                f"--best-checkpoint-metric must be a score of the validation, which has {', '.join(sorted(stats))}, "
                f"but got {metric}; name one of these, or add the flag that computes it."
            )
        return original(cfg, trainer, stats, tracking_best)


REPAIR = Repair(
    why="a --best-checkpoint-metric that is not computed ends training after the first epoch with nothing but KeyError",
    remedy=_apply,
    command="train",
)
