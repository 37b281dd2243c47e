"""One line in, one line out, whatever it holds; and what is saved is what is loaded."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.text.byte_pair_encoding import CODES_NAME
from muse_plugin.text.text_pipeline import (
    FILE_NAME,
    TextPipeline,
    TextPipelineError,
)

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist noch nicht da.", "Ich sehe den Bahnhof nicht."] * 3
ENGLISH = ["Where is the station?", "The train isn't there yet.", "I don't see the station."] * 3
LINE_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

odd_text = st.text(
    st.one_of(st.characters(), st.sampled_from("@@ &<>|[]'\"._-\t" + LINE_BREAKS + "\u00ad\u200b\ufeff")), max_size=60
)
plain_words = st.lists(st.from_regex(r"[a-zäöüß]{1,12}", fullmatch=True), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def pipeline():
    return TextPipeline.learn("de", "en", GERMAN, ENGLISH, num_merges=40)


def test_learn_finds_the_words_that_repeat(pipeline):
    assert pipeline.num_merges == 40
    assert "Bahnhof" in pipeline.encode_source("Der Bahnhof").split()
    assert "&apos;t" in pipeline.encode_target("I can't see Xanten.").split()


def test_learn_gives_the_same_codes_whatever_the_order_of_the_lines(pipeline):
    again = TextPipeline.learn("de", "en", GERMAN[::-1], ENGLISH[::-1], num_merges=40)
    assert again.codes == pipeline.codes


@settings(max_examples=300, deadline=None)
@given(line=odd_text)
def test_every_text_gives_one_line_of_separable_pieces(pipeline, line):
    for encode in (pipeline.encode_source, pipeline.encode_target):
        encoded = encode(line)
        assert len(encoded.splitlines()) <= 1
        # fairseq separates at any white space: it must find the same pieces, none of them empty or a special symbol
        assert re.split(r"\s+", encoded) == (encoded.split(" ") if encoded else [""])
        assert not {"<s>", "</s>", "<pad>", "<unk>"} & set(encoded.split(" "))
        assert len(pipeline.decode(encoded).splitlines()) <= 1
        words = encoded.replace("@@ ", "").split(" ")
        assert not any("@@" in word for word in words), "a marker is left after the pieces were joined"


@settings(max_examples=100, deadline=None)
@given(tokens=odd_text)
def test_decode_gives_one_line_for_any_tokens(pipeline, tokens):
    assert len(pipeline.decode(tokens).splitlines()) <= 1


@settings(max_examples=200, deadline=None)
@given(words=plain_words)
def test_plain_text_survives_the_round_trip(pipeline, words):
    sentence = " ".join(words).capitalize() + "."
    assert pipeline.decode(pipeline.encode_target(sentence)) == sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "I don't see the station.",
        'He said, "Where is it?"',
        "Tom's train leaves at 2:30.",
        "Prices (in the shop) rose by 5%.",
        "A & B < C | D",
        "Write to a@b.example now!",
        "x" * 450 + " " + "ab" * 3000,
    ],
)
def test_usual_and_long_text_survives_the_round_trip(pipeline, sentence):
    spaced = {"Write to a@b.example now!": "Write to a @ b.example now!"}  # Moses does not join at-signs again
    assert pipeline.decode(pipeline.encode_target(sentence)) == spaced.get(sentence, sentence)


def test_lower_case_lowers_both_sides():
    lower = TextPipeline.learn("de", "en", GERMAN, ENGLISH, num_merges=40, lower_case=True)
    assert lower.decode(lower.encode_source("Der BAHNHOF ÄÖÜ")) == "der bahnhof äöü"


def test_learn_raises_error_when_nothing_repeats():
    with pytest.raises(ValueError, match="words that occur more than once, but got 2 distinct words"):
        TextPipeline.learn("de", "en", ["eins"], ["two"], num_merges=10)
    with pytest.raises(ValueError, match="num_merges must be at least 1, but got 0"):
        TextPipeline.learn("de", "en", GERMAN, ENGLISH, num_merges=0)


def test_save_and_load_give_the_same_pipeline_also_after_the_folder_was_moved(pipeline, tmp_path):
    pipeline.save(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    loaded = TextPipeline.load(tmp_path / "there")
    assert (loaded.source_lang, loaded.target_lang, loaded.lower_case) == ("de", "en", False)
    assert loaded.encode_source("Der Bahnhof ist weit.") == pipeline.encode_source("Der Bahnhof ist weit.")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [CODES_NAME, FILE_NAME]


def test_load_raises_error_when_a_file_is_missing(pipeline, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"text_pipeline\.json does not exist; copy text_pipeline\.json and"):
        TextPipeline.load(tmp_path)
    pipeline.save(tmp_path)
    (tmp_path / CODES_NAME).unlink()
    with pytest.raises(FileNotFoundError, match=r"bpe\.codes, which .*text_pipeline\.json names, do not exist"):
        TextPipeline.load(tmp_path)


def test_load_raises_error_when_the_codes_are_cut_short(pipeline, tmp_path):
    pipeline.save(tmp_path)
    (tmp_path / CODES_NAME).write_bytes((tmp_path / CODES_NAME).read_bytes()[:-20])
    with pytest.raises(TextPipelineError, match=r"must be those the model was trained with .*but got sha256"):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "must have format_version 1, but got 2"),
        ({"format_version": None}, "must have format_version 1, but got None"),
        ({"lower_case": "no"}, "'lower_case' must be bool but is 'no'"),
        ({"bpe_merges": True}, "'bpe_merges' must be int but is True"),
        ({"source_lang": ...}, "'source_lang' is missing"),
        ({"truecase": True}, "'truecase' is unknown"),
        ({"bpe_codes": "../bpe.codes"}, "must be a file name without folders but is '../bpe.codes'"),
    ],
)
def test_load_raises_error_when_a_setting_is_wrong(pipeline, tmp_path, change, message):
    pipeline.save(tmp_path)
    stored = json.loads((tmp_path / FILE_NAME).read_text())
    stored = {name: value for name, value in {**stored, **change}.items() if value is not ...}
    (tmp_path / FILE_NAME).write_text(json.dumps(stored))
    with pytest.raises(TextPipelineError, match=re.escape(message)):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "must be a JSON file"), (b"\xff", "must be a JSON file"), (b"[]", "a JSON object, but got a list")],
)
def test_load_raises_error_when_the_settings_are_no_json_object(pipeline, tmp_path, content, message):
    pipeline.save(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(TextPipelineError, match=message):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("", "must start with the line '#version: 0.2', but got ''"),
        ("e n\n", "must start with the line '#version: 0.2', but got 'e n'"),
        ("#version: 0.2\n", "must hold at least one merge"),
        ("#version: 0.2\ne n\nxyz\n", "two symbols on each line, but line 3 is 'xyz'"),
    ],
)
def test_pipeline_raises_error_when_the_codes_are_no_codes(codes, message):
    with pytest.raises(TextPipelineError, match=re.escape(message)):
        TextPipeline("de", "en", codes)
