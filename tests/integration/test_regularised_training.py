"""Training with SimCut and with fairseq's R-Drop, from binarised data to translations, with fairseq's own commands."""

import pytest
import torch
from support.fairseq_commands import SMALL, generate, train

from muse_plugin.checkpoints.safe_loading import load_checkpoint

TEST_SENTENCES = 13  # of the fixture data
SIMCUT = ["--criterion", "label_smoothed_cross_entropy_with_simcut", "--label-smoothing", 0.1, "--simcut-p", 0.2]
RDROP = ["--criterion", "label_smoothed_cross_entropy_with_rdrop", "--label-smoothing", 0.1, "--rdrop-alpha", 5]


@pytest.mark.parametrize("criterion", [SIMCUT, RDROP], ids=["simcut", "rdrop"])
def test_stopping_and_resuming_equals_not_stopping_and_the_result_translates(criterion, data, tmp_path):
    settings = [*SMALL, *criterion, "--max-tokens", 60, "--no-epoch-checkpoints", "--dropout", 0.2]
    train(data, tmp_path / "whole", "muse_tiny", *settings, "--max-update", 4)
    train(data, tmp_path / "parts", "muse_tiny", *settings, "--max-update", 2)
    train(data, tmp_path / "parts", "muse_tiny", *settings, "--max-update", 4)
    whole, parts = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts"))
    assert parts["optimizer_history"][-1]["num_updates"] == 4
    assert parts["cfg"]["criterion"]["_name"] == criterion[1]
    for name, expected in whole["model"].items():
        assert torch.equal(parts["model"][name], expected), name
    assert sorted(generate(data, tmp_path / "parts" / "checkpoint_last.pt")) == list(range(TEST_SENTENCES))


@pytest.mark.parametrize(
    "settings",
    [
        ["muse_tiny", "--amp", "--share-all-embeddings"],
        ["muse_tiny", "--bf16", "--checkpoint-activations", "--update-freq", 2],
        ["muse_simple_tiny", "--ddp-backend", "legacy_ddp", "--report-accuracy", "--ignore-prefix-size", 1],
        ["transformer_tiny", "--encoder-layerdrop", 0.3, "--sentence-avg"],
        ["tiny_lstm"],
    ],
    ids=lambda settings: " ".join(map(str, settings[:2])),
)
def test_simcut_trains_with(settings, data, tmp_path):
    if settings[0] == "tiny_lstm":
        settings = ["lstm", "--encoder-embed-dim", 16, "--decoder-embed-dim", 16]
    else:
        settings = [*settings, *SMALL]
    arch, *flags = settings
    train(data, tmp_path, arch, *SIMCUT, *flags, "--max-update", 2)
    history = load_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"]
    assert history[-1]["num_updates"] == 2


@pytest.mark.parametrize("criterion", [SIMCUT, RDROP], ids=["simcut", "rdrop"])
def test_validation_reports_bleu_and_a_perplexity_that_compares(criterion, data, tmp_path, caplog):
    """With the learning rate at zero, the validation loss is that of training with the plain criterion."""
    flags = [*SMALL, "--max-update", 3, "--lr", 0, "--eval-bleu", "--log-format", "simple", "--dropout", 0.1]
    lines = []
    for folder, loss in (("regular", criterion), ("plain", ["--label-smoothing", 0.1])):
        named = loss if "--criterion" in loss else ["--criterion", "label_smoothed_cross_entropy", *loss]
        with caplog.at_level("INFO"):
            train(data, tmp_path / folder, "muse_tiny", *flags, *named)
        (line,) = [r.getMessage() for r in caplog.records if "valid on" in r.getMessage()]
        caplog.clear()
        lines.append({word.split()[0]: word.split()[-1] for word in line.split(" | ") if " " in word})
    assert "bleu" in lines[0]
    for name in ("loss", "nll_loss", "ppl", "bleu"):
        assert lines[0][name] == lines[1][name], name
