"""Copies pictures in few colours, so that they stay small: ``python shrink.py --output DIR PICTURE...``.

A figure has few colours, and a palette of 256 keeps them; a picture that is still above the limit is made smaller in
steps. Pillow, which matplotlib brings, does the work.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from PIL import Image

LIMIT = 150_000  # bytes
_STEPS = (1.0, 0.85, 0.7, 0.55, 0.4)


def shrink(picture: Image.Image, limit: int = LIMIT) -> bytes:
    """A picture as a PNG of at most ``limit`` bytes.

    Raises:
        ValueError: if it stays larger at two fifths of its width.
    """
    flat = Image.new("RGB", picture.size, "white")
    flat.paste(picture, mask=picture.getchannel("A") if picture.mode == "RGBA" else None)
    for step in _STEPS:
        size = (max(1, round(flat.width * step)), max(1, round(flat.height * step)))
        smaller = flat if step == 1 else flat.resize(size, Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        smaller.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        if buffer.tell() <= limit:
            return buffer.getvalue()
    raise ValueError(
        f"a picture must fit into {limit} bytes, but one of {flat.width} x {flat.height} pixels takes {buffer.tell()} "
        f"at {_STEPS[-1]:.0%} of its width; draw less in it."
    )


def main(words: Optional[Sequence[str]] = None) -> int:
    """Reads the flags and writes the pictures; returns the exit code."""
    parser = argparse.ArgumentParser(description="Copies pictures in few colours, each of at most 150 kB.")
    parser.add_argument("pictures", type=Path, nargs="+", metavar="PICTURE")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to; made if missing")
    args = parser.parse_args(words)
    for path in args.pictures:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
            with Image.open(path) as picture:
                content = shrink(picture)
        except (OSError, ValueError) as error:
            print(f"shrink: error: {path}: {error}", file=sys.stderr)
            return 2
        target = args.output / path.name
        temporary = target.with_suffix(".tmp")
        temporary.write_bytes(content)
        os.replace(temporary, target)
        print(f"{target.name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
