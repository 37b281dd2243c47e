"""Writes the text pipeline of a recipe next to a model: what ``muse-plugin translate`` and ``view`` read.

Called by recipe.sh: ``python save_pipeline.py --langs de en --subwords DATA/bpe.codes --output RUN/model --lower``. The
flags are those that ``corpus.py tokenize`` was given, and ``--split`` for text that was tokenised already.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional

from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import TextSettings
from muse_plugin.text.tokenizer import Tokenizer


def make_pipeline(args: argparse.Namespace) -> TextPipeline:
    """The pipeline of the flags.

    Raises:
        OSError: if a file of subwords cannot be read.
        ValueError: if it is no such file.
    """
    files = [args.subwords[0], args.subwords[-1]] if args.subwords else [None, None]
    sides = []
    for lang, file in zip(args.langs, files, strict=True):
        settings = TextSettings(
            lang,
            normalize=args.normalize,
            tokenizer="none" if args.split else "moses",
            aggressive_hyphens=args.aggressive,
            lower_case=args.lower,
            subwords=name_subwords(file),
        )
        sides.append(Tokenizer(settings) if file is None else Tokenizer(settings, file.read_bytes(), str(file)))
    return TextPipeline(*sides)


def name_subwords(file: Optional[Path]) -> str:
    """What a file of subwords is of."""
    if file is None:
        return "none"
    return "sentencepiece" if file.suffix == ".model" else "subword-nmt"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--langs", nargs=2, required=True, metavar="LANG", help="source and target")
    parser.add_argument(
        "--subwords",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="codes of subword-nmt or a .model of SentencePiece; one for both, or one for each; words if not given",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder, made if missing")
    parser.add_argument("--normalize", action="store_true", help="as for corpus.py tokenize")
    parser.add_argument("--aggressive", action="store_true", help="as for corpus.py tokenize")
    parser.add_argument("--lower", action="store_true", help="as for corpus.py tokenize")
    parser.add_argument("--split", action="store_true", help="the text is tokenised already")
    return parser


def main() -> int:
    args = build_parser().parse_args()
    try:
        make_pipeline(args).save(args.output)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
