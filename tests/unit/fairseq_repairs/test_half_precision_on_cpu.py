"""Half precision on a CPU is warned of, once, by the process that speaks for all."""

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from torch import nn

import muse_plugin  # noqa: F401  (applies the repair)


def warnings_of(caplog, **common):
    """What a training with these flags of ``common`` warns of before it starts."""
    cfg = OmegaConf.structured(FairseqConfig())
    cfg.common.update({"cpu": True, **common})
    Trainer(cfg, task=None, model=nn.Linear(1, 1), criterion=nn.Module())
    return [message for message in caplog.messages if "float32" in message]


@pytest.mark.parametrize(("flag", "factor"), [("fp16", "6 to 8"), ("bf16", "up to 4")])
def test_the_flag_and_the_factor_are_named(caplog, monkeypatch, flag, factor):
    assert warnings_of(caplog, **{flag: True}) == [
        f"--{flag} saves time on a GPU only: on a CPU an update takes {factor} times as long as in float32; "
        "leave the flag out."
    ]
    caplog.clear()
    monkeypatch.setattr(Trainer, "data_parallel_rank", 1)
    assert warnings_of(caplog, **{flag: True}) == []


def test_float32_is_not_warned_of(caplog):
    assert warnings_of(caplog) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="is about machines with a GPU")
def test_a_gpu_is_not_warned_of(caplog):
    assert warnings_of(caplog, cpu=False, fp16=True) == []
