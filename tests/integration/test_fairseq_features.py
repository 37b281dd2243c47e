"""Features of fairseq's commands that a model has to support: from training to what is printed."""

import re
import shutil

import pytest
from support.fairseq_commands import SMALL, USER_DIR, generate, make_data, run, train

from muse_plugin.checkpoints.safe_loading import load_checkpoint

SENTENCES = {"train": 64, "valid": 8, "test": 40}


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """Sentences whose target is the source reversed, with the links between their words."""
    folder = tmp_path_factory.mktemp("aligned")
    data = make_data(folder, SENTENCES)
    shutil.rmtree(data)
    for split in SENTENCES:
        lengths = [len(line.split()) for line in (folder / f"{split}.de").read_text().splitlines()]
        links = [" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths]
        (folder / f"{split}.align").write_text("".join(f"{line}\n" for line in links))
    prefixes = [f"--{split}pref={folder / split}" for split in SENTENCES]
    run(
        "preprocess", *prefixes, "-s", "de", "-t", "en", "--destdir", data, "--joined-dictionary", "--workers", 1,
        "--align-suffix", "align",
    )  # fmt: skip
    return data


ALIGNED = [
    *("--criterion", "label_smoothed_cross_entropy_with_alignment", "--label-smoothing", 0.1),
    *("--load-alignments", "--alignment-lambda", 1, "--alignment-layer", 0, "--dropout", 0),
]


def count_right_links(data, checkpoint):
    """How many of the printed links join a word with its own copy, and how many there are."""
    printed = run(
        "generate", data, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--num-workers", 0, "--batch-size", 8,
        "--score-reference", "--print-alignment",
    )  # fmt: skip
    sources, targets, links = (
        dict(re.findall(rf"^{kind}-(\d+)\t(.*)$", printed, re.MULTILINE)) for kind in ("S", "T", "A")
    )
    assert len(links) == SENTENCES["test"]
    pairs = [
        (sources[number].split()[int(i)], targets[number].split()[int(j)])
        for number, line in links.items()
        for i, j in (link.split("-") for link in line.split())
    ]
    return sum(a == b for a, b in pairs), len(pairs)


def test_alignments_are_learnt_and_printed(aligned, tmp_path):
    settings = [*SMALL, "--max-epoch", 40, "--no-epoch-checkpoints", "--share-all-embeddings"]
    train(aligned, tmp_path, "muse_tiny", *settings, *ALIGNED)
    right, links = count_right_links(aligned, tmp_path / "checkpoint_last.pt")
    assert load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]["model"]["alignment_layer"] == 0
    assert right > 0.5 * links  # chance: a fifth


@pytest.fixture(scope="module")
def trained(aligned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(aligned, folder, "muse_tiny", *SMALL, "--max-epoch", 6, "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"


def test_retained_dropout_changes_every_hypothesis(aligned, trained):
    rates = dict.fromkeys(("branch_dropout", "attention_dropout", "weight_dropout", "input_dropout"), 0.9)
    settings = ["--model-overrides", str({**rates, "dropout": 0.0}), "--beam", 1, "--unkpen", 100, "--score-reference"]
    plain, noisy = (_scores(aligned, trained, *settings, *more) for more in ([], ["--retain-dropout"]))
    assert len(plain) == len(noisy) == SENTENCES["test"]
    assert not [number for number in plain if plain[number] == noisy[number]]


def _scores(data, checkpoint, *arguments):
    printed = run(
        "generate", data, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--num-workers", 0, *arguments
    )
    return dict(re.findall(r"^H-(\d+)\t(\S+)\t", printed, re.MULTILINE))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_one_side_alone_is_pruned(aligned, trained, side):
    overrides = str({f"{side}_layers_to_keep": "0"})
    assert len(generate(aligned, trained, "--model-overrides", overrides)) == SENTENCES["test"]


def test_a_model_that_denoised_learns_to_translate(aligned, tmp_path):
    texts, denoised, tuned = (tmp_path / name for name in ("texts", "denoised", "tuned"))
    words = aligned / "dict.de.txt"
    for language in ("de", "en"):
        parts = [f"--{part}pref={aligned.parent / part}.{language}" for part in ("train", "valid")]
        folder = texts / language
        run("preprocess", "--only-source", *parts, "--srcdict", words, "--destdir", folder, "--workers", 1)
    shutil.copy(words, texts / "dict.txt")
    languages = ["--langs", "de,en"]
    both = [*SMALL, *languages, "--share-all-embeddings", "--no-epoch-checkpoints"]
    masks = ["--mask", 0.3, "--mask-length", "span-poisson", "--replace-length", 1, "--permute-sentences", 0]
    blocks = ["--add-lang-token", "--sample-break-mode", "complete", "--tokens-per-sample", 40, "--max-epoch", 1]
    train(texts, denoised, "muse_tiny", *both, "--task", "multilingual_denoising", *masks, *blocks)

    task = ["--task", "translation_from_pretrained_bart", "--source-lang", "de", "--target-lang", "en"]
    start = ["--finetune-from-model", denoised / "checkpoint_last.pt", "--max-update", 1, "--lr", 0]
    train(aligned, tuned, "muse_tiny", *both, *task, *start)
    before, after = (load_checkpoint(folder / "checkpoint_last.pt")["model"] for folder in (denoised, tuned))
    added = ["<s>", "<pad>", "</s>", "<unk>", "[de]", "[en]", "<mask>"]
    assert len(before["encoder.embed_tokens.weight"]) == len(words.read_text().splitlines()) + len(added)
    assert before.keys() == after.keys()
    assert all(value.equal(after[name]) for name, value in before.items())

    checkpoint = tuned / "checkpoint_last.pt"
    printed = run("generate", aligned, "--user-dir", USER_DIR, "--path", checkpoint, "--cpu", *task, *languages)
    assert len(re.findall(r"^S-\d+\t.* \[de\]$", printed, re.MULTILINE)) == SENTENCES["test"]
    assert len(re.findall(r"^H-\d+\t[^\[]*$", printed, re.MULTILINE)) == SENTENCES["test"]


def test_one_model_of_two_directions(aligned, tmp_path):
    task = ["--task", "translation_multi_simple_epoch", "--lang-pairs", "de-en,en-de", "--langs", "de,en"]
    tokens = ["--encoder-langtok", "tgt", "--decoder-langtok"]
    train(aligned, tmp_path, "muse_tiny", *SMALL, *task, *tokens, "--share-all-embeddings", "--max-epoch", 1)
    for source, target in (("de", "en"), ("en", "de")):
        direction = ["--source-lang", source, "--target-lang", target]
        found = generate(aligned, tmp_path / "checkpoint_last.pt", *task, *tokens, *direction)
        assert len(found) == SENTENCES["test"]
