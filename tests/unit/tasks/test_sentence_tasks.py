"""What sentence tasks read from disk, how it becomes batches, and what they refuse."""

import re
import shutil
from argparse import Namespace
from itertools import chain

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf
from support.helpers import assert_close
from support.sentence_models import dictionary_of, spell, write_column, write_data

from muse_plugin.tasks.sentence_classification import MuseSentenceClassificationTask, SentenceClassificationConfig
from muse_plugin.tasks.sentences.columns import LONGEST_WORD, WORD_SEPARATOR, Sentence
from muse_plugin.tasks.sequence_tagging import MuseSequenceTaggingTask, SequenceTaggingConfig
from muse_plugin.text.lowered_words import lower_word

TRAIN = [
    ("a very good film", "pos"),
    ("bad", "neg"),
    ("not good at all", "neg"),
    ("good good good", "pos"),
    ("so so", "neutral"),
]
VALID = [("a bad film", "neg"), ("very new words here", "pos")]
PAIRS = [("a b c", "a b", "yes"), ("b", "c d e f", "no"), ("c c", "a", "yes")]
TAGGED = [("Anna went to Old Town", "B-PER O O B-LOC I-LOC"), ("rain", "O"), ("Anna slept", "B-PER O")]


def classify(folder, **flags):
    return MuseSentenceClassificationTask(SentenceClassificationConfig(data=str(folder), **flags))


def tag(folder, **flags):
    return MuseSequenceTaggingTask(SequenceTaggingConfig(data=str(folder), **flags))


@pytest.fixture
def single(tmp_path):
    return write_data(tmp_path / "data", {"train": TRAIN, "valid": VALID})


@pytest.fixture
def pairs(tmp_path):
    return write_data(tmp_path / "data", {"train": PAIRS}, ("input0", "input1", "label"), characters=True)


@pytest.fixture
def tagged(tmp_path):
    return write_data(tmp_path / "data", {"train": TAGGED}, characters=True)


def words_of(task, sentence):
    return [task.source_dictionary[int(word)] for word in sentence.tokens]


def spelling_of(task, sentence):
    return ["".join(task.character_dictionary[int(c)] for c in word) for word in sentence.characters]


def raises(sentence, error=ValueError):
    return pytest.raises(error, match=f"^{re.escape(sentence)}$")


# ---- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["muse_sentence_classification", "muse_sequence_tagging"])
def test_the_registered_task_is_ours(name):
    assert TASK_REGISTRY[name].__module__.startswith("muse_plugin.tasks.")


def test_sentences_and_labels_are_those_of_the_text(single):
    task = classify(single)
    dataset = task.load_dataset("train")
    assert (task.predicts, task.pairs, task.outputs) == ("label", False, 3)
    assert task.labels == ["neg", "pos", "neutral"]  # the most frequent first, then in the order of the text
    assert len(dataset) == 5
    for i, (text, label) in enumerate(TRAIN):
        item = dataset[i]
        assert words_of(task, item["texts"][0]) == text.split()
        assert task.labels[int(item["target"])] == label
        assert (dataset.num_tokens(i), dataset.size(i)) == (len(text.split()),) * 2
    assert dataset.num_tokens_vec(np.array([3, 1])).tolist() == [3, 1]
    unknown = task.load_dataset("valid")[1]["texts"][0]
    assert words_of(task, unknown) == ["very", "<unk>", "<unk>", "<unk>"]


def test_unknown_words_can_be_dropped(single):
    task = classify(single, unknown_words="drop", max_words=3)
    valid = [("new film of new words", "pos"), ("nothing known", "neg"), ("a b bad film", "neg")]
    write_column(single / "input0", "valid", [text for text, _ in valid], task.source_dictionary)
    write_column(single / "label", "valid", [label for _, label in valid], task.label_dictionary)
    dataset = task.load_dataset("valid")
    expected = [["film"], ["<unk>"], ["a", "bad"]]  # of the first three words; one where no other is left
    assert [words_of(task, dataset[i]["texts"][0]) for i in range(3)] == expected
    assert dataset.sizes.tolist() == [1, 1, 2]
    assert [words_of(task, task.encode(text.split()[:3])) for text, _ in valid] == expected
    assert words_of(task, task.load_dataset("train")[0]["texts"][0]) == ["a", "very", "good"]


