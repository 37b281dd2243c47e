"""The IWSLT14 German-English test set: 6,750 real sentences with BPE marks, entities and hyphens."""

import gzip
import random

import pytest
from support.helpers import REPOSITORY

FOLDER = REPOSITORY.parent / "shared" / "data" / "iwslt14-de-en"


@pytest.fixture(scope="module")
def test_set():
    if not FOLDER.is_dir():
        pytest.skip(f"needs the IWSLT14 test set in {FOLDER}")
    return {
        name: gzip.decompress((FOLDER / f"test.{name}.gz").read_bytes()).decode("utf-8").split("\n")[:-1]
        for name in ("bpe.de", "bpe.en", "en", "de")
    }


def disturb(line, generator):
    """Drops, repeats and swaps subword tokens."""
    tokens = [token for token in line.split() if generator.random() > 0.08]
    tokens = [token for token in tokens for _ in range(1 + (generator.random() < 0.03))]
    for i in range(len(tokens) - 1):
        if generator.random() < 0.08:
            tokens[i], tokens[i + 1] = tokens[i + 1], tokens[i]
    return " ".join(tokens)


def test_log_of_the_real_test_set(test_set, write_log, run_evaluate, slow_multi_bleu):
    generator = random.Random(14)
    hypotheses = [disturb(line, generator) for line in test_set["bpe.en"]]
    log = write_log("generate-test.txt", hypotheses, test_set["bpe.en"], test_set["bpe.de"])
    outcome = run_evaluate("--generation-log", log, "--lowercase", "--num-sentences", 6750)

    words = [(line + " ").replace("@@ ", "").rstrip() for line in hypotheses]
    line = slow_multi_bleu(words, test_set["en"])
    assert 40 < outcome.json["scores"]["tokenized_bleu"]["mean"] < 70
    assert f"\n{line}\n" in outcome.out
    assert "ref_len=131156" in line
    counts = [0] * 8
    for source in test_set["de"]:
        length = len(source.split())
        counts[next(i for i, bound in enumerate([15, 30, 45, 60, 75, 90, 105, 10**9]) if length <= bound)] += 1
    assert [bucket["num_sentences"] for bucket in outcome.json["length_buckets"]["buckets"]] == counts
