"""Faults of fairseq's commands that the repairs remove, or give one sentence for; within this process."""

import re
import shutil
from argparse import Namespace
from types import SimpleNamespace

import fairseq_cli.generate  # noqa: F401
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.tasks import translation
from support.fairseq_commands import SMALL, USER_DIR, generate, make_data, run, train

from muse_plugin import fairseq_repairs
from muse_plugin.fairseq_repairs import moses_languages
from muse_plugin.fairseq_repairs.checkpoint_mismatch import describe_mismatch
from muse_plugin.fairseq_repairs.misspelt_overrides import check_overrides

SENTENCES = 13


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    fairseq_repairs.apply()  # for fairseq_cli.generate, which a command of its own loads before the plugin
    folder = tmp_path_factory.mktemp("trained")
    data = make_data(folder, {"train": 40, "valid": 4, "test": SENTENCES})
    flags = ["--max-update", 4, "--disable-validation"]
    train(data, folder / "muse", "muse_tiny", *SMALL, *flags)
    train(data, folder / "fairseq", "transformer", *SMALL, *flags)
    return SimpleNamespace(folder=folder, data=data, path=folder / "muse" / "checkpoint_last.pt")


# ---- diverse beam search ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["muse", "fairseq"])
def test_groups_of_a_diverse_beam_are_those_of_the_same_sentence(trained, model):
    path = trained.folder / model / "checkpoint_last.pt"
    flags = ["--beam", 4, "--diverse-beam-groups", 2, "--diverse-beam-strength", 3, "--max-len-b", 8]
    together = generate(trained.data, path, *flags, "--batch-size", SENTENCES)
    alone = generate(trained.data, path, *flags, "--batch-size", 1)
    assert sorted(together) == list(range(SENTENCES))
    assert together == alone


# ---- shards ----------------------------------------------------------------------------------------------------------


def test_shards_of_a_test_set_hold_each_sentence_once(trained):
    whole = generate(trained.data, trained.path, "--batch-size", 2)
    shards = [
        generate(trained.data, trained.path, "--batch-size", 2, "--num-shards", 3, "--shard-id", i) for i in range(3)
    ]
    assert all(0 < len(shard) < SENTENCES for shard in shards)
    assert sum(map(len, shards)) == SENTENCES
    assert {number: text for shard in shards for number, text in shard.items()} == whole
    with pytest.raises(ValueError, match=r"--shard-id must be from 0 to --num-shards - 1, but got 3 with --num-shards"):
        generate(trained.data, trained.path, "--num-shards", 3, "--shard-id", 3)


# ---- data in several parts -------------------------------------------------------------------------------------------


def test_training_data_in_two_parts_are_read_once_each(trained, tmp_path):
    data = shutil.copytree(trained.data, tmp_path / "bin")
    for path in data.glob("train.de-en.*"):
        shutil.copy(path, data / path.name.replace("train", "train1"))
    train(data, tmp_path / "checkpoints", "muse_tiny", *SMALL, "--max-update", 1)
    words = Dictionary.load(str(data / "dict.de.txt"))
    settings = {"combine": True, "dataset_impl": None, "left_pad_source": True, "left_pad_target": False}
    for times, size in ((-1, 80), (1, 80), (3, 160)):
        loaded = translation.load_langpair_dataset(
            str(data), "train", "de", words, "en", words, upsample_primary=times, max_source_positions=99,
            max_target_positions=99, **settings,
        )  # fmt: skip
        assert len(loaded) == size


# ---- Moses -----------------------------------------------------------------------------------------------------------


def interactive(trained, data, *flags):
    (trained.folder / "input").write_text("w1 w2\n")
    words = ["--user-dir", USER_DIR, "--path", trained.path, "--cpu", "--input", trained.folder / "input", *flags]
    return run("interactive", data, *words)


def test_moses_takes_the_languages_from_the_data(trained, tmp_path):
    inferred = interactive(trained, trained.data, "--tokenizer", "moses")
    given = interactive(trained, trained.data, "--tokenizer", "moses", "-s", "de", "-t", "en")
    (text,) = re.findall(r"^D-0\t\S+\t(.*)$", inferred, re.MULTILINE)
    assert re.findall(r"^D-0\t\S+\t(.*)$", given, re.MULTILINE) == [text]
    args = Namespace(data=str(trained.data), source_lang="en", target_lang=None)
    moses_languages._infer_languages(args)
    assert (args.source_lang, args.target_lang) == ("de", "en")  # as the translation task does
    with pytest.raises(ValueError, match=r"--tokenizer moses needs the languages, .* add --source-lang and"):
        interactive(trained, tmp_path, "--tokenizer", "moses")


# ---- overrides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["muse", "fairseq"])
def test_a_misspelt_override_gets_the_nearest_setting_proposed(trained, model):
    path = trained.folder / model / "checkpoint_last.pt"
    assert len(generate(trained.data, path, "--model-overrides", "{'dropout': 0.5}")) == SENTENCES
    for overrides in ("{'dropuot': 0.5}", "{'model': {'dropuot': 0.5}}"):
        with pytest.raises(ValueError, match=r"there is none called 'dropuot'; did you mean 'dropout'\?"):
            generate(trained.data, path, "--model-overrides", overrides)
    flags = ["--task", "translation", "--user-dir", USER_DIR, "--cpu", "--batch-size", 4, "--model-overrides"]
    with pytest.raises(ValueError, match=r"did you mean 'dropout'\?"):
        run("validate", trained.data, "--path", path, *flags, "{'dropuot': 0.5}")
    run("validate", trained.data, "--path", path, *flags, "{'dropout': 0.5}")


