"""The task: what fairseq gets for training, and that everything else is as with ``translation``."""

import itertools
import pickle
import shutil
from argparse import ArgumentParser, Namespace

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.data import LanguagePairDataset, data_utils
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf
from support.bpe_dropout_data import make_text_and_data, read_pairs

from muse_plugin.tasks.bpe_dropout import resegmented_pairs
from muse_plugin.tasks.translation_with_bpe_dropout import TranslationWithBpeDropoutTask
from muse_plugin_command import cli

SIZES = {"train": 200, "valid": 20, "test": 13}
NAME = "translation_with_bpe_dropout"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_text_and_data(tmp_path_factory.mktemp("made"), SIZES)


@pytest.fixture
def data(made, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(made, tmp_path / "bin")


def make_task(data, *flags, name=NAME):
    """Sets up a task from its flags; fairseq's whole parser, which the integration tests use, takes a second."""
    config = TASK_DATACLASS_REGISTRY[name]()
    parser = ArgumentParser(allow_abbrev=False)
    gen_parser_from_dataclass(parser, config)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--required-seq-len-multiple", type=int, default=1)
    args = vars(parser.parse_args([str(word) for word in (data, *flags)]))
    if name == "translation":
        del args["seed"]
    args = {**args, "_name": name, "train_subset": "train", "dataset_impl": None}
    return tasks.setup_task(OmegaConf.merge(OmegaConf.structured(config), args))


def load(data, *flags, epoch=1):
    task = make_task(data, *flags)
    task.load_dataset("train", epoch=epoch, combine=True, data_selector=None, tpu=False)
    return task.dataset("train")


def tokens(dataset):
    return [(entry["source"].tolist(), entry["target"].tolist()) for entry in map(dataset.__getitem__, range(200))]


def words(task, dataset):
    return [
        [dictionary.string(entry[side], bpe_symbol="subword_nmt") for entry in map(dataset.__getitem__, range(200))]
        for side, dictionary in (("source", task.src_dict), ("target", task.tgt_dict))
    ]


def batches(task, epoch=1, **settings):
    settings = {"max_tokens": 150, "max_positions": (1024, 1024), "ignore_invalid_inputs": True, "seed": 3, **settings}
    iterator = task.get_batch_iterator(task.dataset("train"), epoch=epoch, **settings)
    return iterator, list(iterator.next_epoch_itr())


def ids(loaded):
    return [sample["id"].tolist() for sample in loaded if sample]


def test_the_task_is_registered_once_and_is_ours():
    assert TASK_REGISTRY[NAME] is TranslationWithBpeDropoutTask
    config = TASK_DATACLASS_REGISTRY[NAME]()
    translation = TASK_DATACLASS_REGISTRY["translation"]()
    assert {key: getattr(config, key) for key in vars(translation) if key != "_name"} == {
        key: value for key, value in vars(translation).items() if key != "_name"
    }
    assert config.bpe_dropout == 0.1


def test_without_dropout_the_tokens_are_those_of_the_binarised_data(made):
    translation = make_task(made, name="translation")
    translation.load_dataset("train")
    ours = load(made, "--bpe-dropout", 0)
    assert tokens(ours) == tokens(translation.dataset("train"))
    assert np.array_equal(ours.sizes, translation.dataset("train").sizes)
    assert ours[0]["source"].dtype == torch.int64
    epochs = [tokens(ours)]
    ours.set_epoch(2)
    assert tokens(ours) == epochs[0]


def test_epochs_differ_but_hold_the_same_words(made):
    task = make_task(made)
    task.load_dataset("train")
    dataset = task.dataset("train")
    texts = [(made / f"train.tok.{lang}").read_text(encoding="utf-8").splitlines() for lang in ("de", "en")]
    seen = []
    for epoch in (1, 2, 3):
        dataset.set_epoch(epoch)
        assert words(task, dataset) == texts
        sizes = [(len(source), len(target)) for source, target in tokens(dataset)]
        assert sizes == [tuple(row) for row in dataset.sizes.tolist()]
        seen.append(tokens(dataset))
    assert seen[0] != seen[1] != seen[2] != seen[0]
    assert seen[2] == tokens(load(made, epoch=3)), "an epoch must not depend on the ones before it"
    assert seen[0] != tokens(load(made, "--seed", 4))


def test_each_side_can_have_its_own_dropout_and_codes(made, tmp_path):
    plain = tokens(load(made, "--bpe-dropout", 0))
    source_only = tokens(load(made, "--target-bpe-dropout", 0))
    target_only = tokens(load(made, "--source-bpe-dropout", 0, "--bpe-dropout", 0.3))
    for column, (same, other) in enumerate([(target_only, source_only), (source_only, target_only)]):
        assert [pair[column] for pair in same] == [pair[column] for pair in plain]
        assert [pair[column] for pair in other] != [pair[column] for pair in plain]
    assert target_only != tokens(load(made, "--source-bpe-dropout", 0))
    lines = (made / "bpe.codes").read_text(encoding="utf-8").splitlines(keepends=True)
    fewer = tmp_path / "fewer.codes"
    fewer.write_text("".join(lines[:280]), encoding="utf-8")
    own = tokens(load(made, "--bpe-dropout", 0, "--target-bpe-codes", fewer))
    assert [pair[0] for pair in own] == [pair[0] for pair in plain]
    assert [pair[1] for pair in own] != [pair[1] for pair in plain]


@pytest.fixture(scope="module", params=["sentencepiece:150", "sentencepiece:bpe:150", "sentencepiece:120 --separate"])
def pieces(request, tmp_path_factory):
    """Data of prepare-translation with the training text kept."""
    folder = tmp_path_factory.mktemp("pieces")
    for column, lang in enumerate(("de", "en")):
        lines = [pair[column] for pair in read_pairs()[:200]]
        (folder / f"text.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["prepare-translation", "--source-lang", "de", "--target-lang", "en", "--keep-train-text", "--subwords"]
    words += [
        *request.param.split(),
        "--train",
        folder / "text",
        "--valid",
        folder / "text",
        "--output",
        folder / "bin",
    ]
    assert cli.main([*map(str, words)]) == 0
    return folder / "bin"


def test_models_of_sentencepiece_are_sampled_and_repeatable(pieces):
    task = make_task(pieces, "--bpe-dropout", 0)
    plain = load(pieces, "--bpe-dropout", 0)
    for lang, side, dictionary in (("de", "source", task.src_dict), ("en", "target", task.tgt_dict)):
        binarised = data_utils.load_indexed_dataset(str(pieces / f"train.de-en.{lang}"), dictionary)
        assert [plain[i][side].tolist() for i in range(200)] == [line.tolist() for line in binarised]
    first, again, workers = (load(pieces, "--bpe-dropout", 0.2, "--bpe-dropout-workers", count) for count in (1, 1, 3))
    second = load(pieces, "--bpe-dropout", 0.2, epoch=2)
    assert tokens(first) == tokens(again) == tokens(workers)
    different = [a != b for a, b in zip(tokens(first), tokens(second), strict=True)]
    assert sum(different) > 100
    assert tokens(first) != tokens(plain)
    for dataset in (first, second):  # whatever the pieces, the text is the same
        for entry, whole in zip(map(dataset.__getitem__, range(200)), map(plain.__getitem__, range(200)), strict=True):
            for side, dictionary in (("source", task.src_dict), ("target", task.tgt_dict)):
                texts = [dictionary.string(each[side], "sentencepiece") for each in (entry, whole)]
                assert texts[0] == texts[1]


def test_a_damaged_model_of_sentencepiece_is_refused(pieces, tmp_path):
    (tmp_path / "a.model").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"a\.model must be a model of SentencePiece, but its 1 bytes are none"):
        load(pieces, "--bpe-codes", tmp_path / "a.model")


def test_the_number_of_workers_changes_nothing(made):
    assert tokens(load(made)) == tokens(load(made, "--bpe-dropout-workers", 3))


def test_text_and_codes_can_lie_elsewhere(data, tmp_path):
    expected = tokens(load(data))
    for lang in ("de", "en"):
        (data / f"train.tok.{lang}").rename(tmp_path / f"words.{lang}")
    (data / "bpe.codes").rename(tmp_path / "codes")
    assert tokens(load(data, "--train-text", tmp_path / "words", "--bpe-codes", tmp_path / "codes")) == expected


def test_every_epoch_has_new_batches_with_every_sentence_once(made):
    task = make_task(made)
    task.load_dataset("train")
    seen = []
    for epoch in (1, 2, 3):
        _, loaded = batches(task, epoch)
        for sample in loaded:
            assert max(sample["net_input"]["src_tokens"].numel(), sample["target"].numel()) <= 150
        assert sorted(itertools.chain.from_iterable(ids(loaded))) == list(range(200))
        seen.append(sorted(sorted(batch) for batch in ids(loaded)))
    assert seen[0] != seen[1] != seen[2]


def test_positions_are_limited_by_the_lengths_of_the_epoch(made):
    task = make_task(made, "--bpe-dropout", 0.5)
    task.load_dataset("train")
    left = []
    for epoch in (1, 2):
        _, loaded = batches(task, epoch, max_positions=(20, 20))
        fits = (task.dataset("train").sizes <= 20).all(axis=1)
        left.append(sorted(itertools.chain.from_iterable(ids(loaded))))
        assert left[-1] == np.flatnonzero(fits).tolist()
    assert 0 < len(left[0]) < 200
    assert left[0] != left[1]


def test_shards_of_data_parallel_processes_make_up_the_batches(made):
    whole = ids(batches(prepared(made), epoch=2)[1])
    shards = [ids(batches(prepared(made), epoch=2, num_shards=2, shard_id=shard)[1]) for shard in (0, 1)]
    assert len(whole) > 4
    assert shards[0] == whole[::2]
    assert shards[1] == whole[1::2]


def prepared(made, *flags):
    task = make_task(made, *flags)  # as in another process: nothing is shared
    task.load_dataset("train", epoch=2)
    return task


def test_processes_of_the_data_loader_see_the_current_epoch(made):
    task, alone = make_task(made), make_task(made)
    for each in (task, alone):
        each.load_dataset("train")
    for epoch in (1, 2, 3):
        loaded = batches(task, epoch, num_workers=2, data_buffer_size=3)[1]
        expected = batches(alone, epoch)[1]
        assert ids(loaded) == ids(expected)
        for sample, other in zip(loaded, expected, strict=True):
            assert torch.equal(sample["target"], other["target"])
            assert torch.equal(sample["net_input"]["src_tokens"], other["net_input"]["src_tokens"])


def test_the_data_set_can_be_sent_to_another_process(made):
    dataset = load(made)
    copy = pickle.loads(pickle.dumps(dataset))
    assert tokens(copy) == tokens(dataset)
    copy.set_epoch(2)
    dataset.set_epoch(2)
    assert tokens(copy) == tokens(dataset)


def test_padding_truncation_and_buckets_are_those_of_translation(made):
    flags = [
        "--left-pad-source", "--left-pad-target", "--truncate-source", "--max-source-positions", 7,
        "--required-seq-len-multiple", 4,
    ]  # fmt: skip
    ours = load(made, "--bpe-dropout", 0, *flags)
    translation = make_task(made, *flags, name="translation")
    translation.load_dataset("train")
    theirs = translation.dataset("train")
    assert np.array_equal(ours.sizes, theirs.sizes)
    assert ours.src_sizes.max() == 7
    one, other = (data.collater([data[i] for i in range(30)]) for data in (ours, theirs))
    assert torch.equal(one["target"], other["target"])
    assert all(torch.equal(one["net_input"][key], other["net_input"][key]) for key in one["net_input"])
    ours.set_epoch(2)
    assert ours.src_sizes.max() == 7
    bucketed = load(made, "--num-batch-buckets", 3, "--bpe-dropout", 0.4)
    first = bucketed.bucketed_num_tokens.copy()
    assert len(bucketed.get_batch_shapes()) <= 9
    bucketed.set_epoch(2)
    assert not np.array_equal(first, bucketed.bucketed_num_tokens)


def test_validation_and_generation_never_look_at_the_text(data):
    for path in (*data.glob("train.tok.*"), data / "bpe.codes"):
        path.unlink()
    task = make_task(data, "--bpe-dropout", 7)
    for split in ("valid", "test"):
        task.load_dataset(split, combine=False, epoch=1)
        assert type(task.dataset(split)) is LanguagePairDataset
        assert len(task.dataset(split)) == SIZES[split]
    task.load_dataset("train", task_cfg=Namespace())  # as fairseq-generate --gen-subset train does
    assert type(task.dataset("train")) is LanguagePairDataset
    assert isinstance(task, TranslationTask)


def test_missing_files_are_reported_together(data):
    for path in (data / "train.tok.en", data / "bpe.codes"):
        path.unlink()
    with pytest.raises(FileNotFoundError) as error:
        load(data, "--target-bpe-codes", data / "other.codes")
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"the training text {data}/train.tok.en does not exist; name by --train-text the prefix")
    assert lines[1].startswith(f"the BPE codes {data}/bpe.codes do not exist; name by --bpe-codes")
    assert lines[2].startswith(f"the BPE codes {data}/other.codes do not exist")


