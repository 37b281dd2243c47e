"""Trains with several processes where there is no GPU: started by torchrun, or by fairseq-train itself.

fairseq counts GPUs wherever it counts processes, so that without one it starts none, and hands tensors to NCCL. On a
machine with a GPU nothing here is applied.
"""

import functools
import gc
import inspect
import os
import random
import signal
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from torch.multiprocessing.spawn import ProcessException, spawn
from torch.nn.parallel import DistributedDataParallel

from muse_plugin.fairseq_repairs.repair import Repair, replace

TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")  # what each of its processes has in the environment
PORTS = range(20000, 60000)


def find_each_other(cfg: Any) -> None:
    """Fills in how the processes of a training without a GPU meet: all of torchrun's, or as many on this machine.

    Args:
        cfg: the group ``distributed_training`` of fairseq's settings. Under torchrun its environment decides about
            number and rank, whatever ``distributed_world_size`` says; otherwise that is the number of processes to
            start, and 1 leaves the settings alone.
    """
    if cfg.distributed_init_method is None:
        if all(name in os.environ for name in TORCHRUN) and int(os.environ["WORLD_SIZE"]) > 1:
            cfg.distributed_init_method = "env://"
            cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
            cfg.distributed_rank = int(os.environ["RANK"])
            cfg.distributed_no_spawn = True
        elif cfg.distributed_world_size > 1:
            if cfg.distributed_port <= 0:
                # Not from the seed of the training: two of them on one machine may have the same.
                cfg.distributed_port = random.SystemRandom().choice(PORTS)
            cfg.distributed_init_method = f"tcp://localhost:{cfg.distributed_port}"
        else:
            return
    if cfg.distributed_backend == "nccl":
        cfg.distributed_backend = "gloo"
    cfg.device_id = 0


def _train(number: int, main: Callable[..., None], cfg: Any, kwargs: dict[str, Any]) -> None:
    """The work of one process, after which it leaves the others.

    fairseq only exits. If a thread of gloo is then about to release a tensor, which takes Python's lock, and Python is
    gone, the process is aborted with all its work done. A group's threads end with the last reference to it.
    """
    import torch._dynamo  # PyTorch does for the model; if a group is there by then, the import keeps it for good

    distributed_utils.distributed_main(number, main, cfg, kwargs)
    vars(distributed_utils.get_global_group).pop("_global_group", None)
    gc.collect()  # the trainer, which is its own reference, keeps a group as well
    torch.distributed.destroy_process_group()


def _run_all(main: Callable[..., None], cfg: Any, kwargs: dict[str, Any]) -> None:
    """Starts the processes and waits for them; when one fails, the others are ended."""
    processes = spawn(
        fn=_train,
        args=(main, cfg, kwargs),
        nprocs=cfg.distributed_training.distributed_world_size,
        join=False,
    )
    codes: list[int | None] = []
    try:
        ended = False
        while not ended:
            for sentinel in wait(list(processes.sentinels)):
                processes.processes[processes.sentinels[sentinel]].join()
            # Those that are left fail as well, because the one that died is missing, and may be what PyTorch reports.
            codes = [process.exitcode for process in processes.processes]
            ended = processes.join()
    except ProcessException as error:
        for rank, code in enumerate(codes):
            if code is not None and code < 0:
                raise RuntimeError(_sentence(rank, len(codes), signal.Signals(-code))) from error
        raise


def _sentence(rank: int, size: int, by: signal.Signals) -> str:
    reason = "; the system does that where memory is short" if by == signal.SIGKILL else ""
    return (
        f"training process {rank} of {size} (counted from 0) was ended by {by.name}{reason}. All others were ended, "
        "too; start the same command again: training continues from the last checkpoint."
    )


def _replace_call_main() -> None:
    @replace(distributed_utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Callable[..., None], **kwargs: Any) -> None:
        training = cfg.distributed_training
        if cfg.common.tpu or training.pipeline_model_parallel:
            original(cfg, main, **kwargs)
            return
        if training.ddp_backend == "fully_sharded":
            raise ValueError(
                "--ddp-backend fully_sharded needs a GPU, but there is none here: fairscale, whose FSDP fairseq uses, "
                "keeps all weights in CUDA memory; leave the flag out."
            )
        find_each_other(training)
        if training.distributed_init_method is None:
            original(cfg, main, **kwargs)
            return
        if training.distributed_no_spawn:
            _train(training.device_id, main, cfg, kwargs)
            return
        kwargs["start_rank"] = training.distributed_rank
        training.distributed_rank = None  # each process adds its number to the first
        _run_all(main, cfg, kwargs)


def _apply() -> None:
    _replace_call_main()

    @replace(distributed_utils, "all_gather_list")
    def all_gather_list(_: Any, data: Any, group: Any = None, max_size: int = 16384) -> list[Any]:
        if group is None:
            group = distributed_utils.get_global_group()
        gathered: list[Any] = [None] * distributed_utils.get_world_size(group)
        torch.distributed.all_gather_object(gathered, data, group=group)
        return gathered

    knows_new_name = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters

    @functools.wraps(DistributedDataParallel, updated=())
    def without_devices(module: torch.nn.Module, device_ids: Any, output_device: Any, **named: Any) -> torch.nn.Module:
        if knows_new_name:  # PyTorch warns of the old one
            named["forward_sync_buffers"] = named.pop("broadcast_buffers")
        return DistributedDataParallel(module, **named)

    distributed_fairseq_model.DistributedDataParallel = without_devices


REPAIR = Repair(
    why="without a GPU, --distributed-world-size 2 ends with 'world size is 2 but have 0 available devices', and "
    "torchrun either with a division by zero or, if that flag is left out, in separate trainings over the same files",
    remedy=_apply,
    concerns=lambda: torch.distributed.is_available() and torch.cuda.device_count() == 0,
)
