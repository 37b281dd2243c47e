"""Errors out of the logs of one run, as JSON: ``python collect.py --train-log F --test-log F --output results.json``.

The file has the form of ``muse-plugin score-labels --output``: scores, settings, versions, hardware.
"""

import argparse
import re
import sys
from pathlib import Path

from muse_plugin.evaluation.recorded_settings import collect_settings
from muse_plugin.files.json_objects import write_json
from muse_plugin.results.run_record import describe_run

ERROR = re.compile(r"valid on '(\w+)' subset .*?\| mse ([0-9.eE+-]+)")


def read_errors(path: Path, subset: str) -> list[float]:
    """The errors that a log states for a subset, in their order.

    Raises:
        ValueError: if there is none.
    """
    found = ERROR.findall(path.read_text(encoding="utf-8", errors="replace"))
    errors = [float(value) for name, value in found if name == subset]
    if not errors:
        raise ValueError(f"{path} must state the mse of the subset {subset}, but does not; do the step again.")
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train-log", type=Path, required=True)
    parser.add_argument("--test-log", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--record", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    try:
        scores = {
            "mse": read_errors(args.test_log, "test")[-1],
            "valid_mse": min(read_errors(args.train_log, "valid")),  # of the checkpoint that was tested
        }
        settings = collect_settings(args.record, None)
    except (OSError, ValueError) as error:
        print(f"collect: error: {error}", file=sys.stderr)
        return 2
    record = {
        "scores": {name: {"mean": value, "signature": "per number"} for name, value in scores.items()},
        "settings": settings,
        **describe_run(),
    }
    write_json(args.output, record, indent=2, ensure_ascii=False)
    print(f"{settings['model']}, K = {settings['terms']}, seed {settings['seed']}: mse {scores['mse']:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
