"""Sentence models trained, resumed, stopped early and validated by fairseq's own commands, on made-up data."""

import random
import re
import shutil

import pytest
from support.fairseq_commands import USER_DIR, run, train
from support.sentence_models import MODELS, write_data

from muse_plugin.checkpoints.safe_loading import load_checkpoint

SIZES = {
    "multi_scale_transformer": ["--encoder-layers=2", "--encoder-attention-heads=4", "--encoder-head-dim=6"],
    "sentence_transformer": ["--encoder-layers=1", "--encoder-attention-heads=4", "--encoder-ffn-embed-dim=16"],
    "sentence_muse": ["--encoder-layers=1", "--encoder-attention-heads=4", "--encoder-ffn-embed-dim=16"],
    "sentence_bigru": ["--encoder-hidden-size=8"],
    "sentence_cnn": ["--encoder-filters=6"],
    "sentence_average": [],
    "distance_attention_network": ["--encoder-attention-heads=4", "--encoder-ffn-embed-dim=16"],
    "directional_attention_network": [],
    "lama": ["--encoder-hidden-size=8", "--pooling-heads=3"],
    "lama_context": ["--encoder-hidden-size=8", "--pooling-heads=3"],
    "lama_encoder": ["--pooling-heads=3"],
    "sentence_structured_attention": ["--encoder-hidden-size=8", "--pooling-heads=3", "--pooling-hidden-dim=6"],
}
SIZES["multi_scale_transformer"].append("--encoder-attention-scales=1,3,N/4")
TRUNK = ["--word-embed-dim=12", "--encoder-embed-dim=16", "--classifier-hidden-dim=16"]
BEST = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
SHOWN = ["--log-format", "simple", "--no-epoch-checkpoints"]
CLASSIFY = ["--task", "muse_sentence_classification", "--criterion", "muse_sentence_classification"]
TAG = ["--task", "muse_sequence_tagging", "--criterion", "muse_sequence_tagging"]
MIRROR = ["--task", "muse_mirrored_summation", "--criterion", "muse_sentence_regression"]


def fit(data, folder, arch, *arguments):
    """Trains a tiny model."""
    train(data, folder, arch, *TRUNK, *SIZES[arch], *SHOWN, "--batch-size", 16, *arguments)
    return folder / "checkpoint_last.pt"


def measures_of(caplog):
    """The numbers that were logged for each validation; forgets the log."""
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return [numbers_in(line) for line in lines if re.match(r"epoch \d+ \| valid on 'valid' subset \|", line)]


def numbers_in(line):
    return {name: float(value) for name, value in re.findall(r"\| (\S+) (-?[\d.]+(?:e-?\d+)?)", line)}


