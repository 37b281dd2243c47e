"""MUSE learns to reverse sentences: attention, positions, cross-attention and search work together."""

import re

import pytest
from support.fairseq_commands import generate, make_data, train

pytestmark = pytest.mark.slow
TEST_SENTENCES = 100


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    sizes = {"train": 4000, "valid": 50, "test": TEST_SENTENCES}
    return make_data(tmp_path_factory.mktemp("reverse"), sizes)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny"])
def test_reverses_unseen_sentences(arch, seed, data, tmp_path):
    sizes = [
        f"--{side}-{name}={value}"
        for side in ("encoder", "decoder")
        for name, value in (("embed-dim", 64), ("ffn-embed-dim", 128), ("layers", 2))
    ]
    train(
        data, tmp_path, arch, *sizes, "--share-all-embeddings", "--lr", 0.005, "--warmup-updates", 100,
        "--max-tokens", 800, "--max-update", 600, "--max-epoch", 100, "--no-epoch-checkpoints",
        "--disable-validation", "--seed", seed,
    )  # fmt: skip
    hypotheses = generate(data, tmp_path / "checkpoint_last.pt")
    expected = (data.parent / "test.en").read_text().splitlines()
    correct = sum(hypotheses[number] == line for number, line in enumerate(expected))
    assert correct >= 0.9 * TEST_SENTENCES, f"{correct} of {TEST_SENTENCES} sentences reversed"
    assert all(re.fullmatch(r"(w\d+ ?)+", text) for text in hypotheses.values())
