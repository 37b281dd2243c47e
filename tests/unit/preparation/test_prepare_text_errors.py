"""Each bad input is refused with its file and line, and leaves nothing behind."""

import re

import pytest

TRAIN = "pos\ta b\nneg\tc\n"


@pytest.fixture
def refuse(tmp_path, prepare):
    """Runs the command, expects an error and that no folder is left, not even a hidden one."""

    def run(error, message, *words, output="new/data"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(error, match=message):
            prepare(*words, output=output)
        assert sorted(tmp_path.rglob("*")) == before

    return run


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("pos\ta\nneg\n", [], r"a label, a tab and a text, but line 2 of .*bad has no tab: 'neg'"),
        ("pos\ta\nneg\t \n", [], r"the text in line 2 of .*bad is empty; correct the file or give --empty skip"),
        ("pos\ta\n\n", [], r"the text in line 2 of .*bad is empty"),
        ("\n\n", ["--empty", "skip"], r"--train must name a file with examples, but .*bad has none"),
        ("pos\ta\n \tb\n", [], r"needs a label, but that in line 2 of .*bad is empty"),
        ("so so\ta\n", [], r"no white space, but line 1 of .*bad has 'so so'"),
        ("pos\ta\n</s>\tb\n", [], r"dictionaries reserve .* line 2 of .*bad has '</s>'"),
        ("1\ta\nx\tb\n", ["--numbers"], r"with --numbers .* line 2 of .*bad has 'x'"),
        (b"1\ta\n1\t\xff\n", [], r"UTF-8 text file, but line 2 of .*bad has the byte 0xff"),
        ("a b\tpos\n", [], r"line 1 of .*bad has 'a b'; if that is the text, name the columns, such as --format"),
        ("label\ttext\npos\ta\nneg\tb\n", [], r"line 1 of .*bad has the label 'label', .* give --header, or rename"),
        ("Class\ttext\npos\ta\nneg\tb\n", [], r"line 1 of .*bad has the label 'Class'"),
        ("", [], r"--train must name a file with text, but .*bad is empty"),
        (
            "a\tb\ty\na\t\ty\n",
            ["--format", "tsv:text=1,pair=2,label=3"],
            r"the second text in line 2 of .*bad is empty",
        ),
        ("a O\nb I-X\n", ["--format", "conll", "--tags", "bio"], r"in line 2 of .*bad it follows O; correct the file"),
        ("a O\nb X\n", ["--format", "conll", "--tags", "bio"], r"must be O, B-KIND .* line 2 of .*bad has 'X'"),
    ],
)
def test_bad_lines_are_named(write, refuse, text, flags, message):
    refuse(ValueError, message, "--train", write("bad", text), *flags)


def test_one_label_alone_is_refused(write, refuse):
    message = r"at least two labels to tell apart, but .*train has only pos; check the file and --format"
    refuse(ValueError, message, "--train", write("train", "pos\ta b\npos\tc\n"))


def test_a_label_that_training_lacks_is_named(write, refuse):
    message = r"must occur in the training split, but line 2 of .*valid has 'meh'; known are neg, pos; correct"
    train, valid = write("train", TRAIN), write("valid", "pos\ta\nmeh\tb\nmeh\tc\n")
    refuse(ValueError, message, "--train", train, "--valid", valid)
    refuse(
        ValueError,
        message.replace("valid", "test"),
        "--train",
        train,
        "--test",
        train,
        write("test", "pos\ta\nmeh\tb\nmeh\tc\n"),
    )
    tagged = ("--format", "conll", "--train", write("t", "a X\n"), "--test", write("s", "a X\n\nb X\nc Z\n"))
    refuse(ValueError, r"line 4 of .*s has 'Z'; known are X", *tagged)


def test_a_label_that_only_the_valid_part_has_is_named(write, refuse):
    # whichever two lines are taken, one label at least is gone from training
    path = write("train", "a\tx\nb\ty\nc\tz\n")
    message = r"must occur in the training split, but line \d of .*train has '\w'; known are \w; correct"
    refuse(ValueError, message, "--train", path, "--valid-from-train", 2)