def test_a_score_that_validation_has_not_is_named_with_those_that_it_has(trained, tmp_path):
    fairseq_repairs.apply()  # as for generate
    flags = ["--max-update", 1, "--best-checkpoint-metric", "f1_foo"]
    sentence = r"must be a score of the validation, which has .*loss.*, but got f1_foo; name one of these"
    with pytest.raises(ValueError, match=sentence):
        train(trained.data, tmp_path, "muse_tiny", *SMALL, *flags)


def test_overrides_of_a_program_are_not_checked(trained):
    loaded = checkpoint_utils.load_model_ensemble_and_task([str(trained.path)], arg_overrides={"bpe_codes": "x"})
    assert len(loaded[0]) == 1


def test_a_setting_of_one_model_of_an_ensemble_is_known():
    check_overrides({"a": 1}, [{"a"}, {"b"}])
    with pytest.raises(ValueError, match=r"none called 'c'; they are called as flags of training, with _ for -"):
        check_overrides({"c": 1}, [{"a"}, {"b"}])


# ---- a checkpoint that does not fit ----------------------------------------------------------------------------------


def test_other_dictionaries_are_named_where_a_checkpoint_does_not_fit(trained, tmp_path):
    other = make_data(tmp_path, {"train": 2, "valid": 4}, seed=5)
    sizes = [len((folder / "dict.de.txt").read_text().splitlines()) + 4 for folder in (trained.data, other)]
    assert sizes[0] != sizes[1]
    finetune = [*SMALL, "--finetune-from-model", trained.path, "--max-update", 1]
    with pytest.raises(ValueError, match=rf"its dictionaries are not those of the data \({sizes[0]} words there and"):
        train(other, tmp_path / "checkpoints", "muse_tiny", *finetune)
    with pytest.raises(ValueError, match=r"does not fit the model: .* Give the architecture and the sizes"):
        train(trained.data, tmp_path / "checkpoints", "muse_tiny", *finetune, "--decoder-ffn-embed-dim", 40)
    train(trained.data, tmp_path / "checkpoints", "muse_tiny", *finetune)


@pytest.mark.parametrize("in_float32", [False, True])
def test_the_average_of_a_finetuning_begins_from_the_checkpoint(trained, tmp_path, in_float32):
    flags = ["--store-ema", "--ema-decay", 0.25, *(["--ema-fp32"] if in_float32 else [])]
    finetune = ["--finetune-from-model", trained.path, "--max-update", 1, "--lr-scheduler", "fixed", "--lr", 0.1]
    train(trained.data, tmp_path, "muse_tiny", *SMALL, *finetune, *flags)
    before = torch.load(trained.path, weights_only=False)["model"]
    after = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    average = after["extra_state"]["ema"]
    name = "encoder.embed_tokens.weight"
    assert not torch.equal(after["model"][name], before[name])
    torch.testing.assert_close(average[name], 0.25 * before[name] + 0.75 * after["model"][name])


# ---- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ["--fp16", "--fp16-init-scale", 4, "--fp16-scale-window", 4],
        ["--memory-efficient-fp16", "--fp16-init-scale", 4, "--fp16-scale-window", 4],
        ["--bf16"],
        ["--fp16", "--fp16-init-scale", 4, "--store-ema", "--ema-decay", 0.9, "--ema-fp32"],
        ["--store-ema", "--ema-decay", 0.9, "--ema-update-freq", 2],
    ],
)
def test_what_resumes_equals_what_never_stopped(trained, tmp_path, flags):
    def fit(folder, updates):
        train(trained.data, folder, "muse_tiny", *SMALL, *flags, "--max-update", updates, "--disable-validation")
        return torch.load(folder / "checkpoint_last.pt", weights_only=False)

    whole = fit(tmp_path / "whole", 7)
    fit(tmp_path / "parts", 3)
    parts = fit(tmp_path / "parts", 7)
    states = [
        (state["model"], state["last_optimizer_state"], state["extra_state"].get("ema")) for state in (whole, parts)
    ]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_other_weights_are_not_replaced_by_those_of_the_optimizer(trained, tmp_path):
    """As where a checkpoint was changed by hand."""
    flags = [*SMALL, "--bf16", "--disable-validation", "--lr-scheduler", "fixed"]
    train(trained.data, tmp_path, "muse_tiny", *flags, "--max-update", 1, "--lr", 0.1)
    path, name = tmp_path / "checkpoint_last.pt", "encoder.embed_tokens.weight"
    state = torch.load(path, weights_only=False)
    state["model"][name] += 1
    torch.save(state, path)
    train(trained.data, tmp_path, "muse_tiny", *flags, "--max-update", 2, "--lr", 1e-9)
    torch.testing.assert_close(
        torch.load(path, weights_only=False)["model"][name], state["model"][name], rtol=0.01, atol=0.01
    )


def test_what_does_not_fit_is_described():
    def describe(model, other):
        try:
            model.load_state_dict(other.state_dict())
        except RuntimeError as error:
            return describe_mismatch(str(error))
        return None

    def make(**parts):
        return torch.nn.ModuleDict(parts)

    five, seven = torch.nn.Linear(2, 5), torch.nn.Linear(2, 7)
    advice = ". Give the architecture and the sizes with which it was trained."
    wide = describe(make(fc=five), make(fc=seven))
    assert wide == "fc.weight has the shape (7, 2) there and (5, 2) here (2 such parameters)" + advice
    assert describe(make(a=five), make(b=five)) == (
        "a.weight is in the model alone (2 such parameters); b.weight is in the checkpoint alone (2 such parameters)"
        + advice
    )
    words = make(embed_tokens=torch.nn.Embedding(9, 2)), make(embed_tokens=torch.nn.Embedding(8, 2))
    assert describe(*words).startswith("its dictionaries are not those of the data (8 words there and 9 here); binar")
    assert describe_mismatch("out of memory") is None
