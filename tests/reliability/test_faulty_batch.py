"""A loss or gradients that are not finite: training stops and names the update, the sentences and what to do.

The encoder is made to return NaN for sentences with one certain word, as an overflow in half precision would.
"""

import os
import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.trainer import Trainer
from support.fairseq_commands import SMALL, train
from torch import nn

from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.fairseq_repairs import faulty_batch
from muse_plugin.models.muse_encoder import MuseEncoder

WORD = "w3"
FORWARD = MuseEncoder.forward
TINY = [*SMALL, "--encoder-layers", 1, "--decoder-layers", 1]


def poison(encoder, src_tokens, *rest, **named):
    """The encoder, with NaN for sentences that have the word."""
    out = FORWARD(encoder, src_tokens, *rest, **named)
    has_word = (src_tokens == encoder.dictionary.index(WORD)).any(dim=1)
    out["encoder_out"][0] = out["encoder_out"][0].masked_fill(has_word[None, :, None], float("nan"))
    return out


@pytest.fixture(scope="module")
def sentences_with_the_word(data):
    lines = (data.parent / "train.de").read_text().splitlines()
    found = {number for number, line in enumerate(lines) if WORD in line.split()}
    assert 0 < len(found) < len(lines)
    return found


@pytest.fixture
def poisoned(monkeypatch):
    monkeypatch.setattr(MuseEncoder, "forward", poison)


def numbers(text):
    return {int(number) for number in re.findall(r"\d+", text)}


def test_the_batches_of_an_update_are_named_with_the_sentences_at_fault(
    data, sentences_with_the_word, poisoned, tmp_path
):
    with pytest.raises(faulty_batch.NotFiniteError) as caught:
        train(data, tmp_path, "muse_tiny", *TINY, "--update-freq", 3, "--max-tokens", 100, "--clip-norm", 0.5)
    message = str(caught.value)
    assert message.startswith("gradients must be finite, but they are not: update 1 of --train-subset train; the loss ")
    faults = re.findall(
        r"the loss is nan for sentences ([\d, ]+) \(longest: \d+ tokens\), and for ([^;.]+) alone", message
    )
    assert 1 <= len(faults) <= 3
    for batch, alone in faults:
        assert len(numbers(batch)) >= 2
        assert numbers(alone) == numbers(batch) & sentences_with_the_word
    assert message.endswith(
        "Sentences are counted from 0 in the order of the data. If one of them is broken or far too long, fix or "
        "remove it; otherwise lower --lr (now 0), raise --warmup-updates or lower --clip-norm (now 0.5)."
    )
    assert isinstance(caught.value.__cause__, FloatingPointError)
    assert all(value.isfinite().all() for value in load_checkpoint(tmp_path / "crash.pt")["model"].values())


def test_amp_without_a_gpu_stops_as_well(data, poisoned, tmp_path):
    with pytest.raises(faulty_batch.NotFiniteError, match=r"the loss is nan .*, or take --bf16 instead of --amp\.$"):
        train(data, tmp_path, "muse_tiny", *TINY, "--amp")


def test_a_loss_scale_at_its_end_names_the_batch_and_gives_advice(data, sentences_with_the_word, poisoned, tmp_path):
    flags = ["--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", 1, "--min-loss-scale", 0.6]
    with pytest.raises(faulty_batch.NotFiniteError) as caught:
        train(data, tmp_path, "muse_tiny", *TINY, *flags, "--batch-size", 8)
    message = str(caught.value)
    assert message.startswith(
        "gradients overflow even at the smallest loss scale of --fp16, --min-loss-scale 0.6: update 1 of --train-subset"
    )
    batch, alone = re.search(
        r"the loss is nan for sentences ([\d, ]+) \(.*\), and for ([^;.]+) alone\.", message
    ).groups()
    assert numbers(alone) == numbers(batch) & sentences_with_the_word
    assert message.endswith("raise --warmup-updates or set --clip-norm, or take --bf16 instead of --fp16.")


