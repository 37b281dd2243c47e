"""BLEU against sentences per second, one thread: ``python frontier.py NAME=FOLDER... --source FILE --reference FILE``.

Called by evaluate.sh; the first model is the teacher. All systems translate the same batches of the test set, and take
turns after every batch, so that a busy moment of the machine slows all of them. A system is a model in a form: float32
(as fairseq-generate runs it), int8 (MUSE alone), onnxruntime (MUSE alone) and CTranslate2 (plain Transformers alone)
with both, if they are installed, under beams of 5 and 1. Writes frontier.json, frontier.md and frontier.svg.
"""

import argparse
import importlib.util
import json
import logging
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import torch
from fairseq.data.data_utils import post_process

from muse_plugin.checkpoints.model_loading import build_model, find_checkpoint, read_state
from muse_plugin.evaluation.bleu import make_tokenized_bleu, protect_spaces
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.lines import read_lines
from muse_plugin.inference.length_batches import make_batches
from muse_plugin.models.muse import MuseModel
from muse_plugin.results.figures import COLORS, MARKERS, open_figure
from muse_plugin.results.run_record import describe_run
from muse_plugin.text.text_pipeline import TextPipeline

BEAMS = (5, 1)
HAS_CTRANSLATE2 = importlib.util.find_spec("ctranslate2") is not None
HAS_ONNXRUNTIME = None not in map(importlib.util.find_spec, ("onnx", "onnxruntime"))
MAX_LENGTH = (1.5, 30)  # times the tokens of the source, and so many more
# Tokens of a batch of sentences, to those of their translations.
Search = Callable[[Sequence[Sequence[str]]], list[list[str]]]


class System(NamedTuple):
    """A model in a form, with a beam: what the figure has a point for."""

    model: str
    form: str
    beam: int


def load_systems(name: str, folder: Path) -> Iterator[tuple[System, Search]]:
    """Yields every form of a model, under every beam.

    Args:
        name: of the model.
        folder: as evaluate.sh leaves it.
    """
    checkpoint, pipeline = find_checkpoint(folder), TextPipeline.load(folder)
    for form, backend in product(("float32", "int8"), ("torch", *(["onnxruntime"] if HAS_ONNXRUNTIME else []))):
        settings: dict[str, Any] = {"data": str(folder), "int8_inference": form == "int8", "inference_backend": backend}
        state = read_state(checkpoint, settings)
        state["cfg"]["task"].source_lang, state["cfg"]["task"].target_lang = pipeline.source_lang, pipeline.target_lang
        model, task = build_model(checkpoint, state, settings, folder)
        model.eval()
        has_forms = isinstance(model, MuseModel)
        if not has_forms and HAS_CTRANSLATE2:
            sides = [(pipeline.source_lang, task.source_dictionary), (pipeline.target_lang, task.target_dictionary)]
            for precision in ("float32", "int8"):
                for beam, search in zip(BEAMS, _load_ctranslate2(model, sides, precision == "int8"), strict=True):
                    yield System(name, f"CTranslate2, {precision}", beam), search
        model.make_generation_fast_(beamable_mm_beam_size=max(BEAMS), need_attn=False)  # type: ignore[operator]
        for beam in BEAMS:
            label = form if backend == "torch" else f"{backend}, {form}"
            yield System(name, label, beam), _make_search(model, task, beam)
        if not has_forms:
            return


def _make_search(model: torch.nn.Module, task: Any, beam: int) -> Search:
    """fairseq's beam search."""
    limits = {"max_len_a": MAX_LENGTH[0], "max_len_b": MAX_LENGTH[1]}
    generator = task.build_generator([model], Namespace(beam=beam, lenpen=1.0, **limits))
    source, target = task.source_dictionary, task.target_dictionary

    def search(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        tokens = [source.encode_line(" ".join(words), add_if_not_exist=False).long() for words in sentences]
        dataset = task.build_dataset_for_inference(tokens, [len(one) for one in tokens])
        sample = dataset.collater([dataset[i] for i in range(len(tokens))])
        with torch.no_grad():
            found = task.inference_step(generator, [model], sample)
        best = dict(zip(sample["id"].tolist(), found, strict=True))
        return [target.string(best[i][0]["tokens"]).split() for i in range(len(tokens))]

    return search


def _load_ctranslate2(model: torch.nn.Module, sides: Any, int8: bool) -> Iterator[Search]:
    """CTranslate2's beam search, for each beam."""
    import ctranslate2

    from muse_plugin.exporting.ctranslate2_folder import convert_model

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        convert_model(model, sides, folder, int8)
        compute_type = "int8" if int8 else "float32"
        translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=1
        )
    for beam in BEAMS:

        def search(sentences: Sequence[Sequence[str]], beam: int = beam) -> list[list[str]]:
            longest = int(MAX_LENGTH[0] * (1 + max(map(len, sentences))) + MAX_LENGTH[1])
            results = translator.translate_batch(
                [list(words) for words in sentences], beam_size=beam, max_batch_size=0, max_decoding_length=longest
            )
            return [result.hypotheses[0] for result in results]

        yield search


def measure(
    systems: dict[System, Search], source: Sequence[str], batch: int
) -> tuple[dict[System, float], dict[System, list[list[str]]]]:
    """Translates the sentences by all systems, which take turns after each batch.

    Args:
        systems: at least one.
        source: sentences in subwords.
        batch: most sentences at once.

    Returns:
        Seconds, and the tokens of each translation.
    """
    sentences = [line.split() for line in source]
    batches = make_batches({i: len(words) for i, words in enumerate(sentences)}, None, batch)
    seconds = dict.fromkeys(systems, 0.0)
    found: dict[System, dict[int, list[str]]] = {system: {} for system in systems}
    for number, positions in enumerate([batches[0], *batches]):  # the first one also warms up
        for system, search in systems.items():
            started = time.perf_counter()
            translations = search([sentences[i] for i in positions])
            if number > 0:
                seconds[system] += time.perf_counter() - started
                found[system] |= dict(zip(positions, translations, strict=True))
    return seconds, {system: [own[i] for i in range(len(sentences))] for system, own in found.items()}