def test_unknown_words_with_characters_are_not_dropped(pairs):
    sentence = (
        f"--unknown-words drop is for data of words alone, but {pairs} has their characters, which tell unknown words "
        "apart; drop the flag, or prepare the data without --characters."
    )
    with raises(sentence):
        classify(pairs, unknown_words="drop")


def test_data_without_the_sign_for_the_end_are_read_alike(tmp_path):
    texts = [text for text, _ in TRAIN]
    for name, ends in (("with", True), ("without", False)):
        write_column(tmp_path / name / "input0", "train", texts, dictionary_of(texts), append_eos=ends)
        labels = [label for _, label in TRAIN]
        write_column(tmp_path / name / "label", "train", labels, dictionary_of(labels), append_eos=ends)
    one, other = (classify(tmp_path / name).load_dataset("train") for name in ("with", "without"))
    for i in range(5):
        assert one[i]["texts"][0].tokens.tolist() == other[i]["texts"][0].tokens.tolist()
        assert one[i]["target"] == other[i]["target"]


def test_symbols_that_only_fill_up_the_dictionary_of_labels_are_no_classes(tmp_path):
    folder = write_data(tmp_path, {"train": TRAIN})
    labels = [label for _, label in TRAIN]
    write_column(folder / "label", "train", labels, dictionary_of(labels, padding_factor=8))
    assert len(Dictionary.load(str(folder / "label" / "dict.txt"))) == 8
    assert classify(folder).labels == ["neg", "pos", "neutral"]


def test_pairs_and_characters_are_those_of_the_text(pairs):
    task = classify(pairs)
    dataset = task.load_dataset("train")
    assert task.pairs
    for i, row in enumerate(PAIRS):
        first, second = dataset[i]["texts"]
        for sentence, text in ((first, row[0]), (second, row[1])):
            assert words_of(task, sentence) == spelling_of(task, sentence) == text.split()
        assert dataset.num_tokens(i) == max(len(row[0].split()), len(row[1].split()))


def test_tags_stand_next_to_their_words(tagged):
    task = tag(tagged, entities=True)
    dataset = task.load_dataset("train")
    assert (task.predicts, task.outputs) == ("tags", 4)
    for i, (text, tags) in enumerate(TAGGED):
        item = dataset[i]
        assert [task.labels[int(one)] for one in item["target"]] == tags.split()
        assert words_of(task, item["texts"][0]) == text.split()
        assert spelling_of(task, item["texts"][0]) == text.split()


def test_numbers_are_read_as_written(tmp_path):
    rows = [("a b", "0.5 -2"), ("b", "1e3 7"), ("a", "0 0.25")]
    folder = write_data(tmp_path, {"train": rows}, numbers=True)
    task = classify(folder, numbers=2)
    assert (task.predicts, task.outputs, task.labels, task.target_dictionary) == ("number", 2, [], None)
    dataset = task.load_dataset("train")
    batch = dataset.collater([dataset[i] for i in range(3)])
    assert_close(batch["target"], [[0.5, -2], [1000, 7], [0, 0.25]])


def test_a_lower_cased_word_is_spelt_as_it_was_written(tagged):
    task = tag(tagged)
    words = [lower_word(word) for word in ("Anna", "RAIN", "rain")]
    assert words == ["anna", "rain", "rain"]
    sentence = task.encode(words)
    assert words_of(task, sentence) == ["<unk>", "rain", "rain"]
    # no training text has R, I and N: as data that were lower-cased altogether, they count as r, i and n
    assert spelling_of(task, sentence) == ["Anna", "rAin", "rain"]
    assert spelling_of(task, task.encode(["RAIN"])) == ["<unk>A<unk><unk>"]  # text that keeps its case is as it is


