"""Folders with all that ``muse-plugin view`` needs; the models have never been trained."""

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import muse_plugin  # noqa: F401  (registers the models)
from muse_plugin.text.text_pipeline import TextPipeline

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist noch nicht da.", "Ich sehe den Bahnhof nicht."]
ENGLISH = ["Where is the station?", "The train isn't there yet.", "I don't see the station."]
MAX_SOURCE_POSITIONS = 30
MAX_TARGET_POSITIONS = 8
SIZES = [f"--{side}-{name}" for side in ("encoder", "decoder") for name in ("layers=2", "embed-dim=12")]
SIZES += [f"--{side}-{name}" for side in ("encoder", "decoder") for name in ("attention-heads=2", "ffn-embed-dim=16")]
GATED = [f"--{side}-kernel-sizes=3,5" for side in ("encoder", "decoder")]


def make_model_folder(folder, arch="muse_tiny", *flags, **text):
    """Writes a checkpoint with its dictionaries and text pipeline; attention and gates are uneven.

    ``text`` has further arguments of ``TextPipeline.learn``.
    """
    pipeline = TextPipeline.learn("de", "en", GERMAN * 3, ENGLISH * 3, size=30, **text)
    pipeline.save(folder)
    dictionary = Dictionary()
    for line in [*map(pipeline.encode_source, GERMAN), *map(pipeline.encode_target, ENGLISH)]:
        for word in line.split():
            dictionary.add_symbol(word)
    for lang in ("de", "en"):
        dictionary.save(str(folder / f"dict.{lang}.txt"))
    positions = [f"--max-source-positions={MAX_SOURCE_POSITIONS}", f"--max-target-positions={MAX_TARGET_POSITIONS}"]
    words = [str(folder), "--arch", arch, "--source-lang=de", "--target-lang=en", *SIZES, *positions, *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    torch.manual_seed(1)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gate"):
                parameter.normal_(std=0.5)
            elif parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(3)
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    state = {"args": None, "cfg": cfg, "model": model.state_dict(), "optimizer_history": history}
    torch.save({**state, "extra_state": {"epoch": 1}, "task_state": {}}, folder / "checkpoint_avg.pt")
    return folder