def train_in_child(data, folder, rank):
    """Trains as one of two processes, in a copy of this one; what stopped it is written to a file."""
    child = os.fork()
    if child:
        return child
    try:
        flags = [
            "--distributed-world-size",
            2,
            "--distributed-rank",
            rank,
            "--distributed-no-spawn",
            "--max-tokens",
            60,
        ]
        flags += ["--distributed-init-method", f"file://{folder / 'rendezvous'}", "--distributed-backend", "gloo"]
        train(data, folder, "muse_tiny", *TINY, *flags, "--ddp-backend", "legacy_ddp", "--max-update", 1)
    except BaseException as error:
        (folder / f"stopped{rank}").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def test_of_several_processes_the_one_at_fault_is_named_by_all(data, tmp_path, monkeypatch):
    def poison_second(encoder, *rest, **named):
        out = FORWARD(encoder, *rest, **named)
        if torch.distributed.get_rank() == 1:
            out["encoder_out"][0] = out["encoder_out"][0] * float("nan")
        return out

    monkeypatch.setattr(MuseEncoder, "forward", poison_second)
    for child in [train_in_child(data, tmp_path, rank) for rank in (0, 1)]:
        os.waitpid(child, 0)
    messages = [(tmp_path / f"stopped{rank}").read_text() for rank in (0, 1)]
    assert messages[0] == messages[1]
    assert messages[0].startswith("NotFiniteError: gradients must be finite, but they are not: update 1 of ")
    assert "and for each of them alone in process 1. Sentences" in messages[0]
    assert "process 0" not in messages[0]


# ---- what was found, without a training ---------------------------------------------------------------------------


class Numbers(nn.Module):
    """A model whose loss is the sum of roots of its numbers."""

    def __init__(self, *values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))


def make_trainer(model, dataset=None):
    """What the search asks of a trainer."""
    common = SimpleNamespace(amp=False, fp16=False)
    return SimpleNamespace(
        get_model=lambda: model,
        get_criterion=lambda: Criterion(),
        _set_seed=lambda: None,
        _prepare_sample=lambda sample: (sample, sample.get("dummy", False)),
        is_fsdp=False,
        data_parallel_world_size=1,
        tpu=False,
        device=torch.device("cpu"),
        optimizer=SimpleNamespace(scaler=None),
        task=SimpleNamespace(dataset=lambda name: dataset),
        cfg=SimpleNamespace(
            common=common, dataset=SimpleNamespace(train_subset="train"), distributed_training=SimpleNamespace()
        ),
    )


class Criterion(nn.Module):
    def forward(self, model, sample):
        return (model.values * sample["factor"]).sqrt().sum(), 1, {}


def make_batch(factor, ids=(3, 4), width=5, **named):
    tokens = torch.ones(len(ids), width, dtype=torch.long)
    return {"id": torch.tensor(ids), "factor": factor, "net_input": {"src_tokens": tokens}, **named}


def test_parameters_that_are_ruined_already_are_named_instead_of_a_batch():
    found = faulty_batch._find(make_trainer(Numbers(1.0, float("nan"))), [make_batch(1.0)])
    assert found == ["parameter values was not finite before this update, so no batch is at fault"]


def test_a_finite_loss_with_gradients_that_are_not_is_told_apart():
    found = faulty_batch._find(make_trainer(Numbers(0.0, 4.0)), [make_batch(1.0)])
    assert found == ["the loss of 2 is finite, but its gradients are not for sentences 3, 4 (longest: 5 tokens)"]


def test_only_the_batch_at_fault_is_named_and_a_dummy_never():
    batches = [make_batch(1.0, ids=(1, 2)), make_batch(-1.0, ids=(7,), width=9), make_batch(-1.0, dummy=True)]
    assert faulty_batch._find(make_trainer(Numbers(1.0)), batches) == [
        "the loss is nan for sentence 7 (longest: 9 tokens)"
    ]


def test_all_batches_are_named_where_none_is_at_fault_again():
    found = faulty_batch._find(make_trainer(Numbers(1.0)), [make_batch(1.0), make_batch(2.0, ids=range(25))])
    assert found == [
        "computed once more, all is finite; the update read sentences 3, 4 (longest: 5 tokens)",
        f"computed once more, all is finite; the update read sentences {', '.join(map(str, range(20)))} and 5 more "
        "(longest: 5 tokens)",
    ]


def test_a_search_that_fails_still_names_the_batch():
    trainer = make_trainer(Numbers(1.0))
    found = faulty_batch._find_in_all_processes(
        trainer, [make_batch(None)], FloatingPointError("gradients are Nan/Inf")
    )
    assert found == ["sentences 3, 4 (longest: 5 tokens)"]


@pytest.mark.parametrize(
    "error", [ValueError("other"), FloatingPointError("gradients are inconsistent between workers")]
)
def test_other_errors_pass_as_they_are(error, monkeypatch):
    def fail(trainer, samples):
        raise error

    monkeypatch.setattr(Trainer, "train_step", fail)
    monkeypatch.setattr(AMPOptimizer, "clip_grad_norm", AMPOptimizer.clip_grad_norm)  # given back afterwards
    faulty_batch._apply()
    trainer = SimpleNamespace(_grad_norm_buf=torch.tensor([1.0, 2.0]))  # finite, but not the same
    with pytest.raises(type(error)) as caught:
        Trainer.train_step(trainer, [])
    assert caught.value is error
