"""Checkpoints of earlier versions load and give the scores that those gave, as CHANGELOG.md promises."""

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from support.helpers import REPOSITORY, assert_close

import muse_plugin  # noqa: F401  (registers the models)
from muse_plugin.checkpoints.safe_loading import load_checkpoint

FIXTURES = REPOSITORY / "tests" / "fixtures"


@pytest.mark.parametrize(("version", "gone"), [("0_1", None), ("0_2", None), ("0_2", "compile_layers")])
def test_the_scores_are_those_of_that_version(version, gone, tmp_path):
    folder = FIXTURES / f"checkpoint_version_{version}"
    state = load_checkpoint(folder / "checkpoint.pt")
    if gone is not None:  # a flag of 0.2.0
        state["cfg"]["model"][gone] = True
    torch.save(state, tmp_path / "checkpoint.pt")
    data = FIXTURES / "checkpoint_version_0_1"  # the dictionaries of both
    settings = {"data": str(data), "source_lang": "de", "target_lang": "en"}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint.pt")], settings)
    wanted = {name: torch.from_numpy(values) for name, values in np.load(folder / "expected.npz").items()}
    lengths = wanted["source"].ne(task.source_dictionary.pad()).sum(dim=1)
    output = model.eval()(wanted["source"], lengths, wanted["previous"])
    scores = model.get_normalized_probs(output, log_probs=True)
    real = wanted["previous"].ne(task.target_dictionary.pad())
    assert real.sum() == 7
    assert_close(scores[real], wanted["log_probs"][real], atol=1e-5)
