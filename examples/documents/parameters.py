"""Parameters against heads: ``python parameters.py``.

The setting of the paper's Table 5: states of width 512 (a GRU of 256 in either direction), the Transformer of one layer
and width 512. "attention" is what its heads cost: W, P, Q and the context of LAMA. The paper does not say which
vocabulary and classifier its totals are with, so that only their growth can be compared: 1,024 per head here.
"""

import argparse
import logging
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table

HEADS = (2, 4, 8, 16, 32, 64)
PUBLISHED = {"lama": (6.403, 6.405, 6.409, 6.418, 6.434, 6.468), "transformer": (18.465,) * 6}


def make_table(words: int, classes: int) -> str:
    """A Markdown table: a row per number of heads."""
    from networks import build, count

    titles = "heads, LAMA: attention, growth, with GRU, whole (M), published (M), published growth, "
    titles += "Transformer: layer, whole (M), published (M)"
    columns = titles.split(", ")
    rows: list[list[str]] = []
    first = None
    for i, heads in enumerate(HEADS):
        lama = build("lama", words, classes, encoder_hidden_size=256, pooling_heads=heads)
        transformer = build("sentence_transformer_documents", words, classes, encoder_attention_heads=heads)
        attention = count(lama.pooling)
        first = attention if first is None else first
        cells = [
            str(heads),
            f"{attention:,}",
            f"{attention - first:,}",
            f"{attention + count(lama.encoder):,}",
            f"{count(lama) / 1e6:.3f}",
            f"{PUBLISHED['lama'][i]:.3f}",
            f"{1e6 * (PUBLISHED['lama'][i] - PUBLISHED['lama'][0]):,.0f}",
            f"{count(transformer.encoder):,}",
            f"{count(transformer) / 1e6:.3f}",
            f"{PUBLISHED['transformer'][i]:.3f}",
        ]
        rows.append(cells)
    return markdown_table.make_table(columns, rows, num_left=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--words", type=int, default=50_000, metavar="V", help="size of the vocabulary (default: 50000)"
    )
    parser.add_argument("--classes", type=int, default=5, help="number of classes (default: 5)")
    args = parser.parse_args()
    if args.words < 5 or args.classes < 2:
        print(
            f"parameters: error: --words must be at least 5 and --classes at least 2, but got {args.words} and "
            f"{args.classes}.",
            file=sys.stderr,
        )
        return 2
    for name in ("fairseq", "muse_plugin"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(make_table(args.words, args.classes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
