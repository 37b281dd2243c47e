"""Folders with all that ``muse-plugin view`` needs; the models have never been trained."""

from support.fairseq_commands import save_untrained, sharpen
from support.translation_models import save_texts

MAX_SOURCE_POSITIONS = 30
MAX_TARGET_POSITIONS = 8
SIZES = [f"--{side}-{name}" for side in ("encoder", "decoder") for name in ("layers=2", "embed-dim=12")]
SIZES += [f"--{side}-{name}" for side in ("encoder", "decoder") for name in ("attention-heads=2", "ffn-embed-dim=16")]
GATED = [f"--{side}-kernel-sizes=3,5" for side in ("encoder", "decoder")]


def make_model_folder(folder, arch="muse_tiny", *flags, **text):
    """Writes a checkpoint with its dictionaries and text pipeline; attention and gates are uneven.

    ``text`` has further arguments of ``TextPipeline.learn``.
    """
    save_texts(folder, **text)
    positions = [f"--max-source-positions={MAX_SOURCE_POSITIONS}", f"--max-target-positions={MAX_TARGET_POSITIONS}"]
    words = [folder, "--arch", arch, "--source-lang=de", "--target-lang=en", *SIZES, *positions, *flags]
    save_untrained(folder / "checkpoint_avg.pt", *words, change=sharpen)
    return folder