@pytest.mark.parametrize("characters", [False, True])
def test_encoded_text_equals_what_the_loaded_data_hold(tmp_path, characters):
    long = "x" * (LONGEST_WORD + 20)
    rows = [*TRAIN, (f"{long} film é", "pos")]
    folder = write_data(tmp_path, {"train": rows, "test": [("unseen film ü", "neg")]}, characters=characters)
    task = classify(folder)
    for split, texts in (("train", [text for text, _ in rows]), ("test", ["unseen film ü"])):
        dataset = task.load_dataset(split)
        for i, text in enumerate(texts):
            stored, encoded = dataset[i]["texts"][0], task.encode(text.split())
            assert encoded.tokens.tolist() == stored.tokens.tolist()
            assert (stored.characters is None) == (encoded.characters is None) == (not characters)
            if characters:
                assert [c.tolist() for c in encoded.characters] == [c.tolist() for c in stored.characters]
                assert max(map(len, stored.characters)) <= LONGEST_WORD
    sentences = [[task.encode(text.split())] for text, _ in rows]
    memory, disk = task.build_dataset_for_inference(sentences, []), task.load_dataset("train")
    one, other = (data.collater([data[i] for i in range(6)]) for data in (memory, disk))
    assert "target" not in one
    assert one["net_input"].keys() == other["net_input"].keys()
    for name, tensor in other["net_input"].items():
        assert_close(one["net_input"][name], tensor, atol=0, rtol=0)


def test_pairs_in_memory_equal_those_on_disk(pairs):
    task = classify(pairs)
    disk = task.load_dataset("train")
    memory = task.build_dataset_for_inference([[task.encode(t.split()) for t in row[:2]] for row in PAIRS], [])
    one, other = (data.collater([data[i] for i in range(3)])["net_input"] for data in (memory, disk))
    assert sorted(one) == sorted(other)
    assert sorted(one) == sorted(f"{p}_{n}" for p in ("src", "pair") for n in ("tokens", "lengths", "characters"))
    for name, tensor in other.items():
        assert_close(one[name], tensor, atol=0, rtol=0)


def test_a_word_that_holds_the_sign_between_words_stays_one_word(pairs):
    task = classify(pairs)
    sentence = task.encode([f"a{WORD_SEPARATOR}b"])
    assert len(sentence.characters) == 1
    assert task.character_dictionary.index(WORD_SEPARATOR) not in sentence.characters[0].tolist()


# ---- long texts ---------------------------------------------------------------------------------------------------


def test_long_texts_are_truncated_and_counted_in_the_log(tagged, caplog):
    with caplog.at_level("INFO"):
        dataset = tag(tagged, max_words=2).load_dataset("train")
    assert "train: 1 texts (33.3 %) are longer than 2 words and truncated" in caplog.text
    assert dataset.sizes.tolist() == [2, 1, 2]
    item = dataset[0]
    assert [len(part) for part in (*item["texts"][0], item["target"])] == [2, 2, 2]
    caplog.clear()
    with caplog.at_level("INFO"):
        tag(tagged, max_words=5).load_dataset("train")
    assert "longer than" not in caplog.text


def test_both_texts_of_a_pair_are_truncated(pairs):
    dataset = classify(pairs, max_words=2).load_dataset("train")
    assert [[len(s.tokens) for s in dataset[i]["texts"]] for i in range(3)] == [[2, 2], [1, 2], [2, 1]]


def test_long_texts_can_be_refused(single):
    task = classify(single, max_words=2, long_texts="refuse")
    with raises(
        f"--long-texts refuse allows 2 words, but 3 texts of {single / 'input0' / 'train'} are longer, the first is "
        "line 1 with 4; raise --max-words, or truncate."
    ):
        task.load_dataset("train")
    assert len(classify(single, max_words=4, long_texts="refuse").load_dataset("train")) == 5


# ---- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_is_padded_with_signs_that_stand_for_nothing(tagged):
    task = tag(tagged)
    dataset = task.load_dataset("train")
    batch = dataset.collater([dataset[i] for i in (1, 0, 2)])
    assert batch["id"].tolist() == [1, 0, 2]
    assert (batch["nsentences"], batch["ntokens"]) == (3, 8)
    assert sorted(batch["net_input"]) == ["src_characters", "src_lengths", "src_tokens"]
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    assert (tokens.shape, tokens.dtype, lengths.tolist()) == ((3, 5), torch.int64, [1, 5, 2])
    outside = torch.arange(5) >= lengths[:, None]
    assert (tokens[outside] == task.source_dictionary.pad()).all()
    assert (tokens[~outside] != task.source_dictionary.pad()).all()
    assert (batch["target"][outside] == -1).all()
    assert (batch["target"][~outside] >= 0).all()
    characters = batch["net_input"]["src_characters"]
    assert characters.shape == (3, 5, 5)
    pad = task.character_dictionary.pad()
    spelt = [[int((word != pad).sum()) for word in row] for row in characters]
    assert spelt == [[4, 0, 0, 0, 0], [4, 4, 2, 3, 4], [4, 5, 0, 0, 0]]


