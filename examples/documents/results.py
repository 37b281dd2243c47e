"""Results of this recipe, as ``evaluate.sh`` leaves them: what ``compare.py`` and ``plot_heads.py`` read."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

# What tells the runs of one comparison apart; everything else must be the same in all of them.
VARYING = ("model", "heads", "disagreement", "warmup", "seed", "train_command", "test_set", "data_fold")


# The published setting; the warm-up is part of a row's name.
PUBLISHED = {
    **{"lr": "0.05", "batch": "32", "epochs": "50", "patience": "5", "max_words": "512", "freeze_vectors": "0"},
    "unknown_words": "drop",
    **{"data_source": "whole", "data_folds": "3", "data_word2vec": "100", "data_trial": "0", "flags": ""},
}


class Result(NamedTuple):
    """One evaluation.

    Attributes:
        name: of the model, with its penalty if it had one.
        label: the name, with the warm-up if it had one.
        heads: number of heads, as it was given; empty for the model's own.
        run: fold and seed.
        test_set: "valid" or "test".
        accuracy: in percent.
        dataset: what it was measured on.
        settings: that all results must share.
    """

    name: str
    label: str
    heads: str
    run: tuple[int, int]
    test_set: str
    accuracy: float
    dataset: str
    settings: dict[str, str]


def read_result(path: Path) -> Result:
    """Reads a file of ``muse-plugin score-labels``.

    Raises:
        ValueError: if it is none of this recipe.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        settings = {name: str(value) for name, value in record["settings"].items()}
        penalty, warmup = settings["disagreement"], settings["warmup"]
        name = settings["model"] + ("" if penalty == "none" else f"-{penalty}")
        return Result(
            name,
            name if warmup == "0" else f"{name}, WARMUP={warmup}",
            settings["heads"],
            (int(settings["data_fold"]), int(settings["seed"])),
            settings["test_set"],
            float(record["scores"]["accuracy"]["mean"]),
            settings["data_dataset"],
            {k: v for k, v in settings.items() if k not in VARYING and not k.startswith("seconds_")},
        )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must be written by examples/documents/evaluate.sh, but is not: {error!r}.") from error


def read_results(paths: list[Path]) -> list[Result]:
    """Reads several.

    Raises:
        ValueError: if they were made with settings that differ in more than they may.
    """
    results = [read_result(path) for path in paths]
    first = results[0].settings
    for path, result in zip(paths, results, strict=True):
        differing = [k for k in {**first, **result.settings} if first.get(k) != result.settings.get(k)]
        if differing:
            raise ValueError(
                f"all results must come from the same settings, but {paths[0]} and {path} differ in "
                f"{', '.join(sorted(differing))}; compare those of one command."
            )
    return results


def show(values: list[float]) -> str:
    """Mean, and deviation of several."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
