"""Learns word vectors from the training texts of prepared data: ``python learn_vectors.py DATA/bin... --output FILE``.

Called by vectors.sh. Subword vectors (fastText, Bojanowski et al. 2017, arXiv:1607.04606; by gensim) are those of a
word's character n-grams, so words that only other splits have get one by their spelling; the texts of those splits are
read for nothing else. What all vectors have in common is taken off: their mean and first component (Mu and Viswanath
2018, arXiv:1702.01417). FILE is text, as ``--word-vectors`` reads it; FILE.json says what it was learned from, and if
that has not changed, nothing is learned again.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import torch

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.json_objects import write_json
from muse_plugin.preparation.corpus_formats import parse_format
from muse_plugin.preparation.labelled_sentences import SentenceReader
from muse_plugin.preparation.word2vec import iterate_pieces, train_word_vectors
from muse_plugin.pretrained.word_vectors import measure_likeness, warn_of_likeness, write_word_vectors
from muse_plugin.text.text_settings import load_text_settings
from muse_plugin.text.tokenizer import Tokenizer

DEVIATION = 0.3  # of the numbers, about that of GloVe
BUCKETS = 200_000  # of n-grams; gensim's 2,000,000 take 2.4 GB at width 300
OPTIONS = {"algorithm": "skip-gram", "negative": 10}  # CBOW learns less from so little text


def main(words: Optional[list[str]] = None) -> int:
    """Learns them, or says that it was done before."""
    parser = argparse.ArgumentParser(description="Learns word vectors from the training texts of prepared data.")
    add = parser.add_argument
    add("data", type=Path, nargs="+", help="folders that prepare-text made; the files that it read must still be there")
    add("--output", type=Path, required=True, help="the file of vectors")
    add("--kind", choices=("fasttext", "word2vec"), default="fasttext", help="with or without subwords")
    add("--dim", type=int, default=100, help="width (default: 100)")
    add("--epochs", type=int, default=10, help="passes over the text (default: 10)")
    add("--window", type=int, default=5, help="words to either side (default: 5)")
    add("--min-count", type=int, default=2, help="words seen less often are not learned from (default: 2)")
    add("--sample", type=float, default=1e-4, help="more frequent words are passed over at random (default: 0.0001)")
    add("--seed", type=int, default=1, help="of the first vectors and of what is sampled")
    args = parser.parse_args(words)
    try:
        learn(args)
    except (ImportError, OSError, ValueError) as error:
        print(f"learn_vectors.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def learn(args: argparse.Namespace) -> None:
    """The body of ``main``.

    Raises:
        ImportError: if gensim is missing.
        FileNotFoundError: if the files of the data are gone.
        ValueError: if no word is frequent enough.
    """
    texts = [words for folder in args.data for words in iterate_pieces(read_texts(folder, "train"))]
    wanted = dict.fromkeys(word for words in texts for word in words)
    for folder in args.data:
        for split in [name for name in load_text_settings(folder)[1].splits if name != "train"]:
            wanted.update(dict.fromkeys(word for words in read_texts(folder, split) for word in words))
    wanted.pop("<unk>", None)
    settings = {name: value for name, value in vars(args).items() if name not in ("data", "output")}
    digest = hashlib.sha256("\n".join([*map(" ".join, texts), "", *wanted]).encode(errors="surrogatepass")).hexdigest()
    record, stored = {**settings, "sha256": digest}, args.output.with_name(f"{args.output.name}.json")
    if args.output.is_file() and stored.is_file():
        earlier = json.loads(stored.read_text(encoding="utf-8"))
        if all(earlier.get(name) == value for name, value in record.items()):
            print(f"{args.output}: done before")
            warn_of_likeness(earlier["cosine"], str(args.output))
            return
    options = {**OPTIONS, **{name: settings[name] for name in ("epochs", "window", "min_count", "sample", "seed")}}
    model = train_word_vectors(lambda: texts, args.dim, options, buckets=BUCKETS if args.kind == "fasttext" else 0)
    known = [word for word in wanted if args.kind == "fasttext" or word in model.wv]
    table = torch.stack([torch.from_numpy(model.wv[word].copy()) for word in known])
    before = measure_likeness(table)
    table = centre(table)
    record["cosine"] = measure_likeness(table)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(args.output) as file:
        write_word_vectors(file, known, table)
    write_json(stored, record, indent=1)
    count = sum(map(len, texts))
    print(f"vectors of {len(known):,} of {len(wanted):,} words, learned from {count:,} words: {args.output}")
    print(f"mean cosine of two random words: {before:.3f} as learned, {record['cosine']:.3f} centred")
    warn_of_likeness(record["cosine"], str(args.output))


def read_texts(folder: Path, split: str) -> Iterator[list[str]]:
    """The words of each text of a split, before any of them became unknown."""
    text, record = load_text_settings(folder)
    given: Any = record.arguments
    files = {"train": given["train"], "valid": given["valid"]}
    files |= {f"test{i or ''}": file for i, file in enumerate(given["test"])}
    if not files.get(split):  # a part of the training file, which was read with it
        return
    path = Path(files[split])
    if not path.is_file():
        raise FileNotFoundError(
            f"the words of {folder} are learned from the file that it was made of, but {path} does not exist; prepare "
            "the data again, or start from the folder that you prepared them in."
        )
    reader = SentenceReader(
        parse_format(given["format"], given["header"], given["conllu"]), Tokenizer.load(text), given["numbers"],
        skip_empty=True,
    )  # fmt: skip
    for sentence in reader.read(path, f"--{split}"):
        yield from sentence.sides


def centre(table: torch.Tensor) -> torch.Tensor:
    """Takes off what vectors (rows, width) have in common: the mean and the first component; and scales them."""
    table = table - table.mean(dim=0)
    if min(table.shape) > 1:
        torch.manual_seed(1)
        _, _, directions = torch.pca_lowrank(table, q=1, center=False, niter=4)
        table = table - table @ directions @ directions.T
    return table * (DEVIATION / table.std().clamp_min(1e-8))


if __name__ == "__main__":
    sys.exit(main())
