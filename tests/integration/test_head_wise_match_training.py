"""Head-wise match trained by fairseq's own commands, loaded without its BERT, and used from kept vectors."""

import random
import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from support.bert_folders import make_bert
from support.fairseq_commands import train
from support.helpers import assert_close
from support.sentence_models import write_column, write_data

from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.inference.predict import LoadedModel, Predictor
from muse_plugin.matching.explain import explain
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.text.text_settings import StoredText, TextSettings

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = [f"w{number}" for number in range(16)]
FLAGS = ["--task", "head_wise_match", "--criterion", "muse_sentence_classification", "--batch-size", 16]
SHOWN = ["--log-format", "simple", "--no-epoch-checkpoints"]
ENCODERS = {
    "head_wise_match_transformer": ["--word-embed-dim=12", "--encoder-embed-dim=16", "--encoder-layers=2"],
    "head_wise_match_muse": ["--word-embed-dim=12", "--encoder-embed-dim=16", "--encoder-layers=2"],
    "head_wise_match_multi_scale": ["--word-embed-dim=12", "--encoder-embed-dim=16", "--encoder-layers=2"],
}
for _flags in ENCODERS.values():
    _flags += ["--encoder-attention-heads=4"]
ENCODERS["head_wise_match_multi_scale"] += ["--encoder-head-dim=6", "--encoder-attention-scales=1,3,N/4"]


def make_rows(size, generator):
    """The label says whether both sentences hold the same word out of two."""
    rows = []
    for _ in range(size):
        sides = [generator.choice(["good", "bad"]) for _ in range(2)]
        texts = []
        for side in sides:
            words = generator.choices(WORDS, k=generator.randint(0, 4))
            words.insert(generator.randint(0, len(words)), side)
            texts.append(" ".join(words))
        rows.append((*texts, "same" if sides[0] == sides[1] else "other"))
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pairs whose dictionary is that of a BERT with 22 word pieces."""
    generator = random.Random(5)
    splits = {"train": make_rows(640, generator), "valid": make_rows(32, generator)}
    folder = write_data(tmp_path_factory.mktemp("pairs"), splits, ("input0", "input1", "label"))
    dictionary = Dictionary()
    for piece in (*SPECIAL, "good", "bad", *WORDS):
        dictionary.add_symbol(piece)
    for side in range(2):
        for split, rows in splits.items():
            write_column(folder / f"input{side}", split, [row[side] for row in rows], dictionary)
    return folder


def fit(data, folder, arch, *arguments):
    train(data, folder, arch, *FLAGS, *SHOWN, *ENCODERS.get(arch, []), *arguments)
    return folder / "checkpoint_last.pt"


def load(path):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return model.eval(), task


def test_bert_is_read_once_and_then_kept_in_the_checkpoint(data, tmp_path):
    bert = make_bert(tmp_path / "bert", vocab_size=22, max_position_embeddings=64)
    # The rate is too small to change anything: the encoder is still the one that was read.
    flags = "--bert-dir", tmp_path / "bert", "--lr", 1e-9
    fit(data, tmp_path / "run", "head_wise_match", *flags, "--max-epoch", 1)
    path = fit(data, tmp_path / "run", "head_wise_match", *flags, "--max-epoch", 2)
    shutil.rmtree(tmp_path / "bert")
    model, task = load(path)
    assert task.cfg.max_words == 62
    assert_close(model.encoder.words.weight, bert.embeddings.word_embeddings.weight, atol=1e-6)
    stored = load_checkpoint(path)
    assert '"vocab_size": 22' in stored["cfg"]["model"]["bert_sizes"]
    assert stored["extra_state"]["train_iterator"]["epoch"] == 3
    # Its heads can be shown: what [CLS] sees of a sentence, as BERT itself has it.
    text = StoredText(TextSettings("en", False, "none", subwords="none"))
    pairs = PairModel(Predictor(LoadedModel(model, task, text, cfg=None), cpu=True), "any")
    explanation = explain(pairs, ["good w3", "w1 bad w2"])
    assert explanation.words == (["[CLS]", "good", "w3", "[SEP]"], ["[CLS]", "w1", "bad", "w2", "[SEP]"])
    ids = torch.tensor([[SPECIAL.index("[CLS]"), 4, 4 + 2 + 3, SPECIAL.index("[SEP]")]])
    bert.set_attn_implementation("eager")
    seen = bert(ids, output_attentions=True).attentions  # of each layer (1, H, T, T)
    assert_close(explanation.attention[0], torch.cat([layer[:, :, 0] for layer in seen]), atol=1e-5)
    assert_close(explanation.shares.sum(dim=1), torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("arch", ENCODERS)
def test_encoders_of_the_package_learn_to_compare(data, tmp_path, arch):
    no_dropout = [f"--{name}dropout=0" for name in ("", "attention-", "embedding-", "match-")]
    path = fit(data, tmp_path, arch, "--max-epoch", 12, "--lr", 0.003, "--match-dim", 32, *no_dropout)
    model, task = load(path)
    dataset = task.load_dataset("valid")
    batch = dataset.collater([dataset[number] for number in range(len(dataset))])
    with torch.no_grad():
        found = model(**batch["net_input"]).logits.argmax(dim=1)
    assert (found == batch["target"]).float().mean() > 0.8


def test_single_sentences_are_refused(data, tmp_path):
    splits = {"train": [("a b", "yes"), ("c", "no")], "valid": [("a", "yes"), ("b", "no")]}
    folder = write_data(tmp_path / "single", splits)
    with pytest.raises(ValueError, match=r"^--task head_wise_match compares two sentences, but .* has no input1;"):
        fit(folder, tmp_path / "run", "head_wise_match_transformer", "--max-epoch", 1)