def test_flags_out_of_range_are_reported_together(made):
    flags = ["--bpe-dropout", 1, "--source-bpe-dropout", -0.5, "--target-bpe-dropout", "nan"]
    with pytest.raises(ValueError, match="must lie") as error:
        load(made, *flags, "--bpe-dropout-workers", 0)
    assert str(error.value).splitlines() == [
        "--bpe-dropout must lie in [0, 1), but got 1.0; 0.1 is usual.",
        "--source-bpe-dropout must lie in [0, 1), but got -0.5; 0.1 is usual.",
        "--target-bpe-dropout must lie in [0, 1), but got nan; 0.1 is usual.",
        "--bpe-dropout-workers must be at least 1, but got 0.",
    ]


def test_flags_without_a_meaning_are_refused(made):
    with pytest.raises(NotImplementedError) as error:
        load(f"{made}:{made}", "--load-alignments", "--upsample-primary", 2)
    assert str(error.value).splitlines() == [
        "BPE-dropout does not work with several folders of data; give one, as all training text comes from "
        "--train-text.",
        "BPE-dropout does not work with --load-alignments; drop it, as alignments are of one fixed segmentation.",
        "BPE-dropout does not work with --upsample-primary; repeat lines in --train-text instead.",
    ]


def test_text_that_does_not_fit_is_refused(data):
    path = data / "train.tok.en"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-3]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"same number of lines, but got 200 in .* and 197 in "):
        load(data)
    path.write_text("".join([*lines[:5], "\n", *lines[6:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 6 of \S+train\.tok\.en is empty"):
        load(data)
    path.write_text("".join(lines).upper(), encoding="utf-8")
    with pytest.raises(ValueError, match=r"does not fit the BPE codes or the text: .* the dictionary of 'en'"):
        load(data)
    path.write_text("".join(lines), encoding="utf-8")
    other = data / "other.codes"
    other.write_text("#version: 0.2\nq q\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"segmented with \S+other\.codes, are not in the dictionary of 'en'"):
        load(data, "--target-bpe-codes", other)
    with pytest.raises(ValueError, match=r"segmented with \S+other\.codes, are not in the dictionary of 'de'"):
        load(data, "--bpe-codes", other, "--target-bpe-codes", data / "bpe.codes")


def test_another_number_of_sentences_than_binarised_is_mentioned(data, caplog):
    load(data)
    assert "binarised training data" not in caplog.text
    for lang in ("de", "en"):
        path = data / f"train.tok.{lang}"
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:150]), encoding="utf-8")
    dataset = load(data)
    assert len(dataset) == 150
    assert "the training text has 150 sentences, but the binarised training data in " in caplog.text
    for path in data.glob("train.de-en.*"):
        path.unlink()
    assert len(load(data)) == 150  # the binarised training data need not exist


def test_data_sets_of_one_language_count_their_tokens():
    flat = resegmented_pairs.FlatTokens(np.arange(6, dtype=np.uint16), np.array([1, 3, 2], dtype=np.int32))
    assert [flat[i].tolist() for i in range(3)] == [[0], [1, 2, 3], [4, 5]]
    assert (len(flat), flat.num_tokens(1), flat.size(2)) == (3, 3, 2)
