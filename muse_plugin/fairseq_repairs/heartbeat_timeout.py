"""Lets --heartbeat-timeout end a training of several processes that waits for one that does not answer."""

import signal

from fairseq.distributed import DistributedTimeoutWrapper

from muse_plugin.fairseq_repairs.repair import Repair


def _apply() -> None:
    # Python acts on SIGINT between two of its own instructions, and a process that waits for others executes none.
    # SIGTERM, which Python leaves to the system, ends it at once.
    DistributedTimeoutWrapper.__init__.__defaults__ = (signal.SIGTERM,)


REPAIR = Repair(
    why="a process that waits for another one longer than --heartbeat-timeout says 'Killing job for not making "
    "progress', and continues to wait",
    remedy=_apply,
)
