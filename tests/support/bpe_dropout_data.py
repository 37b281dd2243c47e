"""Real sentences of the quickstart as training text, BPE codes, and binarised data that belong together."""

import gzip
import io
import re
from pathlib import Path

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from support.fairseq_commands import run
from support.helpers import REPOSITORY

BUNDLE = REPOSITORY / "examples" / "quickstart" / "data" / "deu-eng.valid.tsv.gz"
LANGS = ("de", "en")


def read_pairs() -> list[tuple[str, str]]:
    """500 sentence pairs, in words."""
    with gzip.open(BUNDLE, "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in file]
    return [tuple(" ".join(re.findall(r"\w+|[^\w\s]", text)) for text in pair) for pair in pairs]


def learn_codes(lines: list[str], merges: int) -> str:
    """Content of a codes file of subword-nmt."""
    codes = io.StringIO()
    learn_bpe(lines, codes, merges)
    return codes.getvalue()


def make_text_and_data(folder: Path, sizes: dict[str, int], merges: int = 300) -> Path:
    """Writes tokenised text, segments it as ``subword-nmt apply-bpe`` does, and binarises that.

    Args:
        folder: where to write.
        sizes: number of sentences of "train", "valid" and "test".
        merges: number of joint BPE merges.

    Returns:
        The folder of the binarised data; the training text ``train.tok.*`` and ``bpe.codes`` are in it, too.
    """
    data = folder / "bin"
    data.mkdir(parents=True)
    pairs = iter(read_pairs())
    splits = {split: [next(pairs) for _ in range(size)] for split, size in sizes.items()}
    codes = learn_codes([text for pair in splits["train"] for text in pair], merges)
    (data / "bpe.codes").write_text(codes, encoding="utf-8")
    bpe = BPE(io.StringIO(codes))
    for split, chosen in splits.items():
        for column, lang in enumerate(LANGS):
            lines = [pair[column] + "\n" for pair in chosen]
            (folder / f"{split}.{lang}").write_text("".join(map(bpe.process_line, lines)), encoding="utf-8")
            if split == "train":
                (data / f"train.tok.{lang}").write_text("".join(lines), encoding="utf-8")
    prefixes = [f"--{split}pref={folder / split}" for split in sizes]
    run("preprocess", *prefixes, "-s", "de", "-t", "en", "--destdir", data, "--workers", 1)
    return data
