"""Mends defects of the installed fairseq that a user of this plugin would meet.

Each repair is one file here: its name, why it exists, a probe that shows whether the defect is present, and the remedy.
A fairseq without the defect is left alone. fairseq's files are not touched: names in loaded modules are bound anew, for
this process.
"""

from __future__ import annotations

from muse_plugin.fairseq_repairs import (
    atomic_checkpoints,
    batches_after_resuming,
    bf16_without_tpu,
    checkpoint_bombs,
    damaged_checkpoints,
    debug_log_level,
    end_of_training,
    faulty_batch,
    fp16_without_gpu,
    heartbeat_timeout,
    interactive_lines,
    last_batch,
    length_buckets,
    linked_user_dir,
    literal_settings,
    misspelt_flags,
    rate_after_resuming,
    rdrop_validation,
    repeated_ngrams,
    several_cpu_processes,
)
from muse_plugin.fairseq_repairs.repair import Repair

REPAIRS: tuple[Repair, ...] = (
    last_batch.REPAIR,
    bf16_without_tpu.REPAIR,
    fp16_without_gpu.REPAIR,
    interactive_lines.REPAIR,
    literal_settings.REPAIR,
    length_buckets.REPAIR,
    repeated_ngrams.REPAIR,
    debug_log_level.REPAIR,
    linked_user_dir.REPAIR,
    rdrop_validation.REPAIR,
    atomic_checkpoints.REPAIR,
    damaged_checkpoints.REPAIR,
    checkpoint_bombs.REPAIR,
    batches_after_resuming.REPAIR,
    rate_after_resuming.REPAIR,
    end_of_training.REPAIR,
    several_cpu_processes.REPAIR,
    heartbeat_timeout.REPAIR,
    faulty_batch.REPAIR,
    misspelt_flags.REPAIR,
)


def apply() -> list[str]:
    """Applies the repairs whose defect is present in the modules loaded so far.

    A repaired defect is no longer present, so a second call does nothing, except for fairseq modules that were loaded
    in between: call it again after importing one of ``fairseq_cli`` yourself.

    Returns:
        The names of the repairs applied by this call, in the order of ``REPAIRS``.
    """
    applied = []
    for repair in REPAIRS:
        if repair.is_needed():
            repair.apply()
            applied.append(repair.name)
    return applied
