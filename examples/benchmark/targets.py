"""Adds to a report of benchmarks what this project sets out to reach, and whether the records show it.

Run by run.sh: ``python targets.py results/*.json --report BENCHMARKS.md``.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table

from muse_plugin.benchmark import conv_speed, sentence_speed, systems, window_speed
from muse_plugin.benchmark.measurement import Measurement
from muse_plugin.benchmark.records import Record, read_record
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin_command.flags.benchmark import SCALES

_MUSE_BASE = "MUSE base (12+12 layers, 384/768, kernels 3+15)"


@dataclass(frozen=True)
class Target:
    """One line of the table.

    Attributes:
        what: is measured.
        against: what.
        kind: of benchmark.
        name: the contestant.
        baseline: that it is compared with.
        least: the ratio baseline / contestant to reach.
        case: what the case of a measurement must hold.
        settings: what the settings of a record must hold.
        unit: of the measurement.
        pick: which of several ratios counts.
        inverted: the table shows contestant / baseline, as for "at most 1.1 times its time".
        gpu_only: nothing is to be reached on a CPU.
    """

    what: str
    against: str
    kind: str
    name: str
    baseline: str
    least: float
    case: tuple[tuple[str, Any], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    unit: str = "seconds"
    pick: Callable[[list[float]], float] = min
    inverted: bool = False
    gpu_only: bool = False

    def find(self, records: Sequence[Record], on_cpu: bool) -> list[float]:
        """The ratios of all measurements that belong to this target, on CPUs or on GPUs."""
        return [measurement.ratio(self.name, self.baseline).median for measurement in self._select(records, on_cpu)]

    def _select(self, records: Sequence[Record], on_cpu: bool) -> Iterator[Measurement]:
        for record in records:
            if record.kind != self.kind or (record.settings["device"] == "cpu") != on_cpu:
                continue
            if any(record.settings.get(key) != value for key, value in self.settings):
                continue
            for measurement in record.measurements:
                # Before there were several sizes of the beam, a record had it in its settings.
                known = {**record.settings, **measurement.case}
                fits = all(known.get(key) == value for key, value in self.case) and measurement.unit == self.unit
                if fits and all(measurement.values.get(name) for name in (self.name, self.baseline)):
                    yield measurement

    def format_ratio(self, ratio: float) -> str:
        """As the table shows it."""
        return f"{1 / ratio:.2f}x" if self.inverted else f"{ratio:.2f}x"

    def format_goal(self) -> str:
        """As the table shows it."""
        return f"<= {self.format_ratio(self.least)}" if self.inverted else f">= {self.format_ratio(self.least)}"


def _decoding(what: str, against: str, setting: str, name: str, baseline: str, sentences: int, least: float) -> Target:
    case = (("setting", setting), ("beam", 5), ("sentences", sentences), ("length", 25))
    return Target(what, against, "generate", name, baseline, least, case)


def _against_ctranslate2(what: str, setting: str, name: str, **more: Any) -> Target:
    baseline = systems.CTRANSLATE2_INT8 if name.endswith("int8") else systems.CTRANSLATE2
    case = (("setting", setting), ("length", 25), *more.items())
    return Target(what, "CTranslate2's Transformer, equal parameters", "generate", name, baseline, 1.0, case)


def _float16_decoding(sentences: int, least: float) -> Target:
    what = f"float16 and CUDA graphs: decoding of MUSE-simple, 6+6 layers, 512/1024, batch {sentences}"
    case = (("setting", "six_layers"), ("sentences", sentences), ("length", 25))
    half = (("dtype", "float16"),)
    return Target(what, _RIVAL, "generate", systems.SIMPLE, systems.TRANSFORMER, least, case, half, gpu_only=True)


def _training(what: str, against: str, baseline: str, least: float, length: int | None = None, **more: Any) -> Target:
    case = (("setting", "base"), *((("length", length),) if length else ()))
    return Target(f"MUSE base: {what}", against, "train", systems.MUSE, baseline, least, case, **more)


def _conv(what: str, against: str, baseline: str, least: float, **more: Any) -> Target:
    return Target(what, against, "conv", conv_speed.OURS, baseline, least, **more)


def _windows(length: int, least: float, paper: str = "") -> Target:
    what = f"encoder layers of windows {SCALES[0]}, {length} tokens, forward{paper}"
    case = (("scales", SCALES[0]), ("length", length))
    return Target(what, "fairseq Transformer layers", "attention", window_speed.OURS, window_speed.FAIRSEQ, least, case)


def _sentence(length: int, least: float, paper: str) -> Target:
    what = f"multi_scale_transformer from ids to scores, {length} words{paper}"
    ours, fairseqs = sentence_speed.MULTI_SCALE, sentence_speed.FAIRSEQ
    return Target(what, "fairseq's encoder", "sentence", ours, fairseqs, least, (("length", length),))


_RIVAL = "fairseq Transformer, equal parameters"
_AS_DEEP = "fairseq Transformer, equal parameters and depth"
_CONV_RIVAL = "fairseq dynamic-conv model, equal parameters"
_PYTHON_CONV = "fairseq's Python dynamic convolution"
_UNFUSED = "its own unfused form with fairseq's loss"
_SIX = "six_layers", systems.SIMPLE, systems.TRANSFORMER
_INT8 = "six_layers", systems.SIMPLE_INT8, systems.TRANSFORMER
_BASE = "base", systems.MUSE, systems.DYNAMIC_CONV
_BY_ONNX = "by onnxruntime"
# Average lengths of MR, MTL-16 and IMDB: how much faster than a Transformer, and Figure 4 of arXiv:1912.00544.
_PAPER_LENGTHS = ((22, 2.0, " (paper: 1.8x)"), (109, 2.5, " (paper: 6.5x)"), (201, 3.0, " (paper: 10x)"))
_LENGTHS = (25, 100)
TARGETS = (
    _decoding("MUSE-simple, 6+6 layers, 512/1024: decoding, batch 1 (paper: 1.31x)", _RIVAL, *_SIX, 1, 1.6),
    _decoding("the same, batch 32", _RIVAL, *_SIX, 32, 1.6),
    _decoding("the same, int8 weights, batch 1", _RIVAL, *_INT8, 1, 2.5),
    _decoding("the same, int8 weights, batch 32", _RIVAL, *_INT8, 32, 2.5),
    _decoding(f"{_MUSE_BASE}: decoding, batch 1", _CONV_RIVAL, *_BASE, 1, 2.0),
    _decoding("the same, batch 32", _CONV_RIVAL, *_BASE, 32, 2.0),
    _decoding(f"MUSE-simple {_BY_ONNX}, batch 32", _RIVAL, "six_layers", systems.SIMPLE_ONNX, _SIX[2], 32, 1.6),
    _decoding("the same, int8 weights", _RIVAL, "six_layers", systems.SIMPLE_ONNX_INT8, _SIX[2], 32, 3.0),
    _decoding(f"MUSE base {_BY_ONNX}, batch 1", _CONV_RIVAL, "base", systems.MUSE_ONNX, _BASE[2], 1, 2.0),
    _decoding("the same, batch 32", _CONV_RIVAL, "base", systems.MUSE_ONNX, _BASE[2], 32, 1.5),
    _against_ctranslate2(f"every batch and beam: MUSE-simple {_BY_ONNX}", "six_layers", systems.SIMPLE_ONNX),
    _against_ctranslate2("every batch and beam: the same, int8 weights", "six_layers", systems.SIMPLE_ONNX_INT8),
    _against_ctranslate2(f"every batch and beam: MUSE base {_BY_ONNX}", "base", systems.MUSE_ONNX),
    _against_ctranslate2("every beam: the same, int8 weights, batch 32", "base", systems.MUSE_ONNX_INT8, sentences=32),
    *(_training(f"training step, sentences of {n} tokens", _UNFUSED, systems.MUSE_UNFUSED, 1.5, n) for n in _LENGTHS),
    *(
        _training(
            f"time of a training step, sentences of {n} tokens",
            _AS_DEEP,
            systems.TRANSFORMER,
            1 / 1.1,
            n,
            inverted=True,
        )
        for n in _LENGTHS
    ),
    _conv("dynamic convolution, forward and backward: at every size", _PYTHON_CONV, conv_speed.FAIRSEQ, 3.0),
    _conv("the same: at its best", _PYTHON_CONV, conv_speed.FAIRSEQ, 8.0, pick=max),
    _training(
        "peak memory of a training step, vocabulary 32,000",
        "fairseq Transformer and loss",
        systems.TRANSFORMER,
        1 / 0.6,
        settings=(("vocabulary", 32_000),),
        unit="bytes",
        inverted=True,
    ),
    *(_windows(*row) for row in (*_PAPER_LENGTHS, (400, 4.0), (800, 6.0))),
    *(_sentence(*row) for row in _PAPER_LENGTHS),
    _float16_decoding(1, 3.4),
    _float16_decoding(32, 6.0),
    _conv(
        "time of the dynamic convolution, forward and backward, at every size",
        "one copy of its inputs and outputs",
        conv_speed.FLOOR,
        1 / 1.5,
        inverted=True,
        gpu_only=True,
    ),
    _training(
        "training step of 4,000 tokens", _AS_DEEP, systems.TRANSFORMER, 1.5, settings=(("tokens", 4000),), gpu_only=True
    ),
)


def format_targets(records: Sequence[Record]) -> str:
    """Formats the table of targets: what was measured on CPUs and on GPUs, or "not measured".

    Args:
        records: of any kinds and machines.

    Returns:
        A Markdown table without the last line break.
    """
    rows = []
    for target in TARGETS:
        cells = [_format_result(target, target.find(records, on_cpu)) for on_cpu in (True, False)]
        if target.gpu_only:
            cells[0] = "-"
        rows.append([target.what, target.against, target.format_goal(), *cells])
    return markdown_table.make_table(["what", "against", "target", "CPU", "GPU"], rows, num_left=2)


def _format_result(target: Target, ratios: list[float]) -> str:
    if not ratios:
        return "not measured"
    ratio = target.pick(ratios)
    return target.format_ratio(ratio) + (" ✓" if ratio >= target.least else " (missed)")


def add_targets(report: str, records: Sequence[Record]) -> str:
    """Puts the table before the first section of a report."""
    head, section, rest = report.partition("\n## ")
    if not section:
        raise ValueError("a report of 'muse-plugin benchmark report' must have sections, but this text has none.")
    return f"{head}\n## Targets\n\n{format_targets(records)}\n{section}{rest}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("records", type=Path, nargs="+", help="what muse-plugin benchmark KIND --json wrote")
    parser.add_argument("--report", type=Path, required=True, help="what muse-plugin benchmark report wrote")
    args = parser.parse_args()
    try:
        text = add_targets(args.report.read_text(encoding="utf-8"), [read_record(path) for path in args.records])
    except (OSError, ValueError) as error:
        sys.exit(f"targets.py: error: {error}")
    with open_atomically(args.report) as file:
        file.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
