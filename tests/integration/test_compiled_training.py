"""Training with ``--compile-layers`` through fairseq's command, switched on and off in between."""

import re

import pytest
from support.fairseq_commands import SMALL, generate, make_data, train
from support.helpers import assert_close
from torch._dynamo.utils import counters

from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.modules import compiled_layer

SENTENCES = 9
SETTINGS = [
    *SMALL, "--max-tokens", 60, "--dropout", 0, "--weight-dropout", 0, "--no-epoch-checkpoints", "--lr", 0.001,
]  # fmt: skip


@pytest.fixture
def quick_compiler(monkeypatch):
    """What finds the graphs, alone: what becomes of them is for tests/unit/models/test_compiled_layers.py."""
    monkeypatch.setattr(compiled_layer, "COMPILER", "eager")


def test_the_flag_may_change_when_a_run_is_resumed(quick_compiler, tmp_path):
    data = make_data(tmp_path / "data", {"train": 60, "valid": 11, "test": SENTENCES})
    train(data, tmp_path / "plain", "muse_tiny", *SETTINGS, "--max-update", 8)
    before = counters["stats"]["unique_graphs"]
    for first, second in (["--compile-layers"], []), ([], ["--compile-layers"]):
        folder = tmp_path / f"compiled{len(first)}"
        train(data, folder, "muse_tiny", *SETTINGS, "--max-update", 4, *first)
        train(data, folder, "muse_tiny", *SETTINGS, "--max-update", 8, *second)
    count = counters["stats"]["unique_graphs"]
    assert count > before
    expected, actual = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("plain", "compiled0"))
    assert actual["optimizer_history"][-1]["num_updates"] == 8
    assert actual["cfg"]["model"]["compile_layers"] is True
    assert list(actual["model"]) == list(expected["model"])
    for name, parameter in expected["model"].items():
        # Adam divides by the gradient's size: where that is all rounding, a step has any sign.
        assert_close(actual["model"][name], parameter, atol=1e-3, why=name)
    translations = [
        generate(data, tmp_path / name / "checkpoint_last.pt", "--max-len-b", 10) for name in ("compiled0", "compiled1")
    ]
    assert [len(hypotheses) for hypotheses in translations] == [SENTENCES] * 2
    assert all(re.fullmatch(r"(\S+( |$))*", text) for text in translations[0].values())
    assert counters["stats"]["unique_graphs"] == count  # generation compiles nothing