def make_points(
    seconds: dict[System, float], translations: dict[System, list[list[str]]], references: Sequence[str], subwords: str
) -> list[dict[str, Any]]:
    """A point per system: tokenised BLEU, sentences per second, and how many times those of the teacher.

    Args:
        seconds: of each system; the first model is the teacher, and compared is its float32 form with a beam of 5.
        translations: in subwords.
        references: tokenised.
        subwords: fairseq's name of the subwords, see ``post_process``.
    """
    metric = make_tokenized_bleu(protect_spaces(references))
    teacher = System(next(iter(seconds)).model, "float32", BEAMS[0])
    points = []
    for system, spent in seconds.items():
        lines = [post_process(" ".join(words), subwords) for words in translations[system]]
        bleu = metric.corpus_score(protect_spaces(lines), None).score
        speed = {"sentences_per_second": len(references) / spent, "times_teacher": seconds[teacher] / spent}
        points.append({**system._asdict(), "bleu": bleu, **speed})
    return points


def make_table(points: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, the fastest last."""
    header = "model, form, beam, BLEU, sentences per second, ms per sentence, times as fast as the teacher".split(", ")
    rows = []
    for one in sorted(points, key=lambda one: one["sentences_per_second"]):
        speed = one["sentences_per_second"]
        numbers = [f"{one['bleu']:.1f}", f"{speed:.1f}", f"{1e3 / speed:.1f}", f"{one['times_teacher']:.2f}"]
        rows.append([one["model"], one["form"], str(one["beam"]), *numbers])
    return markdown_table.make_table(header, rows, num_left=2) + "\n"


def draw(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the figure: a colour per model, a marker per form, filled for the wide beam."""
    models = list(dict.fromkeys(one["model"] for one in points))
    forms = list(dict.fromkeys(one["form"] for one in points))
    with open_figure(path, 6.4, 3.8, "--output") as figure:
        axes = figure.add_subplot()
        axes.grid()
        for one in points:
            color = COLORS[models.index(one["model"]) % len(COLORS)]
            style = {"marker": MARKERS[forms.index(one["form"]) % len(MARKERS)], "markeredgecolor": color}
            face = color if one["beam"] == BEAMS[0] else "white"
            axes.plot(
                one["sentences_per_second"], one["bleu"], color=color, markerfacecolor=face, linestyle="", **style
            )
        for i, model in enumerate(models):
            axes.plot([], [], color=COLORS[i % len(COLORS)], linewidth=4, label=model)
        for i, form in enumerate(forms):
            axes.plot([], [], color="#444444", marker=MARKERS[i % len(MARKERS)], linestyle="", label=form)
        axes.plot([], [], color="#444444", marker="o", markerfacecolor="white", linestyle="", label="hollow: beam 1")
        axes.set_xscale("log")
        axes.set_xlabel("sentences per second, one thread")
        axes.set_ylabel("BLEU")
        figure.legend(loc="outside right upper", frameon=False, fontsize=7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument(
        "models", nargs="+", metavar="NAME=FOLDER", help="models with their dictionaries; first the teacher"
    )
    parser.add_argument("--source", type=Path, required=True, help="test sentences in subwords")
    parser.add_argument("--reference", type=Path, required=True, help="their translations, tokenised")
    parser.add_argument("--batch", type=int, default=32, help="most sentences at once (default: 32)")
    parser.add_argument("--sentences", type=int, help="translate so many of them (default: all)")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the results (default: .)")
    args = parser.parse_args()
    source, references = (list(read_lines(path, "a file of sentences")) for path in (args.source, args.reference))
    if len(source) != len(references):
        parser.error(f"--reference must have a line per line of --source, but has {len(references)} for {len(source)}.")
    if args.batch < 1 or (args.sentences is not None and args.sentences < 1):
        parser.error(f"--batch and --sentences must be at least 1, but got {args.batch} and {args.sentences}.")
    source, references = source[: args.sentences], references[: args.sentences]
    torch.set_num_threads(1)
    logging.disable(logging.INFO)  # the size of each dictionary, the fonts of the figure
    if not HAS_CTRANSLATE2:
        sys.stderr.write("CTranslate2 is not measured: ctranslate2 cannot be found; pip install ctranslate2 adds it.\n")
    if not HAS_ONNXRUNTIME:
        sys.stderr.write(
            "onnxruntime is not measured: it or onnx cannot be found; pip install onnx onnxruntime adds both.\n"
        )
    folders = {name: Path(folder) for name, _, folder in (one.partition("=") for one in args.models)}
    systems = {system: search for name, folder in folders.items() for system, search in load_systems(name, folder)}
    pieces = TextPipeline.load(next(iter(folders.values()))).source.settings.subwords
    subwords = {"subword-nmt": "subword_nmt"}.get(pieces, pieces)
    seconds, translations = measure(systems, source, args.batch)
    points = make_points(seconds, translations, references, subwords)
    record = {"batch": args.batch, "sentences": len(source), "points": points, **describe_run()}
    table = make_table(points)
    for name, text in (("frontier.json", json.dumps(record, indent=1) + "\n"), ("frontier.md", table)):
        with open_atomically(args.output / name) as file:
            file.write(text.encode())
    draw(points, args.output / "frontier.svg")
    sys.stdout.write(table)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"frontier: error: {error}", file=sys.stderr)
        sys.exit(2)
