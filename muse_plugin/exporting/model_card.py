"""The model card, ``README.md`` of an exported folder: what the model is, how it was trained, what it scores."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from muse_plugin.files.json_objects import read_json_object
from muse_plugin.inference.translate import Translator

CARD_NAME = "README.md"
# Settings of fairseq that a card names, by their section.
_SETTINGS = {
    "optimization": ("max_update", "max_epoch", "update_freq", "lr", "clip_norm"),
    "dataset": ("max_tokens", "batch_size"),
    "distributed_training": ("distributed_world_size",),
    "common": ("seed", "fp16", "bf16"),
    "model": ("dropout", "weight_dropout", "attention_dropout"),
    "criterion": ("label_smoothing",),
    "lr_scheduler": ("warmup_updates",),
    "optimizer": ("adam_betas",),
}
_SCORES = {"tokenized_bleu": "tokenised BLEU", "bleu": "sacreBLEU", "chrf": "chrF", "ter": "TER"}
_LARGEST_RESULT = 1 << 24  # bytes


class Measured(NamedTuple):
    """BLEU of the folder's own program.

    Attributes:
        weights: float32 or int8.
        score: on 0-100.
        signature: of sacreBLEU.
        sentences: of the test set.
    """

    weights: str
    score: float
    signature: str
    sentences: int


def describe_training(state: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a training that a reader of the card asks for, by name.

    Args:
        state: of ``Translator``; what it does not hold is left out.
    """
    cfg = state["cfg"]
    found: dict[str, Any] = {}
    for section, names in _SETTINGS.items():
        found |= {name: _get(cfg.get(section), name) for name in names}
    for section in ("optimizer", "lr_scheduler", "criterion", "task"):
        found[section] = _get(cfg.get(section), "_name")
    history = state.get("optimizer_history") or [{}]
    found["updates done"] = history[-1].get("num_updates") or None
    averaged = state.get("averaged_from")
    found["average of checkpoints"] = len(averaged) if isinstance(averaged, list) else None
    return {name: str(value) for name, value in found.items() if value not in (None, "", 0, 0.0, False)}


def _get(settings: Any, name: str) -> Any:
    return settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)


def find_scores(checkpoint: Path) -> dict[str, list[tuple[str, float, str]]]:
    """Scores that ``muse-plugin evaluate --output`` has left next to a checkpoint or as recipes do, one folder above.

    Returns:
        For each file its (score, value, signature), by the file's name, with its folder where several have that name;
        files of another kind are passed over.
    """
    own = checkpoint.resolve().parent
    found = {}
    for pattern in ("*.json", "results/*.json", "../results/*.json", "../results.json"):
        for path in sorted(own.glob(pattern)):
            rows = _read_scores(path)
            if rows:
                found[Path(os.path.normpath(path)).with_suffix("")] = rows
    count = Counter(path.name for path in found)
    return {p.name if count[p.name] == 1 else str(p.relative_to(own.parent)): rows for p, rows in found.items()}


def _read_scores(path: Path) -> list[tuple[str, float, str]]:
    try:
        scores = read_json_object(path, "", _LARGEST_RESULT).get("scores")
    except (ValueError, OSError):
        return []
    rows = []
    for name, title in _SCORES.items():
        score = scores.get(name) if isinstance(scores, dict) else None
        if isinstance(score, dict) and isinstance(score.get("mean"), float) and score.get("signature"):
            rows.append((title, score["mean"], str(score["signature"])))
    return rows


def write_card(
    folder: Path,
    translator: Translator,
    facts: Mapping[str, Any],
    config: Mapping[str, Any],
    measured: Sequence[Measured],
) -> None:
    """Writes the card.

    Args:
        folder: what is described; its files are listed, and ``CARD_NAME`` is written.
        translator: the model with its task and text pipeline.
        facts: ``name``, ``file``, ``licence`` (or None), ``training`` and ``scores``, as found.
        config: ``weights`` and ``written_by``; of ONNX also ``opset``.
        measured: what the folder itself scores.
    """
    pipeline, model = translator.pipeline, translator.models[0]
    settings = translator.state["cfg"]["model"]
    architecture = _get(settings, "arch") or _get(settings, "_name") or type(model).__name__
    sizes = {
        "encoder": f"{len(model.encoder.layers)} layers, width {model.encoder.cfg.encoder.embed_dim}",
        "decoder": f"{len(model.decoder.layers)} layers, width {model.decoder.cfg.decoder.embed_dim}",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        "dictionaries": " and ".join(
            f"{len(words):,}" for words in (translator.task.source_dictionary, translator.task.target_dictionary)
        )
        + " words",
        "longest source": f"{translator.max_source_tokens:,} tokens",
        "subwords": f"{pipeline.source.settings.subwords} and {pipeline.target.settings.subwords}",
    }
    title = _line(facts["name"])
    parts = [
        f"# {title}: {pipeline.source_lang} to {pipeline.target_lang}",
        f"A `{_line(architecture)}`, trained by fairseq, weights in {config['weights']}, written by "
        f"{config['written_by']} from `{_line(facts['file'])}`.",
        _describe_use(config),
        "## Sizes",
        _table(("what", "how much"), sizes.items()),
        "## Training",
        _table(("setting", "value"), facts["training"].items()),
        "## Scores",
        _describe_scores(facts["scores"], measured, config),
        "## Licence",
        _line(facts["licence"]) if facts["licence"] else "Not stated. Ask who trained the model before you pass it on.",
        "## Files",
        _table(("file", "bytes"), ((p.name, f"{p.stat().st_size:,}") for p in sorted(folder.iterdir()) if p.is_file())),
    ]
    (folder / CARD_NAME).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _describe_use(config: Mapping[str, Any]) -> str:
    if "opset" not in config:
        return (
            'For CTranslate2: `ctranslate2.Translator("FOLDER").translate_batch([tokens])`. Text is cut into tokens as '
            "`text_pipeline.json` says; its files are in this folder."
        )
    return (
        "```bash\npip install numpy onnxruntime sacremoses subword-nmt sentencepiece\n"
        "python run.py < in.txt > out.txt\n```\n\nOr `from run import Translator` and "
        '`Translator("FOLDER").translate(["..."])`. `python run.py --help` lists the settings of the search. Of the '
        f"last three packages only those that `text_pipeline.json` names are needed. ONNX opset {config['opset']}, "
        "standard operators, checked by `onnx.checker`."
    )


def _describe_scores(found: Mapping[str, Any], measured: Sequence[Measured], config: Mapping[str, Any]) -> str:
    parts = []
    if measured:
        rows = [(m.weights, f"{m.score:.2f}", f"{m.sentences:,}", f"`{m.signature}`") for m in measured]
        parts.append("Of this folder, beam 5:\n\n" + _table(("weights", "BLEU", "sentences", "signature"), rows))
    elif config["weights"] == "int8":
        parts.append("What rounding to 8 bits costs was not measured.")
    if found:
        rows = [(name, row[0], f"{row[1]:.2f}", f"`{row[2]}`") for name in found for row in found[name]]
        parts.append(
            "Of the checkpoint, as evaluated before:\n\n" + _table(("test set", "score", "value", "signature"), rows)
        )
    return "\n\n".join(parts) or "Not measured."


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [tuple(head), tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(_line(cell) for cell in line)} |" for line in lines)


def _line(text: Any) -> str:
    """Text from elsewhere in one line of Markdown."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else " " for c in line).replace("|", "\\|").replace("<", "&lt;")[:300]
