"""seqeval, which counts entities by the rules of conlleval, for those who train and those who evaluate."""

import importlib
from types import ModuleType


def import_seqeval() -> ModuleType:
    """Imports its measures of tag sequences.

    Raises:
        ImportError: if seqeval is not installed.
    """
    try:
        return importlib.import_module("seqeval.metrics.sequence_labeling")
    except ImportError:
        raise ImportError(
            "--entities needs the package seqeval, which is not installed; run 'pip install setuptools_scm' and 'pip "
            "install --no-build-isolation seqeval', or drop the flag."
        ) from None
