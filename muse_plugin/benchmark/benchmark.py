"""``muse-plugin benchmark``: measures speed and memory, prints tables, writes JSON, and turns JSON into BENCHMARKS.md.

Each kind of benchmark is a module with ``cases``, which yields a ``Case`` each; ``measurement.py`` measures them,
``records.py`` is the form in which results are stored, ``tables.py`` the one in which they are shown.
"""

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence

import torch
from tqdm import tqdm

from muse_plugin.benchmark import report
from muse_plugin.benchmark.measurement import Measurement, measure
from muse_plugin.benchmark.records import Record, write_record
from muse_plugin.benchmark.tables import RATED, format_table
from muse_plugin.results.run_record import describe_run

# The module of each kind.
KINDS = {
    "train": "training_speed",
    "generate": "generation_speed",
    "conv": "conv_speed",
    "attention": "attention_speed",
    "loss": "loss_speed",
    "sentence": "sentence_speed",
    "batches": "batch_speed",
}


def run(args: argparse.Namespace) -> int:
    """Runs the kind of benchmark that was asked for.

    Raises:
        ValueError: if a flag or a file does not fit.
    """
    if args.kind == "report":
        return report.run(args)
    args.device = _find_device(args.device)
    if args.json is not None and not args.json.resolve().parent.is_dir():
        raise ValueError(f"--json must be in a folder that exists, but got {args.json}; make the folder first.")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    settings = {key: value for key, value in vars(args).items() if key not in _NO_SETTINGS}
    settings["device"] = torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else "cpu"
    args.dtype = getattr(torch, args.dtype)
    measurements: list[Measurement] = []
    module = importlib.import_module(f"muse_plugin.benchmark.{KINDS[args.kind]}")
    for case in tqdm(module.cases(args), desc=args.kind, unit="case", disable=None):
        measurement = measure(case, args)
        is_new = not measurements or measurements[-1].columns != measurement.columns
        tqdm.write(format_table([measurement], is_new, args.kind in RATED), file=sys.stdout)
        sys.stdout.flush()
        measurements.append(measurement)
    if args.json is not None:
        write_record(args.json, Record(args.kind, _describe_command(sys.argv), settings, describe_run(), measurements))
    return 0


_NO_SETTINGS = ("command", "traceback", "json", "kind", "threads")


def _find_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device must be cpu, cuda or cuda:N, but got {name}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device must be one that PyTorch can use, but got {name} and there is no GPU; use cpu.")
    return device


def _describe_command(words: Sequence[str]) -> str:
    """The command as a user would type it, without the folder of the program and the place of the JSON."""
    kept = [word for i, word in enumerate(words[1:], 1) if word != "--json" and words[i - 1] != "--json"]
    return shlex.join(["muse-plugin", *(word for word in kept if not word.startswith("--json="))])
