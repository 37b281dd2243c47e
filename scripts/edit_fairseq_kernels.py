"""Edits the sources of fairseq's CUDA kernels so that they compile with current CUDA and PyTorch.

    python scripts/edit_fairseq_kernels.py FAIRSEQ/fairseq/modules

Three things, in place; a file that is edited already stays as it is:

- headers in the order in which they need each other: a formatter sorted them, and ``cuda_utils.cu`` came before the
  header that defines SHFL_MASK and includes iostream;
- ``data_ptr<scalar_t>()`` for ``data<scalar_t>()``, which PyTorch is going to remove;
- ``x.is_cuda()`` for ``x.type().is_cuda()``, the same.

Needs the standard library only.
"""

import sys
from pathlib import Path
from typing import NamedTuple

LAYERS = ("dynamicconv", "lightconv")


class Edit(NamedTuple):
    """One replacement in one file.

    Attributes:
        file: below fairseq/modules.
        old: what is replaced wherever it occurs.
        new: what replaces it.
    """

    file: str
    old: str
    new: str


def list_edits(layer: str) -> list[Edit]:
    """The edits of one of ``LAYERS``."""
    utilities, header = '#include "../cuda_utils.cu"\n', f'#include "{layer}_cuda.cuh"\n'
    folder = f"{layer}_layer"
    return [
        Edit(f"{folder}/{layer}_cuda_kernel.cu", utilities + header, header + utilities),
        Edit(f"{folder}/cuda_function_gen.py", ".data<scalar_t>()", ".data_ptr<scalar_t>()"),
        Edit(f"{folder}/{layer}_cuda.cpp", "x.type().is_cuda()", "x.is_cuda()"),
    ]


def edit(modules: Path) -> list[str]:
    """Applies all edits, or none.

    Args:
        modules: the folder fairseq/modules of fairseq's sources.

    Returns:
        The files that were changed.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file has neither what is replaced nor what replaces it.
    """
    contents: dict[Path, str] = {}
    for file, old, new in (change for layer in LAYERS for change in list_edits(layer)):
        path = modules / file
        if not path.is_file():
            raise FileNotFoundError(
                f"the sources of fairseq must have {file} in fairseq/modules, but {modules} does not; take them from "
                "its git repository: its packages leave the kernels out."
            )
        text = path.read_text(encoding="utf-8")
        if old in text:
            contents[path] = text.replace(old, new)
        elif new not in text:
            raise ValueError(
                f"{path} must contain {old.strip()!r}, but it has neither this nor what replaces it; use the commit "
                "that scripts/build_lightconv.sh names."
            )
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
    return [str(path.relative_to(modules)) for path in contents]


def main() -> int:
    """The command; returns its exit code."""
    if len(sys.argv) != 2:
        print("usage: python scripts/edit_fairseq_kernels.py FAIRSEQ/fairseq/modules", file=sys.stderr)
        return 2
    try:
        changed = edit(Path(sys.argv[1]))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"edited {', '.join(changed) or 'nothing: all edits were there'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
