"""Fills the folder of ``muse-plugin export --format onnx``: graphs, dictionaries, text, settings, program, card.

``config.json`` holds what ``run.py`` has to know and the checksum of every file, by which a missing, cut or foreign one
is noticed.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from muse_plugin import __version__
from muse_plugin.exporting.model_card import CARD_NAME, Measured, write_card
from muse_plugin.files.lines import read_lines
from muse_plugin.inference.resumable_output import hash_file
from muse_plugin.inference.translate import Translator
from muse_plugin.models.onnx.graphs import make_graphs
from muse_plugin.models.onnx.onnx_file import ENCODER_NAME, OPSET, STEP_NAME, round_to_int8, write_encoder, write_step
from muse_plugin.runner import run as runner
from muse_plugin.text import SPECIAL_SYMBOLS

CONFIG_NAME, PROGRAM_NAME = "config.json", "run.py"


def fill_folder(
    folder: Path, translator: Translator, facts: Mapping[str, Any], int8: bool, evaluate: Optional[Sequence[Path]]
) -> None:
    """Writes the whole folder.

    Args:
        folder: an empty one.
        translator: the model with its task and text pipeline.
        facts: for the card, see ``write_card``.
        int8: whether matrix products get 8-bit weights.
        evaluate: files of source and reference, to measure BLEU with; None for no measurement.

    Raises:
        NotImplementedError: if the model cannot be written.
        ValueError: if the two files have other numbers of lines, or the dictionaries are not those of fairseq.
    """
    pair = None if evaluate is None else _read_pair(*evaluate)
    model, task = translator.models[0], translator.task
    encoder, step = make_graphs(model)
    config: dict[str, Any] = {
        "format_version": runner.FORMAT_VERSION,
        "written_by": f"muse_plugin {__version__}",
        "weights": "int8" if int8 else "float32",
        "opset": OPSET,
        "left_pad_source": task.cfg.get("left_pad_source", True) in (True, "True"),
        "max_source_positions": int(translator.max_source_tokens),
        "max_target_positions": int(model.max_decoder_positions()),
        "histories": step.history_shapes,
    }
    translator.pipeline.save(folder)
    for side in ("source", "target"):
        dictionary, name = getattr(task, f"{side}_dictionary"), f"dict.{getattr(task.cfg, f'{side}_lang')}.txt"
        _check_dictionary(dictionary.symbols, name)
        dictionary.save(str(folder / name))
        config[f"{side}_dictionary"] = name
    write_encoder(encoder, folder / ENCODER_NAME)
    write_step(step, folder / STEP_NAME)
    shutil.copyfile(str(runner.__file__), folder / PROGRAM_NAME)
    _write_config(folder, config)
    measured = [] if pair is None else [_measure(folder, pair, "float32")]
    if int8:
        _round(folder)
        _write_config(folder, config)
        measured += [] if pair is None else [_measure(folder, pair, "int8")]
    write_card(folder, translator, facts, config, measured)


def _read_pair(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    sides = read_lines(source, "--evaluate"), read_lines(reference, "--evaluate")
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"--evaluate must name two files of as many lines, but {source} has {len(sides[0]):,} and {reference} "
            f"{len(sides[1]):,}; check that they are of one test set."
        )
    return sides


def _check_dictionary(symbols: Sequence[str], name: str) -> None:
    if tuple(symbols[:4]) != SPECIAL_SYMBOLS[:4] or len(set(symbols)) != len(symbols):
        raise NotImplementedError(
            f"muse-plugin export takes dictionaries that begin with {', '.join(SPECIAL_SYMBOLS[:4])} and hold every "
            f"word once, but {name} begins with {', '.join(symbols[:4])} and repeats "
            f"{len(symbols) - len(set(symbols))} words; translate with muse-plugin translate."
        )


def _round(folder: Path) -> None:
    """Replaces the graphs by those with 8-bit weights."""
    with tempfile.TemporaryDirectory() as place:
        for name in (ENCODER_NAME, STEP_NAME):
            for path in folder.glob(f"{name}*"):
                shutil.move(str(path), place)
            round_to_int8(Path(place) / name, folder / name)


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    own = {CARD_NAME, CONFIG_NAME, PROGRAM_NAME, "__pycache__"}
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir()) if path.name not in own}
    (folder / CONFIG_NAME).write_text(json.dumps({**config, "files": files}, indent=2) + "\n", encoding="utf-8")


def _measure(folder: Path, pair: tuple[list[str], list[str]], weights: str) -> Measured:
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    hypotheses = runner.Translator(folder).translate(pair[0])
    score = metric.corpus_score(hypotheses, [pair[1]]).score
    return Measured(weights, float(score), str(metric.get_signature()), len(pair[0]))
