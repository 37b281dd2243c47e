"""The prepared folder is what fairseq's own preprocessing makes and fairseq's own loaders read."""

import filecmp
import gzip
import json
from argparse import Namespace

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from muse_plugin.text.text_settings import FILE_NAME, load_text_settings
from muse_plugin.text.tokenizer import Tokenizer

TRAIN = "pos\ta good film , a great one\nneg\ta bad film\npos\tgood good fun\nneg\tno fun\n"
VALID = "neg\ta dull film\npos\tgreat fun\n"


def load_lines(folder, split):
    """The token strings of a binarised split, through fairseq's loader; the end of the sentence included."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return [" ".join(dictionary[int(i)] for i in item) for item in dataset]


def column(text, position):
    return "".join(line.split("\t")[position] + "\n" for line in text.splitlines())


def same_files(one, other, names):
    match, mismatch, errors = filecmp.cmpfiles(one, other, names, shallow=False)
    return sorted(match) == sorted(names) and not mismatch and not errors


@pytest.mark.parametrize(
    ("flags", "fairseq_flags"),
    [
        ([], []),
        (["--threshold", 2], ["--thresholdsrc", 2]),
        # fairseq counts its four special symbols
        (["--max-words", 3], ["--nwordssrc", 7]),
    ],
)
def test_texts_are_byte_for_byte_what_fairseq_preprocess_makes(
    tmp_path, write, prepare, fairseq_preprocess, flags, fairseq_flags
):
    prepare("--train", write("train", TRAIN), "--valid", write("valid", VALID), "--test", write("t", VALID), *flags)
    texts = [write(f"{name}.words", column(text, 1)) for name, text in (("train", TRAIN), ("valid", VALID))]
    fairseq_preprocess(
        *("--trainpref", texts[0], "--validpref", texts[1], "--testpref", texts[1]),
        *("--destdir", tmp_path / "theirs"),
        *fairseq_flags,
    )
    names = ["dict.txt", *(f"{split}.{end}" for split in ("train", "valid", "test") for end in ("bin", "idx"))]
    assert same_files(tmp_path / "data" / "input0", tmp_path / "theirs", names)


def test_labels_are_what_fairseq_preprocess_makes_with_the_same_dictionary(
    tmp_path, write, prepare, fairseq_preprocess
):
    prepare("--train", write("train", TRAIN), "--valid", write("valid", VALID))
    label = tmp_path / "data" / "label"
    assert (label / "dict.txt").read_text() == "neg 2\npos 2\n"
    fairseq_preprocess(
        *("--trainpref", write("train.label", column(TRAIN, 0)), "--validpref", write("v.label", column(VALID, 0))),
        *("--srcdict", label / "dict.txt", "--destdir", tmp_path / "theirs"),
    )
    names = ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"]
    assert same_files(label, tmp_path / "theirs", names)
    assert load_lines(label, "valid") == ["neg </s>", "pos </s>"]


def test_the_folder_holds_the_layout_and_nothing_else(tmp_path, write, prepare):
    test = write("a.test", VALID)
    prepare("--train", write("train", TRAIN), "--test", test, test, "--characters")
    data = tmp_path / "data"
    ends = [f"{split}.{end}" for split in ("test", "test1", "train") for end in ("bin", "idx")]
    assert sorted(path.name for path in data.iterdir()) == ["characters0", "input0", "label", FILE_NAME]
    for key in ("characters0", "input0", "label"):
        assert sorted(path.name for path in (data / key).iterdir()) == ["dict.txt", *ends]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.test", "data", "train"]


def test_the_settings_say_what_was_made(tmp_path, write, prepare):
    train, valid = write("a.train", TRAIN), write("a.valid", VALID)
    prepare("--train", train, "--valid", valid, "--lower-case", "--threshold", 2)
    content = json.loads((tmp_path / "data" / FILE_NAME).read_text())["data"]
    assert content["splits"] == {
        "train": {"sentences": 4, "words": 15, "file": "a.train"},
        "valid": {"sentences": 2, "words": 5, "file": "a.valid"},
    }
    # a, good, film, fun: four words, and four special symbols
    assert content["vocabulary"] == {"threshold": 2, "size": 8, "from": "train"}
    assert (content["numbers"], content["pair"]) == (False, False)
    text, _ = load_text_settings(tmp_path / "data")
    assert (text.settings.lower_case, text.settings.tokenizer, text.settings.subwords) == (True, "none", "none")
    assert content["arguments"]["train"] == str(train)
    assert "output" not in content["arguments"]


def test_settings_split_new_text_as_the_data_was(tmp_path, write, prepare):
    prepare("--train", write("a", "1\tDon't </S> stop!\n0\t<unk>\n"), "--lower-case", "--tokenizer", "moses")
    tokenizer = Tokenizer.load(load_text_settings(tmp_path / "data")[0])
    assert load_lines(tmp_path / "data" / "input0", "train")[0].split()[:-1] == tokenizer.split("Don't </S> stop!")


def test_special_symbols_in_a_text_are_ordinary_words(tmp_path, write, prepare):
    prepare("--train", write("a", "1\tx <s> </s> <pad>\n0\t<unk> y\n"))
    assert load_lines(tmp_path / "data" / "input0", "train") == [
        "x &lt;s&gt; &lt;/s&gt; &lt;pad&gt; </s>",
        "<unk> y </s>",
    ]
    assert "<" not in (tmp_path / "data" / "input0" / "dict.txt").read_text()


def test_byte_order_mark_carriage_returns_and_gzip_change_nothing(tmp_path, write, prepare):
    prepare("--train", write("train", TRAIN), output="plain")
    odd = gzip.compress(("\ufeff" + TRAIN.replace("\n", "\r\n")).encode())
    prepare("--train", write("train.gz", odd), output="odd")
    for key in ("input0", "label"):
        assert same_files(tmp_path / "plain" / key, tmp_path / "odd" / key, ["dict.txt", "train.bin", "train.idx"])


def test_pairs_share_one_dictionary(tmp_path, write, prepare, fairseq_preprocess):
    rows = "a b\tb c\tyes\nc\td d d\tno\n"
    out = prepare("--train", write("a", rows), "--format", "tsv:text=1,pair=2,label=3", "--characters")
    data = tmp_path / "data"
    assert load_lines(data / "input0", "train") == ["a b </s>", "c </s>"]
    assert load_lines(data / "input1", "train") == ["b c </s>", "d d d </s>"]
    assert load_lines(data / "characters1", "train") == ["b \u2581 c </s>", "d \u2581 d \u2581 d </s>"]
    for kind in ("input", "characters"):
        assert filecmp.cmp(data / f"{kind}0" / "dict.txt", data / f"{kind}1" / "dict.txt", shallow=False)
    both = write("both", column(rows, 0) + column(rows, 1))
    fairseq_preprocess("--trainpref", both, "--dict-only", "--destdir", tmp_path / "theirs")
    assert same_files(data / "input0", tmp_path / "theirs", ["dict.txt"])
    assert "train: 2 pairs, 8 words (2.0 in a text on average, 3 at most), 0.00% unknown" in out
    assert load_text_settings(data)[1].pair


def test_numbers_are_one_float_a_line(tmp_path, write, prepare):
    out = prepare("--train", write("a", "4.50\ta b\n-1\tc\n"), "--numbers")
    label = tmp_path / "data" / "label"
    assert [path.name for path in label.iterdir()] == ["train.label"]
    assert (label / "train.label").read_text() == "4.5\n-1.0\n"
    assert "numbers in train: from -1 to 4.5, 1.75 on average" in out


@pytest.mark.parametrize("numbers", [False, True])
def test_fairseqs_task_loads_the_folder(tmp_path, write, prepare, numbers):
    text = "10\ta b\n9\tc\n10\td e f\n"
    prepare("--train", write("a", text), *(["--numbers"] if numbers else []))
    config = SentencePredictionConfig(data=str(tmp_path / "data"), num_classes=1 if numbers else 2, no_shuffle=True)
    config.regression_target, config.seed = numbers, 1
    config = Namespace(**vars(config))
    task = SentencePredictionTask.setup_task(config)
    dataset = task.load_dataset("train")
    batch = dataset.collater([dataset[i] for i in range(3)])
    assert batch["target"].flatten().tolist() == ([10.0, 9.0, 10.0] if numbers else [1, 0, 1])
    assert batch["net_input"]["src_lengths"].tolist() == [3, 2, 4]


def test_tags_are_as_many_as_words(tmp_path, write, prepare):
    path = write("a", "EU\tB-ORG\nNew York\tB-LOC\n\u200d\tI-LOC\n\nhe\tO\n")
    out = prepare("--train", path, "--format", "conll", "--tags", "bio", "--characters")
    data = tmp_path / "data"
    assert load_lines(data / "input0", "train") == ["EU New_York \ufffd </s>", "he </s>"]
    assert load_lines(data / "label", "train") == ["B-ORG B-LOC I-LOC </s>", "O </s>"]
    assert load_lines(data / "characters0", "train")[1] == "h e </s>"
    assert (data / "label" / "dict.txt").read_text() == "B-LOC 1\nB-ORG 1\nI-LOC 1\nO 1\n"
    assert "4 tags in train: B-LOC 1, B-ORG 1, I-LOC 1, O 1" in out
    assert load_text_settings(data)[1].tags


def test_bad_tags_are_repaired_on_request(tmp_path, write, prepare):
    path = write("a", "x I-A\ny I-B\nz I-B\n\nw O\n")
    out = prepare("--train", path, "--format", "conll", "--tags", "bio", "--bad-tags", "repair")
    assert load_lines(tmp_path / "data" / "label", "train") == ["B-A B-B I-B </s>", "O </s>"]
    assert "repaired 2 tags that continued nothing" in out


def test_characters_have_a_dictionary_of_the_training_split(tmp_path, write, prepare):
    prepare("--train", write("a", "1\tab c\u2581\n0\tc\n"), "--valid", write("b", "1\tz a\n"), "--characters")
    folder = tmp_path / "data" / "characters0"
    assert load_lines(folder, "train") == ["a b \u2581 c _ </s>", "c </s>"]
    assert load_lines(folder, "valid") == ["<unk> \u2581 a </s>"]


def test_characters_know_the_space_where_training_texts_are_single_words(tmp_path, write, prepare):
    prepare("--train", write("a", "1\tba\n0\tc\n"), "--valid", write("b", "1\ta b\n"), "--characters")
    assert load_lines(tmp_path / "data" / "characters0", "valid") == ["a \u2581 b </s>"]


def test_empty_texts_are_skipped_on_request(tmp_path, write, prepare):
    out = prepare("--train", write("a", "1\tx\n0\t \u200b\n\n0\ty\n"), "--empty", "skip")
    assert load_lines(tmp_path / "data" / "input0", "train") == ["x </s>", "y </s>"]
    assert load_lines(tmp_path / "data" / "label", "train") == ["1 </s>", "0 </s>"]
    assert "skipped 2 examples with an empty text" in out


def test_the_vocabulary_may_have_the_words_of_all_splits(tmp_path, write, prepare):
    files = ("--train", write("a", TRAIN), "--valid", write("b", VALID))
    out = prepare(*files, output="train")
    assert load_lines(tmp_path / "train" / "input0", "valid")[0] == "a <unk> film </s>"
    assert "valid: 2 sentences, 5 words (2.5 in a text on average, 3 at most), 20.00% unknown" in out
    out = prepare(*files, "--vocabulary-from", "all", output="all")
    assert load_lines(tmp_path / "all" / "input0", "valid")[0] == "a dull film </s>"
    assert "valid: 2 sentences, 5 words (2.5 in a text on average, 3 at most), 0.00% unknown" in out
    assert load_text_settings(tmp_path / "all")[1].vocabulary["from"] == "all"


def test_a_part_of_the_training_file_is_chosen_by_seed(tmp_path, write, prepare):
    path = write("a", "".join(f"{i % 2}\tw{i} x\n" for i in range(50)))

    def texts(output, *flags):
        prepare("--train", path, "--valid-from-train", *flags, output=output)
        folder = tmp_path / output
        _, record = load_text_settings(folder)
        assert record.splits["valid"]["file"] == "a"
        size = [record.splits[split]["sentences"] for split in ("train", "valid")]
        dictionary = (folder / "input0" / "dict.txt").read_text().split("\n")
        # the dictionary is that of what is left: a word of the valid part alone is unknown there
        assert sum(line.startswith("w") for line in dictionary) == size[0]
        assert set(load_lines(folder / "input0", "valid")) == {"<unk> x </s>"}
        return size, load_lines(folder / "input0", "train"), load_lines(folder / "label", "train")

    size, train, labels = texts("one", 0.1)
    assert size == [45, 5]
    numbers = [int(line.split()[0][1:]) for line in train]
    assert numbers == sorted(numbers)
    assert labels == [f"{i % 2} </s>" for i in numbers]
    assert texts("again", 0.1)[1] == train
    assert texts("other", 0.1, "--seed", 2)[1] != train
    assert texts("count", 7)[0] == [43, 7]


def test_dictionaries_of_an_earlier_output_are_used(tmp_path, write, prepare):
    prepare("--train", write("a", TRAIN), "--characters", "--threshold", 2, output="first")
    prepare("--train", write("b", VALID), "--characters", "--dict-from", tmp_path / "first")
    for key in ("input0", "label", "characters0"):
        assert filecmp.cmp(tmp_path / "first" / key / "dict.txt", tmp_path / "data" / key / "dict.txt", shallow=False)
    assert load_lines(tmp_path / "data" / "input0", "train") == ["a <unk> film </s>", "<unk> fun </s>"]
    assert load_text_settings(tmp_path / "data")[1].vocabulary == {"threshold": 2, "size": 8, "from": "earlier"}


def test_coverage_is_counted_and_vectors_of_the_vocabulary_are_kept(tmp_path, write, prepare):
    # train: a 3, good 3, film 2, fun 2, and , great one bad no once each: 15 words, 9 different
    # valid: a dull film great fun
    vectors = write("vectors.txt", "4 2\ndull 1 2\na 0.1 -2\nfun 3 4\nzebra 5 6\n")
    files = ("--train", write("a", TRAIN), "--valid", write("b", VALID), "--word-vectors", vectors)
    out = prepare(*files)
    assert "word vectors of width 2 for 2 of the 9 words of the vocabulary" in out
    assert "mean cosine of two random words: -0.769" in out  # of (0.1, -2) and (3, 4)
    assert "train: 22.22% of the different words, 33.33% of all words have a vector" in out
    # dull has one, but no training text has the word: the model would see it as unknown
    lost = "valid: 40.00% of the different words, 40.00% of all words have a vector; 20.00% have one but are unknown"
    assert lost in out
    assert "--vocabulary-from all" in out
    assert (tmp_path / "data" / "word_vectors.txt").read_text() == "a 0.1 -2.0\nfun 3.0 4.0\n"
    out = prepare(*files, "--vocabulary-from", "all", output="all")
    assert "valid: 60.00% of the different words, 60.00% of all words have a vector\n" in out
    assert "--vocabulary-from all" not in out
    assert "dull 1.0 2.0\n" in (tmp_path / "all" / "word_vectors.txt").read_text()


def test_rare_words_with_a_vector_are_known(tmp_path, write, prepare):
    vectors = write("vectors.txt", "great 1 2\ndull 3 4\na 5 6\n")
    files = ("--train", write("a", TRAIN), "--valid", write("b", VALID), "--word-vectors", vectors, "--threshold", 2)
    prepare(*files)
    assert load_lines(tmp_path / "data" / "input0", "train")[0] == "a good film <unk> a great <unk> </s>"
    assert load_lines(tmp_path / "data" / "input0", "valid")[0] == "a <unk> film </s>"
    out = prepare(*files, "--vocabulary-from", "all", output="all")
    assert load_lines(tmp_path / "all" / "input0", "valid")[0] == "a dull film </s>"
    assert "valid: 2 sentences, 5 words (2.5 in a text on average, 3 at most), 0.00% unknown" in out


def test_characters_keep_their_case_where_words_lose_it(tmp_path, write, prepare):
    prepare("--train", write("a", "1\tIn PARIS in\n0\tx\n"), "--lower-case", "--characters")
    assert load_lines(tmp_path / "data" / "input0", "train")[0] == "in paris in </s>"
    assert load_lines(tmp_path / "data" / "characters0", "train")[0] == "I n \u2581 P A R I S \u2581 i n </s>"


def test_upper_case_that_no_training_text_has_counts_as_lower(tmp_path, write, prepare):
    files = ("--train", write("a", "1\tin abc\n0\tx\n"), "--valid", write("b", "1\tIN\n"))
    prepare(*files, "--lower-case", "--characters")
    assert load_lines(tmp_path / "data" / "characters0", "valid")[0] == "i n </s>"


def test_the_same_command_may_run_again_with_changed_files(tmp_path, write, prepare):
    flags = ("--train", write("a", TRAIN))
    prepare(*flags)
    write("a", TRAIN + "new\tlabel\n")
    prepare(*flags)
    assert load_lines(tmp_path / "data" / "label", "train")[-1] == "new </s>"
    prepare(*flags, "--threshold", 2, "--overwrite")
    assert load_text_settings(tmp_path / "data")[1].vocabulary["threshold"] == 2


def test_a_file_of_commas_gives_the_same_data_as_one_of_tabs(write, prepare, tmp_path):
    rows = [line.split("\t") for line in TRAIN.splitlines()]
    prepare("--train", write("train.tsv", TRAIN), output="tabs")
    quoted = "text,label\n" + "".join(f'"{text}",{label}\n' for label, text in rows)
    prepare("--train", write("train.csv", quoted), output="commas")
    for name in ("input0", "label"):
        assert load_lines(tmp_path / "commas" / name, "train") == load_lines(tmp_path / "tabs" / name, "train")
    assert load_text_settings(tmp_path / "commas")[1].format == "csv"
