"""From binarised data to translations with fairseq's own commands, for every kind of model."""

import re

import pytest
import torch
from support.fairseq_commands import SMALL, USER_DIR, generate, run, train

from muse_plugin.checkpoints.averaging import average_checkpoints
from muse_plugin.checkpoints.safe_loading import load_checkpoint, save_atomically
from muse_plugin.ops import packed_linear

TEST_SENTENCES = 13  # of the fixture data


# Those that differ in more than sizes; all are built in their own sizes in test_every_architecture.py.
ARCHITECTURES = [
    *("muse", "muse_simple", "muse_multi_scale_tiny"),
    *("plain_transformer_tiny", "transformer_distance_tiny"),
    *("multi_scale_encoder_tiny", "distance_encoder_tiny"),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_trains_averages_and_generates(arch, data, tmp_path):
    scales = ["--encoder-attention-scales", "1,3,N/4,all"] if "multi_scale" in arch else []  # for four heads
    train(data, tmp_path, arch, *SMALL, *scales, "--max-epoch", 2)
    averaged = tmp_path / "averaged.pt"
    save_atomically(average_checkpoints([tmp_path / "checkpoint1.pt", tmp_path / "checkpoint2.pt"]), averaged)
    assert sorted(generate(data, averaged)) == list(range(TEST_SENTENCES))
    saved = load_checkpoint(averaged)
    assert saved["cfg"]["model"]["arch" if "arch" in saved["cfg"]["model"] else "_name"] == arch


def test_resuming_in_the_middle_of_an_epoch_equals_not_stopping(data, tmp_path):
    arch = "distance_encoder_tiny"  # MUSE: reliability/test_kill_and_resume.py
    settings = [*SMALL, "--max-tokens", 60, "--no-epoch-checkpoints", "--dropout", 0.2]
    train(data, tmp_path / "whole", arch, *settings, "--max-update", 8)
    train(data, tmp_path / "parts", arch, *settings, "--max-update", 3)
    train(data, tmp_path / "parts", arch, *settings, "--max-update", 8)
    whole, parts = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts"))
    assert parts["optimizer_history"][-1]["num_updates"] == 8
    for name, expected in whole["model"].items():
        assert torch.equal(parts["model"][name], expected), name


@pytest.mark.parametrize(
    "flags",
    [
        [
            *("--share-all-embeddings", "--encoder-learned-pos", "--decoder-learned-pos"),
            *("--input-dropout", 0.1, "--branch-dropout", 0.2, "--attention-dropout", 0.1, "--activation-dropout", 0.1),
        ],
        ["--encoder-normalize-before", "--decoder-normalize-before", "--checkpoint-activations"],
        [
            *("--encoder-layerdrop", 0.3, "--decoder-layerdrop", 0.3, "--layernorm-embedding"),
            *("--update-freq", 2, "--ema-decay", 0.99, "--store-ema"),
        ],
        ["--adaptive-softmax-cutoff", "8,16", "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"],
        ["--bf16", "--encoder-branches", "long_short_range,ffn", "--conv-padding", "leaky"],
        ["--amp", "--decoder-layer-type", "fairseq", "--encoder-layer-type", "distance"],
    ],
    ids=lambda flags: str(flags[0]).lstrip("-"),
)
def test_trains_and_generates_with(flags, data, tmp_path):
    train(data, tmp_path, "muse_tiny", *SMALL, "--max-epoch", 1, *flags)
    assert sorted(generate(data, tmp_path / "checkpoint_last.pt")) == list(range(TEST_SENTENCES))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(data, folder, "muse_tiny", *SMALL, "--max-epoch", 2)
    return folder / "checkpoint_last.pt"


def test_generate_prints_alignments(data, trained):
    printed = run(
        "generate", data, "--user-dir", USER_DIR, "--path", trained, "--cpu", "--beam", 2, "--print-alignment",
        "--num-workers", 0,
    )  # fmt: skip
    alignments = re.findall(r"^A-\d+\t(.*)$", printed, re.MULTILINE)
    assert len(alignments) == TEST_SENTENCES
    assert all(re.fullmatch(r"\d+-\d+", pair) for line in alignments for pair in line.split())


def test_validate_and_from_pretrained_and_pruned_layers_work(data, trained, capsys):
    run(
        "validate", data, "--user-dir", USER_DIR, "--path", trained, "--cpu", "--task", "translation", "--batch-size", 4
    )
    from muse_plugin.models.muse import MuseModel

    hub = MuseModel.from_pretrained(
        str(trained.parent), checkpoint_file=trained.name, data_name_or_path=str(data), user_dir=USER_DIR
    )
    assert isinstance(hub.translate("w1 w2 w3"), str)
    assert hub.translate(iter(["w1 w2 w3", ""])) == [hub.translate("w1 w2 w3"), ""]
    with pytest.raises(FileNotFoundError, match=r"holds no dictionaries \(dict\.\*\.txt\); name the folder of the"):
        MuseModel.from_pretrained(trained.parent, trained.name)
    overrides = "{'encoder_layers_to_keep': '0', 'decoder_layers_to_keep': '1'}"
    assert len(generate(data, trained, "--model-overrides", overrides)) == TEST_SENTENCES


def test_generation_does_not_depend_on_the_batch(data, trained):
    together = generate(data, trained, "--max-tokens", 1000)
    alone = generate(data, trained, "--batch-size", 1)
    assert together == alone


def test_eight_bits_also_reach_a_model_trained_before_there_was_the_option(data, trained, tmp_path, monkeypatch):
    packed = []
    pack = packed_linear._pack_int8
    monkeypatch.setattr(packed_linear, "_pack_int8", lambda *arguments: packed.append(1) or pack(*arguments))
    state = load_checkpoint(trained)
    del state["cfg"]["model"]["int8_inference"]
    save_atomically(state, tmp_path / "old.pt")
    flat, grouped = "{'int8_inference': True}", "{'model': {'int8_inference': True}}"
    for checkpoint in (trained, tmp_path / "old.pt"):
        packed.clear()
        generate(data, checkpoint)
        assert not packed
        for overrides in (flat, grouped):
            packed.clear()
            assert len(generate(data, checkpoint, "--model-overrides", overrides)) == TEST_SENTENCES
            assert len(packed) == 2 * (2 + 2) + 1  # input and output product of every layer, output layer
