"""Makes the bundled German-English sentences from the Tatoeba collection of manythings.org.

Run ``python select_sentences.py --input deu.txt.gz``. The result depends on the input and the options only: no random
generator, no hash of Python, no order of a set takes part. ATTRIBUTION.txt says where the input comes from.

How sentences are chosen: pairs of everyday sentences (3 to 8 English words, every word common in the collection),
each pair once. How they are split: pairs that share a sentence on either side, up to letter case and punctuation,
form one family; whole families go to test, validation or training. So no test sentence, German or English, is in the
training part. Test and validation take one pair of a family, so each German sentence there occurs once.
"""

import argparse
import gzip
import hashlib
import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path

SPLITS = ("train", "valid", "test")


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, lower-cased and without punctuation."""
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)*", unicodedata.normalize("NFKC", sentence).casefold())


def key_of(sentence: str) -> str:
    """What two sentences have in common that differ in case, punctuation or spacing only."""
    return " ".join(words_of(sentence)).replace("’", "'")


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Reads (German, English) pairs from a file of English TAB German lines, gzipped if its name ends with .gz."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8").split("\n")
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        columns = line.rstrip("\r").split("\t")
        if len(columns) < 2:
            raise ValueError(
                f"each line must be English TAB German, but line {number} of {path} is {line[:60]!r}; give deu.txt.gz "
                "of the manythings.org collection."
            )
        pairs.append((columns[1], columns[0]))
    return pairs


def choose_everyday(pairs: list[tuple[str, str]], min_count: int, max_words: int) -> list[tuple[str, str]]:
    """Keeps pairs of 3 to ``max_words`` English words (German: 2 to that plus 2) made of common words only, each once.

    A word is common if at least ``min_count`` pairs of the collection hold it; for German, which inflects more, a
    third of that is enough.
    """
    words = [(words_of(german), words_of(english)) for german, english in pairs]
    german_counts = Counter(word for german, _ in words for word in set(german))
    english_counts = Counter(word for _, english in words for word in set(english))
    chosen, seen = [], set()
    for pair, (german, english) in zip(pairs, words, strict=True):
        if not (3 <= len(english) <= max_words and 2 <= len(german) <= max_words + 2):
            continue
        if any(english_counts[word] < min_count for word in english):
            continue
        if any(3 * german_counts[word] < min_count for word in german):
            continue
        key = (key_of(pair[0]), key_of(pair[1]))
        if key not in seen:
            seen.add(key)
            chosen.append(pair)
    return chosen


def group_families(pairs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Groups pairs that are connected through equal German or equal English sentences (see ``key_of``)."""
    parent: dict[str, str] = {}

    def find(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for german, english in pairs:
        parent[find("de " + key_of(german))] = find("en " + key_of(english))
    families: dict[str, list[tuple[str, str]]] = {}
    for german, english in pairs:
        families.setdefault(find("en " + key_of(english)), []).append((german, english))
    return list(families.values())


def _rank(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()


def split_families(
    families: list[list[tuple[str, str]]], seed: int, num_test: int, num_valid: int, num_train: int
) -> dict[str, list[tuple[str, str]]]:
    """Deals families out in a shuffled order: one pair each to test, then to validation, whole ones to training."""
    ordered = []
    for family in families:
        pairs = sorted(family, key=lambda pair: _rank(seed, "\t".join(pair)))
        ordered.append((_rank(seed, "\t".join(min(family))), pairs))
    ordered.sort()
    if len(ordered) < num_test + num_valid + 1:
        raise ValueError(
            f"the split needs more than {num_test + num_valid} families of sentences, but got {len(ordered)}; lower "
            "--min-count, --test or --valid."
        )
    split: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for position, (_, pairs) in enumerate(ordered):
        if position < num_test:
            split["test"].append(pairs[0])
        elif position < num_test + num_valid:
            split["valid"].append(pairs[0])
        elif len(split["train"]) + len(pairs) <= num_train:
            split["train"].extend(pairs)
    return {name: sorted(pairs, key=lambda pair: (pair[1], pair[0])) for name, pairs in split.items()}


def as_text(pairs: list[tuple[str, str]]) -> bytes:
    """German TAB English lines, the content of a bundled file."""
    return "".join(f"{german}\t{english}\n" for german, english in pairs).encode("utf-8")


def select(path: Path, seed: int, min_count: int, max_words: int, sizes: dict[str, int]) -> dict[str, bytes]:
    """The uncompressed content of each bundled file."""
    chosen = choose_everyday(read_pairs(path), min_count, max_words)
    split = split_families(group_families(chosen), seed, sizes["test"], sizes["valid"], sizes["train"])
    return {name: as_text(split[name]) for name in SPLITS}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", type=Path, required=True, help="deu.txt.gz: English TAB German, one pair a line")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data", help="folder of the bundle")
    parser.add_argument("--seed", type=int, default=1, help="another number gives another split")
    parser.add_argument("--min-count", type=int, default=50, help="pairs that must hold a word for it to be common")
    parser.add_argument("--max-words", type=int, default=8, help="longest English sentence in words")
    parser.add_argument("--train", type=int, default=100000, help="most training pairs")
    parser.add_argument("--valid", type=int, default=500, help="validation pairs")
    parser.add_argument("--test", type=int, default=1000, help="test pairs")
    return parser


def main() -> int:
    args = build_parser().parse_args()
    sizes = {"train": args.train, "valid": args.valid, "test": args.test}
    bundle = select(args.input, args.seed, args.min_count, args.max_words, sizes)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, content in bundle.items():
        path = args.output / f"deu-eng.{name}.tsv.gz"
        path.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
        digest = hashlib.sha256(content).hexdigest()
        print(f"{path}: {content.count(10)} pairs, {path.stat().st_size} bytes, sha256 of the text {digest}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"select_sentences: error: {error}", file=sys.stderr)
        sys.exit(2)
