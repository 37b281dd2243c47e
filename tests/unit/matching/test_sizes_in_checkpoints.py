"""Commands for sentence models compare the settings of a checkpoint with its parameters before they build a model."""

import shutil

import pytest
import torch
from support.memory_limit import budget

from muse_plugin_command import cli

COMMANDS = {
    "predict": ["predict", "--input", "{text}"],
    "encode": ["match", "encode", "--input", "{text}", "--output", "{folder}/cache"],
    "analyze": ["analyze", "model", "--split", "valid", "--output", "{folder}/figures"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_sizes_beyond_the_parameters_are_refused(shop, tmp_path, capsys, command):
    shutil.copytree(shop.yes_no, tmp_path / "model")
    path = tmp_path / "model" / "checkpoint_best.pt"
    state = torch.load(path, weights_only=True)
    state["cfg"]["model"].encoder_hidden_size = 8_000_000
    torch.save(state, path)
    (tmp_path / "text").write_text("a good film\n")
    words = [word.format(text=tmp_path / "text", folder=tmp_path) for word in COMMANDS[command]]
    with budget():
        assert cli.main([*words, "--path", str(path), "--data", str(tmp_path / "model" / "data"), "--cpu"]) == 2
    assert "size mismatch" in capsys.readouterr().err
    assert {entry.name for entry in tmp_path.iterdir()} == {"model", "text"}
