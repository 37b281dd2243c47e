"""Learns SentencePiece on the training text of a recipe and cuts all its text into pieces.

Called by recipe.sh: ``python segment_pieces.py DATA --langs de en --splits train valid test --size 8000``.
Learns one model for both languages on ``DATA/text/train.*`` alone, and writes ``DATA/sentencepiece.model``, its
vocabulary as a dictionary of fairseq, ``DATA/pieces.txt``, and the text in pieces, ``DATA/bpe/SPLIT.LANG``. With
``--separate``, each language has a model, ``DATA/sentencepiece.source.model``, and a dictionary, of its own.
"""

import argparse
import sys
from itertools import chain
from pathlib import Path

from corpus import read_lines

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.text.sentence_pieces import (
    MODEL_NAME,
    MODEL_TYPES,
    SentencePieces,
    learn_pieces,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder with text/")
    parser.add_argument("--langs", nargs=2, required=True, metavar="LANG", help="source and target")
    parser.add_argument("--splits", nargs="+", required=True, metavar="SPLIT", help="what to cut, such as train")
    parser.add_argument("--size", type=int, required=True, help="pieces of the vocabulary")
    parser.add_argument("--separate", action="store_true", help="a model for each language")
    parser.add_argument("--type", choices=MODEL_TYPES, default="unigram", help="kind of model")
    args = parser.parse_args()
    text = args.data / "text"
    groups = {".source": args.langs[:1], ".target": args.langs[1:]} if args.separate else {"": args.langs}
    try:
        (args.data / "bpe").mkdir(exist_ok=True)
        for side, langs in groups.items():
            model = learn_pieces(chain(*(read_lines(text / f"train.{lang}") for lang in langs)), args.size, args.type)
            pieces = SentencePieces(model)
            with open_atomically(args.data / f"{Path(MODEL_NAME).stem}{side}.model") as file:
                file.write(model)
            pieces.write_dictionary(args.data / f"pieces{side}.txt")
            for name in (f"{split}.{lang}" for split in args.splits for lang in langs):
                with open_atomically(args.data / "bpe" / name) as file:
                    for line in read_lines(text / name):
                        file.write((" ".join(pieces.split(line.split())) + "\n").encode())
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
