"""Makes --num-shards and --shard-id divide the test set in fairseq-generate, which ignores them."""

from types import ModuleType
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from omegaconf import open_dict

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply(module: ModuleType) -> None:
    @replace(module, "_main")
    def _main(original: Any, cfg: FairseqConfig, output_file: Any) -> Any:
        count, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
        if not 0 <= shard < count:
            raise ValueError(
                f"--shard-id must be from 0 to --num-shards - 1, but got {shard} with --num-shards {count}; the first "
                "shard is 0."
            )
        if count > 1:
            with open_dict(cfg):  # by which fairseq-generate divides the sentences, and nothing else
                cfg.distributed_training.distributed_world_size = count
                cfg.distributed_training.distributed_rank = shard
        return original(cfg, output_file)


REPAIR = Repair(
    why="fairseq-generate translates the whole test set whatever --num-shards and --shard-id say",
    remedy=_apply,
    command="generate",
)
