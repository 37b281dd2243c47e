"""Training with BPE-dropout by fairseq's own commands: what each epoch trains on, resuming, and using the model."""

from itertools import chain

import pytest
import torch
from fairseq.trainer import Trainer
from support.bpe_dropout_data import make_text_and_data
from support.fairseq_commands import SMALL, USER_DIR, generate, run, train

from muse_plugin.checkpoints.safe_loading import load_checkpoint

TASK = "translation_with_bpe_dropout"
SIZES = {"train": 60, "valid": 11, "test": 13}
FLAGS = ["--task", TASK, *SMALL, "--max-tokens", 150, "--dropout", 0.2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_text_and_data(tmp_path_factory.mktemp("data"), SIZES)


@pytest.fixture
def updates(monkeypatch):
    """(sentence numbers, source tokens, loss) of every update in order."""
    seen, original = [], Trainer.train_step

    def train_step(self, samples, raise_oom=False):
        log = original(self, samples, raise_oom)
        numbers = [number for sample in samples for number in sample["id"].tolist()]
        sources = [sample["net_input"]["src_tokens"].tolist() for sample in samples]
        seen.append((numbers, sources, log["loss"]))
        return log

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return seen


@pytest.mark.parametrize(
    "flags",
    [[], ["--num-workers", 2, "--update-freq", 2, "--bpe-dropout-workers", 2]],
    ids=["alone", "several processes, two batches an update"],
)
def test_every_epoch_trains_on_every_sentence_in_new_batches(flags, data, tmp_path, updates):
    train(data, tmp_path, "muse_tiny", *FLAGS, "--max-epoch", 3, "--no-save", *flags)
    epochs, numbers = [[]], []
    for update in updates:
        if len(numbers) == SIZES["train"]:
            epochs.append([])
            numbers = []
        epochs[-1].append(update)
        numbers += update[0]
    assert len(epochs) == 3
    for epoch in epochs:
        assert sorted(chain.from_iterable(numbers for numbers, *_ in epoch)) == list(range(SIZES["train"]))
    batches = [sorted(sorted(numbers) for numbers, *_ in epoch) for epoch in epochs]
    assert batches[0] != batches[1] != batches[2]


def test_resuming_in_the_middle_of_an_epoch_equals_not_stopping(data, tmp_path, updates):
    settings = [*FLAGS, "--no-epoch-checkpoints"]
    train(data, tmp_path / "whole", "muse_tiny", *settings, "--max-update", 18)
    whole, updates[:] = list(updates), []
    epoch = next(n for n in range(1, 18) if sum(len(numbers) for numbers, *_ in whole[:n]) == SIZES["train"])
    stops = (3, 13)  # in the first epoch and in a later one
    assert all(stop % epoch not in (0, epoch - 1) for stop in stops)
    assert stops[0] < epoch < stops[1]
    for stop, workers in zip((*stops, 18), (1, 1, 2), strict=True):
        flags = ["--max-update", stop, "--bpe-dropout-workers", workers]
        train(data, tmp_path / "parts", "muse_tiny", *settings, *flags)
    assert updates == whole
    whole, parts = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts"))
    assert all(torch.equal(parts["model"][name], expected) for name, expected in whole["model"].items())


def test_the_model_is_used_without_the_training_text(data, tmp_path):
    for lang in ("de", "en"):
        (tmp_path / f"words.{lang}").write_bytes((data / f"train.tok.{lang}").read_bytes())
    codes = tmp_path / "codes"
    codes.write_bytes((data / "bpe.codes").read_bytes())
    train(
        data, tmp_path, "muse_tiny", *FLAGS, "--max-epoch", 1, "--train-text", tmp_path / "words", "--bpe-codes", codes
    )
    for path in (*tmp_path.glob("words.*"), codes):
        path.unlink()
    trained = tmp_path / "checkpoint_last.pt"
    as_usual = generate(data, trained)
    assert sorted(as_usual) == list(range(SIZES["test"]))
    assert generate(data, trained, "--task", TASK, "--train-text", tmp_path / "words") == as_usual
    assert len(generate(data, trained, "--task", TASK, "--gen-subset", "train")) == SIZES["train"]
    run("validate", data, "--user-dir", USER_DIR, "--path", trained, "--cpu", "--task", TASK, "--batch-size", 4)
    from muse_plugin.models.muse import MuseModel

    hub = MuseModel.from_pretrained(
        str(tmp_path), checkpoint_file=trained.name, data_name_or_path=str(data), user_dir=USER_DIR
    )
    assert type(hub.task).__name__ == "TranslationWithBpeDropoutTask"
    assert isinstance(hub.translate("das ist"), str)


def test_wrong_input_ends_the_training_with_one_sentence(data, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"the training text \S+nowhere\.de does not exist; name by --train-text"
    ):
        train(data, tmp_path, "muse_tiny", *FLAGS, "--max-epoch", 1, "--train-text", tmp_path / "nowhere")
