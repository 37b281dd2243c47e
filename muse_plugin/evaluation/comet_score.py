"""COMET, a learned score, where the package is installed; this package never depends on it."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

BATCH_SIZE = 16


def import_comet() -> ModuleType:
    """Imports the package, which takes a while.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        return importlib.import_module("comet")
    except ImportError as error:
        raise ImportError(
            f"--comet needs the package 'comet', never a dependency of this one, which cannot be imported ({error}); "
            "run 'pip install unbabel-comet', best in an environment of its own, or leave --comet out."
        ) from error


def compute_comet(
    model_name: str,
    sources: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    cpu: bool = False,
) -> list[float]:
    """Scores systems with a COMET model.

    Args:
        model_name: a checkpoint file, or a name to download, such as ``Unbabel/wmt22-comet-da``.
        sources: raw source sentences.
        systems: the raw hypotheses of each system.
        references: raw references.
        cpu: if false, a GPU is used when there is one.

    Returns:
        The score of each system times 100, so that it reads as the other scores do.

    Raises:
        ImportError: if COMET is not installed.
    """
    comet = import_comet()
    path = model_name if Path(model_name).is_file() else comet.download_model(model_name)
    model = comet.load_from_checkpoint(path)
    gpus = 1 if torch.cuda.is_available() and not cpu else 0
    scores = []
    for hypotheses in systems:
        triples = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in triples]
        scores.append(100 * float(model.predict(samples, batch_size=BATCH_SIZE, gpus=gpus).system_score))
    return scores
