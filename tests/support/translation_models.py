"""A folder with all that ``muse-plugin translate`` needs, of a tiny model that has never been trained."""

from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import muse_plugin  # noqa: F401  (registers the model)
from muse_plugin.text.text_pipeline import TextPipeline

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist noch nicht da.", "Ich sehe den Bahnhof nicht."] * 3
ENGLISH = ["Where is the station?", "The train isn't there yet.", "I don't see the station."] * 3


def save_translation_model(folder: Path, seed: int = 1, arch: str = "muse_tiny") -> Path:
    """Makes a German-English model with its dictionaries and text pipeline.

    Args:
        folder: made if missing; it gets ``checkpoint_avg.pt``, and the same with settings in the form that fairseq
            had before 1.0 in ``checkpoint_of_old_fairseq.pt``.
        seed: of the parameters.
        arch: of one layer each side, eight channels wide.

    Returns:
        ``folder``.
    """
    pipeline = TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=30)
    pipeline.save(folder)
    dictionary = Dictionary()
    for line in [*map(pipeline.encode_source, GERMAN), *map(pipeline.encode_target, ENGLISH)]:
        for word in line.split():
            dictionary.add_symbol(word)
    for lang in ("de", "en"):
        dictionary.save(str(folder / f"dict.{lang}.txt"))
    flags = f"{folder} --arch {arch} --source-lang de --target-lang en --share-all-embeddings"
    flags += " --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8"
    flags += " --encoder-attention-heads 4 --decoder-attention-heads 4"
    flags += " --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256"  # those of muse_tiny
    flags += " --max-source-positions 20 --max-target-positions 12"
    args = options.parse_args_and_arch(options.get_training_parser(), flags.split())
    torch.manual_seed(seed)
    cfg = convert_namespace_to_omegaconf(args)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    state = {"args": None, "cfg": cfg, "model": model.state_dict(), "optimizer_history": history}
    state |= {"extra_state": {"epoch": 1}, "task_state": {}}
    torch.save(state, folder / "checkpoint_avg.pt")
    torch.save({**state, "args": args, "cfg": None}, folder / "checkpoint_of_old_fairseq.pt")
    return folder
