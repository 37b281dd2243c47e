"""Forks the processes that load batches, as before Python 3.14, whose own way imports everything again in each."""

import multiprocessing

from muse_plugin.fairseq_repairs.repair import Repair


def _imports_again() -> bool:
    # Who only asks for the default fixes it, as fairseq does when it is imported: that looks like a choice.
    return multiprocessing.get_start_method() == "forkserver" == multiprocessing.get_all_start_methods()[0]


REPAIR = Repair(
    why="with Python 3.14 on Linux, every epoch and every validation begins with seconds in which a worker imports "
    "torch and fairseq again",
    remedy=lambda: multiprocessing.set_start_method("fork", force=True),
    probe=_imports_again,
)
