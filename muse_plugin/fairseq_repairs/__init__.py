"""Fixes defects of the installed fairseq that a user of this plugin would meet.

Each file here is about one defect of the release that ``setup.py`` pins: why it matters, and the remedy.
fairseq's files are not touched: names in loaded modules are bound again, for this process.
"""

from importlib import import_module

from muse_plugin.fairseq_repairs.repair import Repair

# In the order of their remedies; misspelt_flags is around architecture_help and also corrects names given with --help.
_FILES = """
    missing_extensions forked_workers loading_processes last_batch bf16_without_tpu fp16_without_gpu
    half_precision_on_cpu half_precision_copies
    interactive_lines literal_settings length_buckets repeated_ngrams debug_log_level linked_user_dir rdrop_losses
    atomic_checkpoints checkpoint_bombs fasta_without_shell hollow_data batches_after_resuming resuming
    several_cpu_processes spawned_processes equal_processes interrupted_waiting heartbeat_timeout faulty_batch
    architecture_help misspelt_flags misspelt_overrides diverse_beam generation_shards moses_languages
    checkpoint_mismatch unused_bias unlogged_metric bare_replace_unk upsampled_part tied_ema
    resumed_ema half_precision_resuming pretrained_bart_settings
"""
REPAIRS: tuple[Repair, ...] = tuple(
    value
    for name in _FILES.split()
    for value in vars(import_module(f"{__name__}.{name}")).values()
    if isinstance(value, Repair)
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