@pytest.fixture(autouse=True)
def log(caplog):
    with caplog.at_level("INFO"):
        yield


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """The label says which of two words the sentence holds."""
    generator = random.Random(5)
    fillers = [f"w{i}" for i in range(12)]
    splits = {}
    for split, size in (("train", 96), ("valid", 32)):
        rows = []
        for number in range(size):
            words = generator.choices(fillers, k=generator.randint(1, 8))
            label = ("bad", "good")[number % 2]
            words.insert(generator.randint(0, len(words)), label)
            rows.append((" ".join(words), {"bad": "negative", "good": "positive"}[label]))
        splits[split] = rows
    return write_data(tmp_path_factory.mktemp("labelled"), splits)


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    generator = random.Random(6)
    splits = {}
    for split, size in (("train", 64), ("valid", 16)):
        rows = []
        for _ in range(size):
            first, second = (" ".join(generator.choices("abcdef", k=generator.randint(1, 6))) for _ in range(2))
            rows.append((first, second, generator.choice(["yes", "no", "maybe"])))
        splits[split] = rows
    return write_data(tmp_path_factory.mktemp("paired"), splits, ("input0", "input1", "label"))


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Names are written with a capital letter, and of two words if they end in -a; each word is a new one."""
    generator = random.Random(7)
    splits = {}
    for split, size in (("train", 80), ("valid", 24)):
        rows = []
        for _ in range(size):
            words, tags = [], []
            for _ in range(generator.randint(1, 5)):
                word = "".join(generator.choices("bcdef", k=3))
                kind = generator.choice(["O", "PER", "LOC"])
                if kind == "O":
                    words.append(word)
                    tags.append("O")
                elif kind == "PER":
                    words += [word.title() + "a", word.title() + "o"]
                    tags += ["B-PER", "I-PER"]
                else:
                    words.append(word.title() + "u")
                    tags.append("B-LOC")
            rows.append((" ".join(words), " ".join(tags)))
        splits[split] = rows
    return write_data(tmp_path_factory.mktemp("tagged"), splits, characters=True)


# ---- classification -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", MODELS)
def test_every_model_trains_and_keeps_the_best_checkpoint_by_accuracy(arch, labelled, tmp_path, caplog):
    last = fit(labelled, tmp_path, arch, *CLASSIFY, *BEST, "--max-epoch", 2)
    first, second = measures_of(caplog)
    assert {"loss", "accuracy", "macro_f1", "f1_negative", "f1_positive", "best_accuracy"} <= second.keys()
    state = load_checkpoint(tmp_path / "checkpoint_best.pt")
    assert state["extra_state"]["best"] == pytest.approx(max(first["accuracy"], second["accuracy"]), abs=0.01)
    assert load_checkpoint(last)["cfg"]["model"]["_name"] == arch


@pytest.mark.parametrize(
    ("arch", "penalty"), [("multi_scale_transformer", "penal"), ("sentence_muse", "emb"), ("lama_encoder", "none")]
)
def test_any_encoder_takes_the_heads_and_their_penalty(arch, penalty, labelled, tmp_path, caplog):
    heads = ["--pooling", "low_rank_attention", "--pooling-heads=3", "--pooling-context", "mean", "--pooling-rank", 2]
    last = fit(labelled, tmp_path, arch, *CLASSIFY, *BEST, *heads, "--disagreement", penalty, "--max-epoch", 1)
    trained, validated = (
        [line for line in caplog.messages if re.match(begin, line)]
        for begin in (r"epoch 001 \| loss ", r"epoch 001 \| valid on 'valid' subset ")
    )
    assert ["penalty" in numbers_in(line) for line in trained + validated] == [penalty != "none", False]
    assert {"penal": 0.0, "emb": -1.0, "none": -1.0}[penalty] <= numbers_in(trained[0]).get("penalty", 0.0)
    weights = load_checkpoint(last)["model"]
    assert [name for name, value in weights.items() if name.startswith("pooling.") and 6 in value.shape]


@pytest.mark.parametrize(
    ("arch", "flags"), [("multi_scale_transformer", ["--attention-dropout", 0.1]), ("sentence_bigru", [])]
)
def test_a_problem_of_one_word_is_learnt_completely(arch, flags, labelled, tmp_path, caplog):
    flags = [*flags, "--max-epoch", 10, "--lr", 0.02, "--embedding-dropout", 0.1]
    fit(labelled, tmp_path, arch, *CLASSIFY, *BEST, *flags)
    first, *_, last = measures_of(caplog)
    assert last["accuracy"] == last["macro_f1"] == last["best_accuracy"] == 100
    assert last["loss"] < first["loss"] / 2


def test_training_goes_from_no_checkpoint_of_another_dictionary_of_the_same_size(labelled, tmp_path):
    last = fit(labelled, tmp_path / "first", "sentence_average", *CLASSIFY, "--max-update", 1)
    finetune = [*CLASSIFY, "--finetune-from-model", last, "--max-update", 1]
    fit(labelled, tmp_path / "same", "sentence_average", *finetune)
    other = shutil.copytree(labelled, tmp_path / "data")
    lines = (other / "input0" / "dict.txt").read_text().splitlines()
    (other / "input0" / "dict.txt").write_text("".join(f"{line}\n" for line in reversed(lines)))
    with pytest.raises(ValueError, match=r"but input0/dict\.txt in .* has other entries"):
        fit(other, tmp_path / "second", "sentence_average", *finetune)


def test_training_stops_early_when_the_measure_does_not_improve(labelled, tmp_path, caplog):
    flags = [*CLASSIFY, *BEST, "--lr", 0, "--patience", 2, "--max-epoch", 20]
    fit(labelled, tmp_path, "sentence_average", *flags)
    assert "early stop since valid performance hasn't improved for last 2 runs" in caplog.text
    assert len(measures_of(caplog)) == 3


def test_validation_of_a_checkpoint_repeats_the_measures_and_needs_no_vector_file(labelled, tmp_path, caplog):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {' '.join([str(n)] * 12)}\n" for n, word in enumerate(("good", "w1"), 1)))
    flags = ["--word-vectors", vectors, "--freeze-word-vectors", "--embedding-dropout", 0]
    last = fit(labelled, tmp_path, "multi_scale_transformer", *CLASSIFY, *flags, "--max-epoch", 3)
    expected = measures_of(caplog)[-1]
    vectors.unlink()
    printed = run(
        "validate", labelled, "--user-dir", USER_DIR, "--path", last, "--task", "muse_sentence_classification", "--cpu",
        "--batch-size", 7, "--log-format", "simple", "--num-workers", 0,
    )  # fmt: skip
    found = numbers_in(printed[printed.index("valid on 'valid' subset") :])
    for name in ("loss", "accuracy", "macro_f1", "f1_negative", "f1_positive"):
        assert found[name] == pytest.approx(expected[name], abs=0.002), name
    state = load_checkpoint(last)
    table = state["model"]["embedder.words.weight"]
    rows = {float(row[0]) for row in table if len(row.unique()) == 1}
    assert rows == {0.0, 1.0, 2.0}  # padding, and the two words of the file: nothing has moved
    assert state["cfg"]["model"]["freeze_word_vectors"]


def test_pairs_train_in_reduced_precision_and_with_accumulated_gradients(paired, tmp_path, caplog):
    flags = [*CLASSIFY, "--bf16", "--update-freq", 2, "--max-epoch", 1, "--pair-features", "product"]
    fit(paired, tmp_path, "multi_scale_transformer", *flags)
    (measures,) = measures_of(caplog)
    assert {"accuracy", "f1_maybe"} <= measures.keys()
    assert measures["loss"] < 3


def test_a_wrong_criterion_is_refused_in_one_sentence(labelled, tmp_path):
    flags = ["--task", "muse_sentence_classification", "--criterion", "muse_sequence_tagging", "--max-epoch", 1]
    with pytest.raises(ValueError, match="use --criterion muse_sentence_classification"):
        fit(labelled, tmp_path, "sentence_average", *flags)


# ---- tags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["cnn", "bilstm"])
def test_taggers_with_characters_a_field_and_entities_learn(encoder, tagged, tmp_path, caplog):
    pytest.importorskip("torchcrf", reason="needs pytorch-crf")
    pytest.importorskip("seqeval")
    flags = [*TAG, "--entities", "--crf", "--character-encoder", encoder, "--character-features", 12]
    best = ["--best-checkpoint-metric", "entity_f1", "--maximize-best-checkpoint-metric", "--max-epoch", 8]
    fit(tagged, tmp_path, "multi_scale_transformer", *flags, *best, "--embedding-dropout", 0.1)
    measures = measures_of(caplog)
    assert {"accuracy", "macro_f1", "f1_I-PER", "entity_precision", "entity_recall"} <= measures[-1].keys()
    assert measures[-1]["entity_f1"] > 90  # words of the validation are new: only characters tell
    assert measures[-1]["best_entity_f1"] >= measures[0]["entity_f1"]
    assert "tag_scores.crf.transitions" in load_checkpoint(tmp_path / "checkpoint_best.pt")["model"]


# ---- mirrored summation -------------------------------------------------------------------------------------------


def test_mirrored_summation_is_learnt_beyond_the_best_constant(tmp_path, caplog):
    """Two products of neighbours: the best constant has an error of 14 / 144 = 0.0972."""
    flags = [
        *MIRROR, "--length", 4, "--vector-size", 2, "--terms", 2, "--train-sentences", 1600, "--valid-sentences", 200,
        "--max-epoch", 6, "--batch-size", 64, "--max-tokens", 1000, "--encoder-attention-scales=3,all", "--dropout", 0,
        "--attention-dropout", 0, "--classifier-dropout", 0,
    ]  # fmt: skip
    fit(None, tmp_path, "multi_scale_transformer", *flags)
    errors = [m["mse"] for m in measures_of(caplog)]
    assert errors[-1] < min(errors[0], 0.08)
