"""Started by tests: trains models one after the other, each in one process and in two; writes what came out.

The argument is a folder with ``commands.json``: for each name the words after ``fairseq-train``. One process trains
with twice the ``--update-freq``, two with fairseq's default way of exchanging gradients. Each writes
``<name>.<process>.pt``: losses of all updates, norms of gradients, the loss of each validation, and the weights at the
end. Last comes ``sharded``: MUSE under PyTorch's FSDP instead of fairseq's trainer. Modules are imported once; it has
no threads, so that it can fork.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import fairseq_cli.train
import torch
import torch._dynamo  # which the first optimizer would import: seconds
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from support import muse_models
from torch.distributed.fsdp import fully_shard

import muse_plugin
from muse_plugin import fairseq_repairs

assert muse_plugin.__version__
fairseq_repairs.apply()

PROCESSES = {"single": None, "rank0": 0, "rank1": 1}


class Record:
    """What the trainer hands to the log of each step, before it is rounded."""

    def __init__(self):
        self.clear()
        log_step, validate = Trainer._reduce_and_log_stats, fairseq_cli.train.validate

        def logged(trainer, logging_outputs, sample_size, grad_norm=None):
            loss = sum(float(output["loss"]) for output in logging_outputs)
            self.trainer = trainer
            if grad_norm is None:
                self.valid[-1][0] += loss
                self.valid[-1][1] += float(sample_size)
            else:
                self.losses.append(loss / float(sample_size))
                self.norms.append(float(grad_norm))
            return log_step(trainer, logging_outputs, sample_size, grad_norm)

        def validated(*arguments):
            self.valid.append([0.0, 0.0])
            return validate(*arguments)

        Trainer._reduce_and_log_stats = logged
        fairseq_cli.train.validate = validated

    def clear(self):
        self.losses, self.norms, self.valid, self.trainer = [], [], [], None

    def results(self):
        return {
            "losses": torch.tensor(self.losses, dtype=torch.double),
            "norms": torch.tensor(self.norms, dtype=torch.double),
            "valid": torch.tensor([loss / size for loss, size in self.valid], dtype=torch.double),
            "model": self.trainer.get_model().state_dict(),
        }


def train_sharded(rank, updates=3):
    """Trains MUSE with PyTorch's own FSDP: each process has half of every weight and a batch of its own."""
    model = muse_models.build(weight_dropout=0.0).train()
    batches = [muse_models.make_pair(lengths, (4, 6, 2))[2:] for lengths in ((7, 5, 3), (2, 8, 4))]
    if rank is not None:
        batches = [batches[rank]]
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(updates):
        optimizer.zero_grad()
        loss = sum(loss_of(model, *batch) for batch in batches) / len(batches)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    if rank is not None:
        weights = {name: weight.full_tensor() for name, weight in weights.items()}
    return {"losses": torch.tensor(losses), "model": weights}


def loss_of(model, source, targets):
    return muse_models.logits_of(model, source, targets).log_softmax(dim=-1)[..., 5].mean().neg()


def train_all(folder, commands, process, rank):
    """One process: never returns."""
    log = os.open(folder / f"{process}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    code = 1
    try:
        record = Record()
        for number, (name, settings) in enumerate(commands.items()):
            settings.checkpoint.save_dir = str(folder / f"checkpoints_{process}")  # where two of them write a test file
            if rank is None:
                settings.optimization.update_freq = [2 * n for n in settings.optimization.update_freq]
            else:
                pair = settings.distributed_training
                pair.distributed_world_size, pair.distributed_rank, pair.distributed_no_spawn = 2, rank, True
                pair.distributed_backend, pair.distributed_init_method = "gloo", f"file://{folder}/rendezvous"
                assert (pair.ddp_backend, pair.find_unused_parameters) == ("pytorch_ddp", False)
                if number == 0:
                    distributed_utils.distributed_init(settings)
            record.clear()
            fairseq_cli.train.main(settings)
            torch.save(record.results(), folder / f"{name}.{process}.pt")
        torch.save(train_sharded(rank), folder / f"sharded.{process}.pt")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def read(words):
    """The settings that a command line stands for."""
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), input_args=words))


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    commands = {name: read(words) for name, words in json.loads((folder / "commands.json").read_text()).items()}
    children = []
    for process, rank in PROCESSES.items():
        child = os.fork()
        if child == 0:
            train_all(folder, commands, process, rank)
        children.append(child)
    sys.exit(1 if sum(os.waitpid(child, 0)[1] for child in children) else 0)


if __name__ == "__main__":
    main()
