"""Unpacks the bundled sentences, learns a joint BPE on the training part and writes tokenised text for fairseq.

Run by run.sh: ``python prepare_data.py --bundle data --output RUN_DIR/text --pipeline RUN_DIR/model``. The output
folder holds ``train.de``, ``train.en`` and so on, and the same sentences untouched as ``train.raw.de`` and so on; the
pipeline folder holds ``text_pipeline.json`` and ``bpe.codes``. With SentencePiece, which reads text that is not
tokenised, it holds ``sentencepiece.model``, and the output folder the vocabulary for fairseq, ``pieces.txt``.
"""

import argparse
import gzip
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from muse_plugin.preparation.parallel_map import map_in_order
from muse_plugin.text.sentence_pieces import DICTIONARY_NAME, SentencePieces
from muse_plugin.text.text_pipeline import LEARNABLE, TextPipeline

SPLITS = ("train", "valid", "test")


def read_bundle(folder: Path, split: str) -> list[tuple[str, str]]:
    """The (German, English) pairs of one split.

    Raises:
        FileNotFoundError: if the bundled file is missing.
        ValueError: if a line is not German TAB English.
    """
    path = folder / f"deu-eng.{split}.tsv.gz"
    if not path.is_file():
        raise FileNotFoundError(
            f"the bundled sentences {path} do not exist; check out the file again or make it with select_sentences.py."
        )
    pairs = []
    for number, line in enumerate(gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[:-1], start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise ValueError(f"{path} must hold German TAB English, but line {number} has {len(columns)} columns.")
        pairs.append((columns[0], columns[1]))
    return pairs


def load_encoder(folder: Path) -> Callable[[tuple[str, str]], tuple[str, str]]:
    pipeline = TextPipeline.load(folder)
    return lambda pair: (pipeline.encode_source(pair[0]), pipeline.encode_target(pair[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bundle", type=Path, required=True, help="folder of deu-eng.*.tsv.gz")
    parser.add_argument("--output", type=Path, required=True, help="folder for tokenised text, made if missing")
    parser.add_argument("--pipeline", type=Path, required=True, help="folder for text_pipeline.json and the subwords")
    parser.add_argument("--merges", type=int, default=4000, help="BPE merges or pieces to learn")
    parser.add_argument("--subwords", choices=LEARNABLE[1:], default="bpe", help="how words are cut")
    parser.add_argument(
        "--learn-on", type=int, default=20000, help="learn them on about so many training pairs, evenly spaced"
    )
    parser.add_argument("--limit", type=int, help="use only so many pairs of each split, evenly spaced (for trials)")
    parser.add_argument("--workers", type=int, default=2, help="processes that tokenise")
    args = parser.parse_args()

    splits = {split: read_bundle(args.bundle, split) for split in SPLITS}
    if args.limit:
        splits = {name: pairs[:: max(1, len(pairs) // args.limit)][: args.limit] for name, pairs in splits.items()}
    train = splits["train"]
    train = train[:: max(1, len(train) // args.learn_on)]
    texts = ((de for de, _ in train), (en for _, en in train))
    tokenizer = "moses" if args.subwords == "bpe" else "none"
    pipeline = TextPipeline.learn("de", "en", *texts, args.merges, subwords=args.subwords, tokenizer=tokenizer)
    pipeline.save(args.pipeline)

    args.output.mkdir(parents=True, exist_ok=True)
    if args.subwords != "bpe":
        SentencePieces(pipeline.source.content).write_dictionary(args.output / DICTIONARY_NAME)
    every = [pair for pairs in splits.values() for pair in pairs]
    encoded = map_in_order(partial(load_encoder, args.pipeline), every, args.workers)
    for split, pairs in splits.items():
        for name, rows in ((split, list(islice(encoded, len(pairs)))), (f"{split}.raw", pairs)):
            for column, lang in enumerate(("de", "en")):
                text = "".join(row[column] + "\n" for row in rows)
                (args.output / f"{name}.{lang}").write_bytes(text.encode("utf-8"))
        print(f"{split}: {len(pairs)} pairs")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"prepare_data: error: {error}", file=sys.stderr)
        sys.exit(2)
