"""Results of this recipe, as ``evaluate.sh`` leaves them: what ``compare.py`` and the programs that plot read."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import results_table

# What tells the runs of one comparison apart; everything else must be the same in all of them.
VARYING = (
    *("model", "heads", "disagreement", "optimizer", "lr", "warmup", "word_dropout", "hidden", "decay", "seed"),
    *("parameters", "train_command", "test_set", "data_fold"),
)
# Of each optimizer; others are part of a row's name.
USUAL = {"sgd": {"lr": "0.05", "warmup": "0"}, "adam": {"lr": "0.001", "warmup": "100"}}
REGULAR = {"word_dropout": "0", "hidden": "512", "decay": "0"}  # of all; others are part of a row's name
# The published setting of everything else.
PUBLISHED = {
    **{"batch": "32", "epochs": "50", "patience": "5", "max_words": "512", "freeze_vectors": "0"},
    "unknown_words": "drop",
    **{"data_source": "whole", "data_folds": "3", "data_word2vec": "100", "data_trial": "0", "flags": ""},
}


class Result(NamedTuple):
    """One evaluation.

    Attributes:
        path: the file that it is in.
        name: of the model, with its penalty if it had one.
        label: the name, with the optimizer and what else of ``VARYING`` is not as published.
        heads: number of heads, as it was given; empty for the model's own.
        run: fold and seed.
        test_set: "valid" or "test".
        accuracy: in percent.
        dataset: what it was measured on.
        parameters: of the model; None if they are not on record.
        settings: that all results must share.
        record: the whole file.
    """

    path: Path
    name: str
    label: str
    heads: str
    run: tuple[int, int]
    test_set: str
    accuracy: float
    dataset: str
    parameters: int | None
    settings: dict[str, str]
    record: dict[str, Any]


def parse_result(path: Path, record: dict[str, Any]) -> Result:
    """One evaluation out of the file ``path``."""
    settings = {name: str(value) for name, value in record["settings"].items()}
    penalty, optimizer = settings["disagreement"], settings.get("optimizer", "sgd")
    name = settings["model"] + ("" if penalty == "none" else f"-{penalty}")
    changes = {} if optimizer == "sgd" else {"optimizer": optimizer}
    changes |= {key: settings[key] for key, value in USUAL[optimizer].items() if settings[key] != value}
    changes |= {key: settings[key] for key, value in REGULAR.items() if settings.get(key, value) != value}
    return Result(
        path,
        name,
        ", ".join([name, *(f"{key.upper()}={value}" for key, value in changes.items())]),
        settings["heads"],
        (int(settings["data_fold"]), int(settings["seed"])),
        settings["test_set"],
        float(record["scores"]["accuracy"]["mean"]),
        settings["data_dataset"],
        int(settings["parameters"]) if "parameters" in settings else None,
        {k: v for k, v in settings.items() if k not in VARYING and not k.startswith("seconds_")},
        record,
    )


def read_results(paths: list[Path]) -> list[Result]:
    """Reads files of ``muse-plugin score-labels``, and ``.jsonl`` files of ``--keep``.

    Raises:
        ValueError: if one is none of this recipe, or they were made with settings that differ in more than they may.
    """
    results: list[Result] = []
    for path in paths:
        writer = "examples/documents/evaluate.sh"
        results += results_table.read_records(path, writer, lambda record, path=path: parse_result(path, record))
    first = results[0]
    for result in results:
        both = {**first.settings, **result.settings}
        differing = [k for k in both if first.settings.get(k) != result.settings.get(k)]
        if differing:
            raise ValueError(
                f"all results must come from the same settings, but {first.path} and {result.path} differ in "
                f"{', '.join(sorted(differing))}; compare those of one command."
            )
    return results