def test_missing_files_are_found_before_anything_is_made(tmp_path, write, refuse):
    train = write("train", TRAIN)
    for flag in ("--valid", "--test", "--word-vectors"):
        refuse(
            FileNotFoundError,
            f"{flag} must name a file, but .*no does not exist",
            "--train",
            train,
            flag,
            tmp_path / "no",
        )
    refuse(FileNotFoundError, "--train must name a file", "--train", tmp_path / "no")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--valid-from-train", "0"], "a share between 0 and 1, such as 0.1, or a number of sentences, but got '0'"),
        (["--valid-from-train", "1.5"], "but got '1.5'"),
        (["--valid-from-train", "0.0"], "but got '0.0'"),
        (
            ["--valid-from-train", "2"],
            r"must leave sentences for training, but 2 takes 2 of the 2 in .*train; give less",
        ),
        (["--valid-from-train", "0.9"], "must leave sentences for training, but 0.9 takes 2 of the 2"),
        (["--threshold", "-1"], "--threshold must be at least 0, but got -1"),
        (["--max-words", "-5"], "--max-words must be at least 0, but got -5"),
        (["--language", "English"], "--language must be a code such as en, but got 'English'"),
        (
            ["--format", "conll", "--tokenizer", "moses"],
            "--tokenizer needs one label for each text, but --format conll",
        ),
        (["--format", "conll", "--numbers"], "--numbers needs one label for each text, but --format conll tags words"),
        (["--tags", "bio"], "--tags bio needs tagged words, but got --format label-tab-text"),
        (["--format", "conll", "--bad-tags", "repair"], "--bad-tags repair needs --tags bio, but got --tags any"),
        (["--format", "xml"], "--format must be one of .*, but got 'xml'"),
    ],
)
def test_flags_that_do_not_fit_are_refused(write, refuse, flags, message):
    refuse(ValueError, message, "--train", write("train", TRAIN), *flags)


def test_two_sources_of_validation_sentences_are_refused(write, refuse):
    train = write("train", TRAIN)
    message = "validation sentences come from one place, but got --valid .*train and --valid-from-train 1; drop one"
    refuse(ValueError, message, "--train", train, "--valid", train, "--valid-from-train", 1)


def test_an_earlier_output_must_have_been_made_alike(tmp_path, write, prepare, refuse):
    train = write("train", TRAIN)
    prepare("--train", train, "--lower-case", "--tokenizer", "moses", output="first")
    first = ("--train", train, "--dict-from", tmp_path / "first")
    message = (
        r"vocabulary built with another tokenisation or other labels \(lower_case is True there and False here; "
        r"tokenizer is moses there and none here\); use the same flags"
    )
    refuse(ValueError, message, *first)
    alike = (*first, "--tokenizer", "moses", "--lower-case")
    refuse(ValueError, "lang is en there and de here", *alike, "--language", "de")
    refuse(ValueError, "--characters with --dict-from needs .* prepared without --characters", *alike, "--characters")
    refuse(ValueError, "with --dict-from nothing is counted, but got", *alike, "--threshold", 2)
    refuse(ValueError, "--dict-from and --output must be different folders, but both", *alike, output="first")
    refuse(
        FileNotFoundError, "text_pipeline.json, but there is no such file", "--train", train, "--dict-from", tmp_path
    )
    other = ("--train", write("b", "meh\tx\n"), *alike[2:])
    refuse(ValueError, r"must occur in .*first, but line 1 of .*b has 'meh'; known are neg, pos", *other)


def test_vectors_of_other_words_are_refused(write, refuse):
    vectors = write("vectors", "A 1 2\nB 3 4\n")
    message = r"vectors for words of the vocabulary, but .*vectors has none of 3, such as 'a'; choose another file"
    refuse(ValueError, message, "--train", write("train", TRAIN), "--word-vectors", vectors)


def test_an_existing_folder_is_untouched_by_a_run_that_fails(tmp_path, write, prepare, refuse):
    train = write("train", TRAIN)
    prepare("--train", train)
    content = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    write("train", "pos\ta\nneg\n")
    refuse(ValueError, "line 2", "--train", train, output="data")
    other = re.escape("was made with others (--lower-case was False and is True)")
    refuse(FileExistsError, other, "--train", train, "--lower-case", output="data")
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()} == content
