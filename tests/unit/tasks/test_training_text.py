"""What is wrong with training text or codes is said in one sentence, before anything is segmented."""

import base64
import io
import os
import random

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from muse_plugin.tasks.bpe_dropout.training_text import (
    SAMPLE_LINES,
    check_fit,
    check_parallel,
    read_codes,
    read_text,
)

CODES = "#version: 0.2\na b\nab c</w>\n"


def write(folder, content, name="text.de"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@pytest.mark.parametrize("num_shares", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_shares_are_the_whole_text_in_order(num_shares, end, tmp_path):
    lines = [f"wörter {'x' * i}" for i in range(1, 11)]
    path = write(tmp_path, "\n".join(lines) + end)
    text = read_text(path, num_shares)
    assert text.lines == 10
    assert len(text.shares) == min(num_shares, 10)
    content, found = path.read_bytes(), []
    for share in text.shares:
        assert share.first_line == len(found)
        assert abs(share.lines - 10 / len(text.shares)) < 1
        found += content[share.start :].decode("utf-8").split("\n")[: share.lines]
    assert found == lines
    assert [line.rstrip("\n") for line in text.sample] == lines


def test_only_newlines_end_lines(tmp_path):
    text = read_text(write(tmp_path, "a\u2028b\r\nc\x85d\x0ce\n\rf\n"), 1)
    assert text.lines == 3


def test_the_sample_is_from_all_over_a_long_text(tmp_path):
    path = write(tmp_path, "".join(f"{i}\n" for i in range(10 * SAMPLE_LINES)))
    sample = [int(line) for line in read_text(path, 1).sample]
    assert sample == list(range(0, 10 * SAMPLE_LINES, 10))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", r"must have lines, but \S+text\.de is empty"),
        ("a\n\nb\n", r"a word on every line, but line 2 of \S+text\.de is empty; remove"),
        ("a\n \t\u3000\nb\n\n", r"line 2 of \S+text\.de is empty, and 1 more; remove such lines from both"),
        (b"a\nb\xfcc\n", r"must be UTF-8, but line 2 of \S+text\.de has the byte 0xfc at position 1"),
    ],
)
def test_bad_text_is_refused(content, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read_text(write(tmp_path, content), 1)


def test_texts_of_different_length_are_refused(tmp_path):
    source, target = (read_text(write(tmp_path, "a\n" * n, name), 1) for n, name in ((3, "t.de"), (4, "t.en")))
    check_parallel(source, source)
    with pytest.raises(ValueError, match=r"same number of lines, but got 3 in \S+t\.de and 4 in \S+t\.en"):
        check_parallel(source, target)


def test_a_changed_text_is_noticed(tmp_path):
    path = write(tmp_path, "a\nb\n")
    text = read_text(path, 1)
    text.check_unchanged()
    write(tmp_path, "a\nb\nc\n")
    with pytest.raises(RuntimeError, match=r"text\.de must stay as it is .* changed from 4 to 6 bytes"):
        text.check_unchanged()
    write(tmp_path, "b\na\n")
    os.utime(path, ns=(0, text.changed + 1))
    with pytest.raises(RuntimeError, match=r"from 4 to 4 bytes or was written again"):
        text.check_unchanged()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a b\n", r"BPE codes \S+codes must start with the line '#version: 0\.2', but got 'a b'"),
        ("#version: 0.1\na b\n", r"but got '#version: 0\.1'"),
        (b"\x80\x02}q\x00", r"subword-nmt 0\.3 or later"),
        ("#version: 0.2\n", r"codes must hold at least one merge, but got none"),
        ("#version: 0.2\na b\nabc\nd e\n", r"codes must hold two symbols on each line, but line 3 is 'abc'"),
    ],
)
def test_bad_codes_are_refused(content, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read_codes(write(tmp_path, content, "codes"))


@pytest.mark.parametrize("content", [CODES, CODES.replace("\n", "\r\n"), CODES.rstrip("\n")])
def test_good_codes_are_read(content, tmp_path):
    assert read_codes(write(tmp_path, content, "codes")) == content


def check(folder, content, pieces):
    text = read_text(write(folder, content), 1)
    check_fit(text, CODES, folder / "codes", {piece: i for i, piece in enumerate(pieces)}, "de")


def test_a_dictionary_that_fits_may_lack_one_piece_of_a_hundred(tmp_path):
    check(tmp_path, "abc abc\n" * 50, ["abc"])
    check(tmp_path, "abc abc\n" * 50 + "d\n", ["abc"])


def test_a_dictionary_that_does_not_fit_is_refused(tmp_path):
    words = (
        r"2\.9% of the pieces of a sample of \S+text\.de, .*codes, are not in the dictionary of 'de' \(d, e \.\.\.\)"
    )
    with pytest.raises(ValueError, match=words):
        check(tmp_path, "abc abc\n" * 50 + "d d e\n", ["abc"])


def test_text_that_is_segmented_already_is_refused(tmp_path):
    pieces = ["abc", "ab@@", "c", "@@@", "@"]
    words = r"text before BPE, but 50 of 150 words of a sample of \S+text\.de end in '@@'"
    with pytest.raises(ValueError, match=words):
        check(tmp_path, "abc ab@@ c\n" * 50, pieces)


@pytest.mark.parametrize(("own", "is_refused"), [({}, False), ({"user_defined_symbols": ["<xy>"]}, True)])
def test_a_model_with_symbols_of_its_own_is_refused(own, is_refused, tmp_path):
    content = io.BytesIO()
    lines = ["<xy> ab abc abd cab", "ab abc d <xy>"] * 50
    SentencePieceTrainer.Train(
        sentence_iterator=iter(lines), model_writer=content, vocab_size=20, model_type="bpe", minloglevel=2, **own
    )
    processor = SentencePieceProcessor(model_proto=content.getvalue())
    codes = base64.b64encode(content.getvalue()).decode()
    indices = {processor.IdToPiece(i): i for i in range(processor.GetPieceSize())}
    text = read_text(write(tmp_path, "\n".join(lines)), 1)
    if not is_refused:
        check_fit(text, codes, tmp_path / "own.model", indices, "de")
        return
    with pytest.raises(
        ValueError, match=r"^BPE-dropout leaves out .* but 100 of 100 lines .*; learn one without user_def"
    ):
        check_fit(text, codes, tmp_path / "own.model", indices, "de")


def test_checking_a_model_draws_no_random_numbers(tmp_path):
    random.seed(5)
    before = random.getstate()
    test_a_model_with_symbols_of_its_own_is_refused({}, False, tmp_path)
    assert random.getstate() == before
