"""``muse-plugin benchmark``: measures speed and memory, prints tables, writes JSON, and turns JSON into BENCHMARKS.md.

Each kind of benchmark is a module with ``DESCRIPTION``, ``add_arguments`` and ``cases``, which yields a ``Case`` each;
``measurement.py`` measures them, ``records.py`` is the form in which results are stored, ``tables.py`` the one in which
they are shown.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from tqdm import tqdm

from muse_plugin.benchmark import (
    attention_speed,
    conv_speed,
    generation_speed,
    loss_speed,
    report,
    sentence_speed,
    training_speed,
)
from muse_plugin.benchmark.measurement import Measurement, measure
from muse_plugin.benchmark.records import Record, write_record
from muse_plugin.benchmark.tables import format_table
from muse_plugin.results.run_record import describe_run

KINDS: dict[str, ModuleType] = {
    "train": training_speed,
    "generate": generation_speed,
    "conv": conv_speed,
    "attention": attention_speed,
    "loss": loss_speed,
    "sentence": sentence_speed,
}
_DTYPES = ("float32", "float16", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the kinds of benchmark and their flags."""
    parser.description = (
        "Measure speed and memory on this machine. Contestants run in turn in one process, so that a busy moment slows "
        "all of them; numbers are medians, with the range of the middle half of the rounds."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    for name, module in KINDS.items():
        summary = (module.__doc__ or "").splitlines()[0].split(": ", 1)[1]
        own = kinds.add_parser(name, help=summary, description=module.DESCRIPTION)
        module.add_arguments(own)
        _add_common_arguments(own)
    own = kinds.add_parser("report", help="write BENCHMARKS.md from the JSON of the other kinds")
    own.description = report.DESCRIPTION
    report.add_arguments(own)


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=_parse_count, default=7, help="measured runs each (default: %(default)s)")
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=120.0,
        help="no further round of a case begins after this time; one always runs (default: %(default)s)",
    )
    parser.add_argument("--threads", type=_parse_count, help="of PyTorch on the CPU (default: what PyTorch chooses)")
    parser.add_argument("--device", type=_parse_device, default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", choices=_DTYPES, help="of weights (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and words (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number, and the machine, here")


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {text}")
    return count


def _parse_device(text: str) -> torch.device:
    try:
        device = torch.device(text)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:N, but got {text}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"must be a device that PyTorch can use, but got {text} and there is no GPU")
    return device


def run(args: argparse.Namespace) -> int:
    """Runs the kind of benchmark that was asked for.

    Args:
        args: the parsed flags.

    Returns:
        The exit code.

    Raises:
        ValueError: if a flag or a file does not fit.
    """
    if args.kind == "report":
        return report.run(args)
    module = KINDS[args.kind]
    if args.json is not None and not args.json.resolve().parent.is_dir():
        raise ValueError(f"--json must lie in a folder that exists, but got {args.json}; make the folder first.")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    settings = {key: value for key, value in vars(args).items() if key not in _NO_SETTINGS}
    settings["device"] = _name_device(args.device)
    args.dtype = getattr(torch, args.dtype)
    measurements: list[Measurement] = []
    for case in tqdm(module.cases(args), desc=args.kind, unit="case", disable=None):
        measurement = measure(case, args)
        is_new = not measurements or measurements[-1].columns != measurement.columns
        tqdm.write(format_table([measurement], has_header=is_new), file=sys.stdout)
        sys.stdout.flush()
        measurements.append(measurement)
    if args.json is not None:
        write_record(args.json, Record(args.kind, _describe_command(sys.argv), settings, describe_run(), measurements))
    return 0


_NO_SETTINGS = ("command", "traceback", "json", "kind", "threads")


def _name_device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _describe_command(words: Sequence[str]) -> str:
    """The command as a user would type it, without the folder of the program and the place of the JSON."""
    kept = [word for i, word in enumerate(words[1:], 1) if word != "--json" and words[i - 1] != "--json"]
    return shlex.join(["muse-plugin", *(word for word in kept if not word.startswith("--json="))])