def test_a_batch_of_pairs_has_both_texts(pairs):
    dataset = classify(pairs).load_dataset("train")
    batch = dataset.collater([dataset[i] for i in range(3)])
    assert batch["net_input"]["src_tokens"].shape == (3, 3)
    assert batch["net_input"]["pair_tokens"].shape == (3, 4)
    assert batch["net_input"]["pair_lengths"].tolist() == [2, 4, 1]
    assert batch["ntokens"] == 13
    assert (batch["target"].shape, batch["target"].dtype) == ((3,), torch.int64)
    assert dataset.collater([]) == {}


@pytest.fixture
def larger(tmp_path):
    """60 sentences of 1 to 9 words, and as many to validate on."""
    generator = np.random.default_rng(1)
    splits = {}
    for split in ("train", "valid"):
        counts = generator.integers(1, 10, 60)
        splits[split] = [(" ".join(["w"] * n), ("odd", "even")[int(n) % 2]) for n in counts]
    return write_data(tmp_path / "larger", splits)


def batches_of(folder, split="train", seed=1, epoch=1, **flags):
    task = classify(folder, **flags)
    task.load_dataset(split)
    iterator = task.get_batch_iterator(task.dataset(split), max_sentences=7, seed=seed, epoch=epoch)
    return [batch["id"].tolist() for batch in iterator.next_epoch_itr(shuffle=split == "train")]


def test_batches_differ_between_epochs_and_are_a_function_of_the_seed(larger):
    first, second = batches_of(larger), batches_of(larger, epoch=2)
    for batches in (first, second):
        assert sorted(chain.from_iterable(batches)) == list(range(60))
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}  # not only their order
    assert batches_of(larger) == first
    assert batches_of(larger, epoch=2) == second
    assert batches_of(larger, seed=2) != first


