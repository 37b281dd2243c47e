"""Fixes defects of the installed fairseq that a user of this plugin would meet.

Each file here is about one defect of the release that ``setup.py`` pins: why it matters, and the remedy.
fairseq's files are not touched: names in loaded modules are bound again, for this process.
"""

from muse_plugin.fairseq_repairs import (
    architecture_help,
    atomic_checkpoints,
    bare_replace_unk,
    batches_after_resuming,
    bf16_without_tpu,
    checkpoint_bombs,
    checkpoint_mismatch,
    debug_log_level,
    diverse_beam,
    equal_processes,
    fasta_without_shell,
    faulty_batch,
    forked_workers,
    fp16_without_gpu,
    generation_shards,
    half_precision_on_cpu,
    heartbeat_timeout,
    hollow_data,
    interactive_lines,
    interrupted_waiting,
    last_batch,
    length_buckets,
    linked_user_dir,
    literal_settings,
    missing_extensions,
    misspelt_flags,
    misspelt_overrides,
    moses_languages,
    rdrop_validation,
    repeated_ngrams,
    resuming,
    several_cpu_processes,
    spawned_processes,
    unlogged_metric,
    unused_bias,
)
from muse_plugin.fairseq_repairs.repair import Repair

REPAIRS: tuple[Repair, ...] = (
    missing_extensions.REPAIR,
    forked_workers.REPAIR,
    last_batch.REPAIR,
    bf16_without_tpu.REPAIR,
    fp16_without_gpu.REPAIR,
    half_precision_on_cpu.REPAIR,
    interactive_lines.REPAIR,
    literal_settings.REPAIR,
    length_buckets.REPAIR,
    repeated_ngrams.REPAIR,
    debug_log_level.REPAIR,
    linked_user_dir.REPAIR,
    rdrop_validation.REPAIR,
    atomic_checkpoints.REPAIR,
    checkpoint_bombs.REPAIR,
    fasta_without_shell.REPAIR,
    hollow_data.REPAIR,
    batches_after_resuming.REPAIR,
    resuming.RESUMING,
    resuming.END,
    several_cpu_processes.REPAIR,
    spawned_processes.REPAIR,
    equal_processes.REPAIR,
    interrupted_waiting.REPAIR,
    heartbeat_timeout.REPAIR,
    faulty_batch.REPAIR,
    architecture_help.REPAIR,
    misspelt_flags.REPAIR,  # around the one before: it also corrects names given with --help
    misspelt_overrides.REPAIR,
    diverse_beam.REPAIR,
    generation_shards.REPAIR,
    moses_languages.REPAIR,
    checkpoint_mismatch.REPAIR,
    unused_bias.REPAIR,
    unlogged_metric.REPAIR,
    bare_replace_unk.REPAIR,
)


def apply() -> list[Repair]:
    """Applies the repairs that the modules loaded so far need.

    A repaired defect is no longer present, so a second call does nothing, except for fairseq modules that were loaded
    in between: call it again after importing one of ``fairseq_cli`` yourself.

    Returns:
        The repairs applied by this call, in the order of ``REPAIRS``.
    """
    applied = []
    for repair in REPAIRS:
        if repair.is_needed():
            repair.apply()
            applied.append(repair)
    return applied
