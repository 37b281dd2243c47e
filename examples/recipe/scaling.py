"""How long training takes on 1, 8, 64 GPUs: ``python scaling.py``, a calculation, with every assumption a flag.

An update is the compute of its micro-batches, then what of the exchange of gradients is not hidden behind the last
backward pass, then the optimiser. All processes wait for each other, so the slowest link counts:

    micro-batches  m = tokens per update / (GPUs * tokens at once), as examples/recipe/recipe.sh plans them
    compute        c = tokens per update / (GPUs * tokens per second)
    exchange       e = 2 (n - 1) / n * bytes of all gradients / bandwidth     (ring all-reduce; n GPUs or n nodes)
    hidden         h = 2/3 * c / m                 (gradients are sent during the backward pass of the last micro-batch)
    update           = c + max(0, e - h) + optimiser

The defaults are MUSE's run on WMT14 En-Fr. Its log has 773,000 seconds for 80,000 updates of 1,280 x 76 x 8 tokens on
eight GPUs, which is 10,068 tokens per second and GPU with everything that waiting cost them: the one number here that
was measured, though by others and on GPUs of 2019. Put your own in after the first hundred updates (fairseq logs wps).
Not in it: validation, checkpoints, a process that waits because another one's batch takes longer (in the log's number
it is).
"""

import argparse
import math
from typing import NamedTuple, Optional

import markdown_table

SECONDS_A_DAY = 86_400
LOG_TOKENS_PER_SECOND = 80_000 * 1280 * 76 * 8 / 773_000 / 8


class Update(NamedTuple):
    """Seconds of one update.

    Attributes:
        micro_batches: batches of one GPU whose gradients are summed.
        compute: forward and backward passes.
        exchange: sum of the gradients over all GPUs, if nothing else runs.
        waiting: the part of it that is not hidden.
        optimiser: the step.
    """

    micro_batches: int
    compute: float
    exchange: float
    waiting: float
    optimiser: float

    @property
    def total(self) -> float:
        """Seconds from one update to the next."""
        return self.compute + self.waiting + self.optimiser


def exchange_seconds(gpus: int, gpus_per_node: int, size: float, inside: float, between: float) -> float:
    """Seconds of a ring all-reduce.

    Args:
        gpus: how many there are.
        gpus_per_node: how many of them share a node.
        size: bytes of all gradients.
        inside: bytes per second between GPUs of a node.
        between: bytes per second between nodes.
    """
    nodes = math.ceil(gpus / gpus_per_node)
    ring = 2 * (gpus - 1) / gpus * size
    return ring / inside if nodes == 1 else ring / min(inside, between)


def plan_update(args: argparse.Namespace, gpus: int) -> Update:
    """The parts of one update on ``gpus`` GPUs."""
    micro_batches = max(1, math.ceil(args.tokens_per_update / (gpus * args.max_tokens)))
    compute = args.tokens_per_update / (gpus * args.tokens_per_second)
    size = args.parameters * args.gradient_bytes
    exchange = (
        exchange_seconds(gpus, args.gpus_per_node, size, args.inside * 1e9, args.between * 1e9) if gpus > 1 else 0
    )
    hidden = 2 / 3 * compute / micro_batches
    # Adam reads and writes gradient, weight and two moments, all but the gradient in 32 bits.
    optimiser = args.parameters * (args.gradient_bytes + 24) / (args.memory * 1e9)
    return Update(micro_batches, compute, exchange, max(0.0, exchange - hidden), optimiser)


def parse_arguments(words: Optional[list[str]] = None) -> argparse.Namespace:
    """Reads the flags.

    Raises:
        SystemExit: if one is not a positive number.
    """
    parser = argparse.ArgumentParser(description="Computes days of training on several GPUs; see the head of the file.")
    add = parser.add_argument
    add("--gpus", type=int, nargs="+", default=[1, 8, 64], help="(default: 1 8 64)")
    add("--updates", type=int, default=80_000, help="of the whole training (default: 80000)")
    add("--tokens-per-update", type=int, default=655_360, help="(default: 655360)")
    add("--max-tokens", type=int, default=5_120, help="of one micro-batch (default: 5120)")
    add("--tokens-per-second", type=float, default=LOG_TOKENS_PER_SECOND, help="of one GPU (default: the authors' log)")
    add("--parameters", type=float, default=252.1e6, help="(default: 252100000)")
    add("--gradient-bytes", type=float, default=2, help="of one parameter: 2 with --fp16, 4 without (default: 2)")
    add("--gpus-per-node", type=int, default=8, help="(default: 8)")
    add("--inside", type=float, default=100, help="GB/s between GPUs of a node (default: 100)")
    add("--between", type=float, default=12.5, help="GB/s between nodes (default: 12.5, 100 Gbit/s)")
    add("--memory", type=float, default=900, help="GB/s of a GPU's memory (default: 900)")
    add("--loader", type=float, default=1.5e5, help="tokens per second that a core puts into batches (default: 1.5e5)")
    args = parser.parse_args(words)
    for name, value in vars(args).items():
        values = value if isinstance(value, list) else [value]
        if min(values) <= 0:
            parser.error(
                f"--{name.replace('_', '-')} must be positive, but got {min(values)}; leave it out for the default."
            )
    return args


def format_table(args: argparse.Namespace) -> str:
    """A row for each number of GPUs, as a Markdown table."""
    columns = "GPUs, micro-batches, compute s, exchange s, waited for, optimiser s, update s, days, efficiency"
    rows = []
    alone = plan_update(args, 1).total
    for gpus in args.gpus:
        update = plan_update(args, gpus)
        seconds = (update.compute, update.exchange, update.waiting, update.optimiser, update.total)
        days = update.total * args.updates / SECONDS_A_DAY
        cells = [*(f"{one:.3f}" for one in seconds), f"{days:.1f}", f"{alone / gpus / update.total:.0%}"]
        rows.append([str(gpus), str(update.micro_batches), *cells])
    share = args.tokens_per_second / args.loader
    size = 2 * 2 * args.tokens_per_update / 1e6  # source and target, two bytes a token
    return (
        f"{markdown_table.make_table(columns.split(', '), rows, num_left=0)}\n\n"
        f"Data: {size:.1f} MB are read for an update, whatever the number of GPUs; each process needs {share:.1%} of a "
        "core to make its batches."
    )


if __name__ == "__main__":
    print(format_table(parse_arguments()))