def test_one_task_makes_new_batches_in_each_epoch(larger):
    task = classify(larger)
    dataset = task.load_dataset("train")
    found = []
    for epoch in (1, 2, 3):
        iterator = task.get_batch_iterator(dataset, max_sentences=7, seed=1, epoch=epoch)
        found.append([batch["id"].tolist() for batch in iterator.next_epoch_itr()])
    assert found == [batches_of(larger, epoch=epoch) for epoch in (1, 2, 3)]
    assert len({str(batches) for batches in found}) == 3


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_batch_that_cannot_hold_the_longest_text_is_refused(larger, split):
    """fairseq leaves such texts out of a training, and ends validation with an assertion that names no text."""
    task = classify(larger)
    dataset = task.load_dataset(split)
    sentence = (
        "--max-tokens and --max-tokens-valid must hold the longest text, which has 9 words, but one is 8; raise it or "
        "lower --max-words."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        task.get_batch_iterator(dataset, max_tokens=8)
    batches = task.get_batch_iterator(dataset, max_tokens=9).next_epoch_itr()
    assert sorted(chain.from_iterable(batch["id"].tolist() for batch in batches)) == list(range(60))


def test_sentences_of_similar_length_meet_in_a_batch(larger):
    lengths = classify(larger).load_dataset("train").sizes
    # Lengths are taken by up to a fifth longer or shorter.
    assert all(lengths[batch].max() * 0.8 <= lengths[batch].min() * 1.2 + 1 for batch in batches_of(larger))


def test_validation_is_in_the_order_of_lengths_and_always_the_same(larger):
    lengths = classify(larger).load_dataset("valid").sizes
    order = [*chain.from_iterable(batches_of(larger, "valid"))]
    assert (np.diff(lengths[order]) >= 0).all()
    assert batches_of(larger, "valid", seed=5, epoch=9) == batches_of(larger, "valid")


def test_what_fairseq_trains_with_is_shuffled_whatever_its_name(larger):
    dataset = classify(larger).load_dataset("valid", combine=True, epoch=1, data_selector=None, tpu=False)
    assert dataset.shuffle
    assert not classify(larger).load_dataset("valid", combine=True, epoch=1).shuffle


def test_raises_error_when_a_split_is_in_parts(larger):
    for end in ("bin", "idx"):
        shutil.copy(larger / "input0" / f"valid.{end}", larger / "input0" / f"train1.{end}")
    with raises(
        f"sentence tasks read a split of one part, but {larger} has train and train1; join the texts and prepare them "
        "as one."
    ):
        classify(larger).load_dataset("train", combine=True)
    assert len(classify(larger).load_dataset("train")) == 60


def test_training_without_shuffling_is_in_the_order_of_lengths(larger):
    dataset = classify(larger, no_shuffle=True).load_dataset("train")
    order = dataset.ordered_indices()
    assert (np.diff(dataset.sizes[order]) >= 0).all()
    assert order.tolist() == dataset.ordered_indices().tolist()


def test_many_sentences_are_not_sorted_as_a_whole():
    class Column:
        sizes = np.random.default_rng(3).integers(1, 50, 5000)

        def __len__(self):
            return 5000

    from muse_plugin.tasks.sentences.sentence_dataset import SentenceDataset

    order = SentenceDataset([Column()], padding=1, shuffle=True).ordered_indices()
    assert sorted(order.tolist()) == list(range(5000))
    # Long sentences come at the end of each stretch, and short ones begin the next.
    falls = np.diff(Column.sizes[order]) < -30
    assert np.flatnonzero(falls).tolist() == [1599, 3199, 4799]


# ---- what is refused ----------------------------------------------------------------------------------------------


def rewrite(folder, column, split, lines):
    """Another text in the dictionary that is there."""
    write_column(folder / column, split, lines, Dictionary.load(str(folder / column / "dict.txt")))


@pytest.mark.parametrize("column", ["input0", "label"])
def test_raises_error_when_a_dictionary_is_missing(single, column):
    (single / column / "dict.txt").unlink()
    with raises(
        f"the data must hold {single / column / 'dict.txt'}, but it is not there; make the data with muse-plugin "
        "prepare-text, and give their folder first, e.g. fairseq-train DATA ...",
        FileNotFoundError,
    ):
        classify(single)


@pytest.mark.parametrize("column", ["input0", "label"])
def test_raises_error_when_a_split_is_missing(single, column):
    for path in (single / column).glob("valid.*"):
        path.unlink()
    with raises(
        f"the data must hold {single / column / 'valid'}.bin and .idx, but they are not there; prepare that split with "
        "muse-plugin prepare-text.",
        FileNotFoundError,
    ):
        classify(single).load_dataset("valid")


def test_raises_error_when_a_label_was_not_in_the_training_data(single):
    rewrite(single, "label", "valid", ["neg", "mixed"])
    path = single / "label" / "valid"
    with raises(
        f"every label must be in label/dict.txt, made from the training data, but 1 lines of {path} hold another one, "
        "the first is line 2; correct the file, or prepare the data again."
    ):
        classify(single).load_dataset("valid")


def test_raises_error_when_a_tag_was_not_in_the_training_data(tagged):
    rewrite(tagged, "label", "train", ["B-PER O O B-LOC I-LOC", "O", "B-PER B-MISC"])
    with raises(
        f"every label must be in label/dict.txt, made from the training data, but 1 lines of "
        f"{tagged / 'label' / 'train'} hold another one, the first is line 3; correct the file, or prepare the data "
        "again."
    ):
        tag(tagged).load_dataset("train")


@pytest.mark.parametrize("labels", [["neg"], ["neg", "pos", "pos"]])
def test_raises_error_when_there_are_more_or_fewer_labels_than_sentences(single, labels):
    rewrite(single, "label", "valid", labels)
    with raises(
        f"every sentence must have its line, but {single / 'label' / 'valid'} has {len(labels)} labels for 2 "
        "sentences; prepare both from the same file."
    ):
        classify(single).load_dataset("valid")


@pytest.mark.parametrize(("line", "count"), [("neg pos", 2), ("", 0)])
def test_raises_error_when_a_sentence_has_not_one_label(single, line, count):
    rewrite(single, "label", "valid", ["neg", line])
    with raises(
        f"every sentence must have one label, but line 2 of {single / 'label' / 'valid'} has {count}; a tag per word "
        "needs --task muse_sequence_tagging."
    ):
        classify(single).load_dataset("valid")


def test_raises_error_when_a_text_is_empty(single):
    rewrite(single, "input0", "train", ["a", "", "film", "", "so"])
    with raises(
        f"every text must have at least one word, but 2 of {single / 'input0' / 'train'} have none, the first in line "
        "2; leave those lines out, of the labels too, and binarise again."
    ):
        classify(single).load_dataset("train")


@pytest.mark.parametrize(("tags", "count"), [("B-PER O O", 3), ("O", 1)])
def test_raises_error_when_there_are_not_as_many_tags_as_words(tagged, tags, count):
    rewrite(tagged, "label", "train", [TAGGED[0][1], "O", tags])
    with raises(
        f"every word must have one tag, but line 3 of {tagged / 'label' / 'train'} has {count} tags for 2 words; "
        "prepare both from the same file, or if there is a label for each text, use --task "
        "muse_sentence_classification."
    ):
        tag(tagged).load_dataset("train")


def test_raises_error_when_there_are_fewer_lines_of_tags(tagged):
    rewrite(tagged, "label", "train", ["O"])
    with raises(
        f"every sentence must have its line, but {tagged / 'label' / 'train'} has 1 lines of tags for 3 sentences; "
        "prepare both from the same file."
    ):
        tag(tagged).load_dataset("train")


@pytest.mark.parametrize("names", [["yes"], []])
def test_raises_error_when_there_is_nothing_to_tell_apart(single, names):
    dictionary_of(names).save(str(single / "label" / "dict.txt"))
    with raises(
        f"there must be at least two labels to tell apart, but {single / 'label' / 'dict.txt'} has {len(names)}."
    ):
        classify(single)


def test_raises_error_when_the_texts_of_a_pair_have_two_dictionaries(pairs):
    dictionary_of(["a b z"]).save(str(pairs / "input1" / "dict.txt"))
    with raises(
        f"both texts of a pair must have one dictionary, but those of input0 and input1 in {pairs} differ; prepare the "
        "data with muse-plugin prepare-text, or binarise input1 with --srcdict input0/dict.txt."
    ):
        classify(pairs)


def test_raises_error_when_half_of_a_pair_is_missing(pairs):
    shutil.rmtree(pairs / "characters0")
    shutil.rmtree(pairs / "characters1")
    rewrite(pairs, "input1", "train", ["a b", "c"])
    with raises(
        f"pairs must have two texts, but split train has 3 in input0 and 2 in input1 of {pairs}; prepare both from the "
        "same file."
    ):
        classify(pairs).load_dataset("train")


def test_raises_error_when_characters_do_not_fit_their_words(tagged):
    lines = [spell(text) for text, _ in TAGGED]
    rewrite(tagged, "characters0", "train", [*lines[:2], spell("Anna")])
    dataset = tag(tagged).load_dataset("train")
    assert isinstance(dataset[1]["texts"][0], Sentence)
    with raises(
        f"every word must have its characters, but line 3 of {tagged / 'input0'} has 2 words and characters of 1; "
        "prepare both from the same text."
    ):
        dataset[2]
    rewrite(tagged, "characters0", "train", lines[:2])
    with raises(
        f"every sentence must have its line, but {tagged / 'characters0' / 'train'} has 2 lines of characters for 3 "
        "sentences; prepare both from the same file."
    ):
        tag(tagged).load_dataset("train")


@pytest.mark.parametrize(
    ("tags", "listed"), [("S-PER O", "S-PER"), ("NN VB", "NN, VB"), ("B- I-X", "B-"), ("B E-X", "B, E-X")]
)
def test_raises_error_when_entities_are_wanted_of_other_tags(tmp_path, tags, listed):
    folder = write_data(tmp_path, {"train": [("a b", tags)]})
    tag(folder)
    with raises(
        f"--entities needs tags O, B-X and I-X, but label/dict.txt in {folder} has {listed}; drop the flag to measure "
        "tags alone."
    ):
        tag(folder, entities=True)


def test_entity_tags_that_continue_nothing_are_counted(tmp_path, caplog):
    rows = [("a b c", "B-PER I-PER O"), ("a b", "O I-LOC"), ("a b c", "I-PER I-PER I-LOC"), ("a b", "B-LOC I-LOC")]
    folder = write_data(tmp_path, {"train": rows})
    tag(folder).load_dataset("train")
    assert "continue nothing" not in caplog.text
    tag(folder, entities=True).load_dataset("train")
    assert "train: 3 tags I-X continue nothing, the first in line 2; conlleval's rules" in caplog.text


@pytest.mark.parametrize("line", ["1", "1 2 3", "one 2", "nan 1", "1 inf", ""])
def test_raises_error_when_numbers_are_malformed(tmp_path, line):
    folder = write_data(tmp_path, {"train": [("a b", "1 2"), ("b", line)]}, numbers=True)
    path = folder / "label" / "train.label"
    with raises(f"--numbers 2 needs as many finite numbers in every line, but line 2 of {path} is {line!r}."):
        classify(folder, numbers=2).load_dataset("train")


def test_raises_error_when_numbers_are_missing_or_too_few(tmp_path):
    folder = write_data(tmp_path, {"train": [("a b", "1"), ("b", "2")]}, numbers=True)
    path = folder / "label" / "train.label"
    path.write_text("1\n")
    with raises(
        f"every sentence must have its line, but {path} has 1 lines of numbers for 2 sentences; prepare both from the "
        "same file."
    ):
        classify(folder, numbers=1).load_dataset("train")
    path.unlink()
    with raises(
        f"--numbers reads {path}, but it is not there; or prepare the data with muse-plugin prepare-text --numbers.",
        FileNotFoundError,
    ):
        classify(folder, numbers=1).load_dataset("train")


def test_labels_and_numbers_taken_for_each_other_are_named(single, tmp_path):
    path = single / "label" / "train.label"
    with raises(
        f"--numbers reads {path}, but the data have labels: drop --numbers; or prepare the data with muse-plugin "
        "prepare-text --numbers.",
        FileNotFoundError,
    ):
        classify(single, numbers=1).load_dataset("train")
    folder = write_data(tmp_path / "numbers", {"train": [("a b", "1"), ("b", "2")]}, numbers=True)
    with raises(
        f"labels need {folder / 'label' / 'dict.txt'}, but these data have numbers: give --numbers, which says how "
        "many a sentence has, and --criterion muse_sentence_regression."
    ):
        classify(folder)


def test_raises_error_when_a_limit_is_out_of_range(single):
    with raises("--max-words must be at least 1, but got 0."):
        classify(single, max_words=0)
    with raises("--numbers must be at least 0, but got -1; 0 is for labels."):
        classify(single, numbers=-1)


# ---- models and criterions that do not fit ------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["muse_tiny", "plain_transformer", "transformer", "lstm", "transformer_lm"])
def test_raises_error_when_the_model_translates(single, arch):
    sentence = (
        f"this task needs a model of sentences, but --arch {arch} writes sentences, as translation does; use one such "
        "as --arch sentence_transformer, or --task translation."
    )
    with raises(sentence):
        classify(single).build_model(Namespace(arch=arch))


@pytest.mark.parametrize(
    ("name", "settings", "flags", "wanted"),
    [
        ("cross_entropy", {"sentence_avg": False}, {}, "muse_sentence_classification"),
        ("cross_entropy", {"sentence_avg": False}, {"numbers": 1}, "muse_sentence_regression"),
        ("sentence_prediction", {}, {}, "muse_sentence_classification"),
    ],
)
def test_raises_error_when_the_criterion_is_fairseqs(single, name, settings, flags, wanted):
    sentence = (
        f"this task needs a criterion for what it predicts, but got --criterion {name}, which fairseq takes where none "
        f"is named; give --criterion {wanted}."
    )
    with raises(sentence):
        classify(single, **flags).build_criterion(OmegaConf.create({"_name": name, **settings}))


def test_the_criterion_of_the_task_is_taken(single):
    built = classify(single).build_criterion(OmegaConf.create({"_name": "muse_sentence_classification"}))
    assert built.predicts == "label"
