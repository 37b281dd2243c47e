"""A folder of packages in which a program finds what it names and nothing else, neither torch nor fairseq."""

import importlib.metadata
import re
from pathlib import Path

RUNNER_NEEDS = ("numpy", "onnxruntime", "sacremoses", "subword-nmt", "sentencepiece")


def link_packages(folder: Path, names=RUNNER_NEEDS) -> Path:
    """Links distributions and what they require into a folder, for ``PYTHONPATH`` of ``python -S``."""
    left, seen = list(names), set()
    while left:
        name = re.split(r"[^A-Za-z0-9._-]", left.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        left += [text for text in found.requires or () if "extra ==" not in text]
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            source = Path(str(found.locate_file(top)))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)
    return folder
