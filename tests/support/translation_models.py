"""A folder with all that ``muse-plugin translate`` needs, of a tiny model that has never been trained."""

from pathlib import Path

from fairseq import options
from fairseq.data import Dictionary
from support.fairseq_commands import save_untrained
from support.helpers import save_checkpoint

from muse_plugin.text.text_pipeline import TextPipeline

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist noch nicht da.", "Ich sehe den Bahnhof nicht."] * 3
ENGLISH = ["Where is the station?", "The train isn't there yet.", "I don't see the station."] * 3


def save_texts(folder: Path, **text) -> None:
    """Writes text pipeline and dictionaries; ``text`` has further arguments of ``TextPipeline.learn``."""
    pipeline = TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=30, **text)
    pipeline.save(folder)
    dictionary = Dictionary()
    for line in [*map(pipeline.encode_source, GERMAN), *map(pipeline.encode_target, ENGLISH)]:
        for word in line.split():
            dictionary.add_symbol(word)
    for lang in ("de", "en"):
        dictionary.save(str(folder / f"dict.{lang}.txt"))


def save_translation_model(folder: Path, arch: str = "muse_tiny") -> Path:
    """Makes a German-English model with its dictionaries and text pipeline.

    Args:
        folder: made if missing; it gets ``checkpoint_avg.pt``, and the same with settings in the form that fairseq
            had before 1.0 in ``checkpoint_of_old_fairseq.pt``.
        arch: of one layer each side, eight channels wide.

    Returns:
        ``folder``.
    """
    save_texts(folder)
    flags = f"{folder} --arch {arch} --source-lang de --target-lang en --share-all-embeddings"
    flags += " --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8"
    flags += " --encoder-attention-heads 4 --decoder-attention-heads 4"
    flags += " --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256"  # those of muse_tiny
    flags += " --max-source-positions 20 --max-target-positions 12"
    model, _ = save_untrained(folder / "checkpoint_avg.pt", *flags.split())
    args = options.parse_args_and_arch(options.get_training_parser(), flags.split())
    save_checkpoint(folder / "checkpoint_of_old_fairseq.pt", model.state_dict(), args=args)
    return folder
