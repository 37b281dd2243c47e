"""One line in, one line out, whatever it holds; and what is saved is what is loaded."""

import io
import re
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import REPOSITORY, change_settings

from muse_plugin.text.byte_pair_encoding import CODES_NAME
from muse_plugin.text.data_record import DataRecord
from muse_plugin.text.sentence_pieces import SentencePieces
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME, TextSettings, make_sentence_settings, save_texts
from muse_plugin.text.tokenizer import Tokenizer

VERSION_1, VERSION_2 = (REPOSITORY / "tests" / "fixtures" / f"text_pipeline_version_{i}" for i in (1, 2))
SOURCE_1 = "der &@@ q@@ u@@ o@@ t@@ ; bahnhof &@@ q@@ u@@ o@@ t@@ ; ist w@@ e@@ l@@ l@@ -@@ k@@ n@@ o@@ w@@ n ."
TARGET_1 = "i@@ t is@@ n &apos;t &@@ q@@ u@@ o@@ t@@ ; there &@@ q@@ u@@ o@@ t@@ ; a@@ t 2 : 3@@ 0 ."
SOURCE_2 = "▁ D er ▁ „ B a h n h o f “ ▁is t ▁ w e ll-k n o w n ."
TARGET_2 = (
    "i@@ t is@@ n &@@ apos;t &@@ q@@ u@@ o@@ t@@ ; t@@ here &@@ q@@ u@@ o@@ t@@ ; w@@ e@@ l@@ l @@@ -@@ @ k@@ n@@ o@@ "
    "w@@ n a@@ t 2 : 3@@ 0 ."
)

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist noch nicht da.", "Ich sehe den Bahnhof nicht."] * 3
ENGLISH = ["Where is the station?", "The train isn't there yet.", "I don't see the station."] * 3
LINE_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

odd_text = st.text(
    st.one_of(st.characters(), st.sampled_from("@@ &<>|[]'\"._-\t" + LINE_BREAKS + "\u00ad\u200b\ufeff")), max_size=60
)
plain_words = st.lists(st.from_regex(r"[a-zäöüß]{1,12}", fullmatch=True), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def pieces():
    return TextPipeline.learn("de", "en", GERMAN, ENGLISH, 60, subwords="sentencepiece", tokenizer="none")


@pytest.fixture(scope="module", params=["bpe", "sentencepiece", "sentencepiece:bpe"])
def moses_pipeline(request):
    return TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=60, subwords=request.param)


@pytest.fixture(scope="module")
def pipeline():
    return TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=40)


def test_learn_finds_the_words_that_repeat(pipeline):
    assert pipeline.source.content.decode().count("\n") == 41  # one line is the version's
    assert "Bahnhof" in pipeline.encode_source("Der Bahnhof").split()
    assert "&apos;t" in pipeline.encode_target("I can't see Xanten.").split()


def test_learn_gives_the_same_codes_whatever_the_order_of_the_lines(pipeline):
    again = TextPipeline.learn("de", "en", GERMAN[::-1], ENGLISH[::-1], size=40)
    assert again.source.content == pipeline.source.content


@settings(max_examples=100, deadline=None)
@given(tokens=odd_text)
def test_decode_gives_one_line_for_any_tokens(pipeline, tokens):
    assert len(pipeline.decode(tokens).splitlines()) <= 1


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
    lower = TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=40, lower_case=True)
    assert lower.decode(lower.encode_source("Der BAHNHOF ÄÖÜ")) == "der bahnhof äöü"


def test_learn_raises_error_when_nothing_repeats():
    with pytest.raises(ValueError, match="words that occur more than once, but got 2 distinct words"):
        TextPipeline.learn("de", "en", ["eins"], ["two"], size=10)
    with pytest.raises(ValueError, match="the number of merges must be at least 1, but got 0"):
        TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=0)


def test_save_and_load_give_the_same_pipeline_also_after_the_folder_was_moved(pipeline, tmp_path):
    pipeline.save(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    loaded = TextPipeline.load(tmp_path / "there")
    for side, made in zip(loaded, pipeline, strict=True):
        assert (side.settings, side.content) == (made.settings, made.content)
    assert loaded.encode_source("Der Bahnhof ist weit.") == pipeline.encode_source("Der Bahnhof ist weit.")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [CODES_NAME, FILE_NAME]


def test_load_raises_error_when_the_codes_are_cut_short(pipeline, tmp_path):
    pipeline.save(tmp_path)
    (tmp_path / CODES_NAME).write_bytes((tmp_path / CODES_NAME).read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"must be those the model was trained with .*but got sha256"):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "must have format_version 1 or 2 or 4, but got 3"),
        ({"format_version": True}, "must have format_version 1 or 2 or 4, but got True"),
        ({"format_version": None}, "must have format_version 1 or 2 or 4, but got None"),
        ({"lower_case": "no"}, "'lower_case' must be bool but is 'no'"),
        ({"bpe_merges": True}, "'bpe_merges' must be int but is True"),
        ({"source_lang": ...}, "'source_lang' is missing"),
        ({"truecase": True}, "'truecase' is unknown"),
        ({"bpe_codes": "../bpe.codes"}, "must be a file name without folders but is '../bpe.codes'"),
    ],
)
def test_load_raises_error_when_a_setting_of_version_1_is_wrong(tmp_path, change, message):
    shutil.copytree(VERSION_1, tmp_path, dirs_exist_ok=True)
    change_settings(tmp_path / FILE_NAME, change)
    with pytest.raises(ValueError, match=re.escape(message)):
        TextPipeline.load(tmp_path)


WRONG = [
    ({"source": 1}, "'source' must be dict but is 1"),
    ({"target": ...}, "'target' is missing"),
    ({"truecase": True}, "'truecase' is unknown"),
    ({"source.lower_case": "no"}, "'source.lower_case' must be bool but is 'no'"),
    ({"target.lang": ...}, "'target.lang' is missing"),
    ({"target.truecase": 1}, "'target.truecase' is unknown"),
    ({"source.tokenizer": "spacy"}, "'source.tokenizer' must be one of none, moses but is 'spacy'"),
    ({"source.subwords": "none"}, "'source.file' is unknown"),
    ({"source.subwords": []}, "'source.subwords' must be str but is []"),
    ({"source.sha256": ...}, "'source.sha256' is missing"),
    ({"source.file": "../bpe.codes"}, "must be a file name without folders but is '../bpe.codes'"),
    ({"source.file": "a\0b"}, "must be a file name without folders but is"),
    ({"source.file": ""}, "must be a file name without folders but is ''"),
]


@pytest.mark.parametrize(("change", "message"), [*WRONG, ({"source.escape": True}, "'source.escape' is unknown")])
def test_load_raises_error_when_a_setting_of_version_2_is_wrong(tmp_path, change, message):
    shutil.copytree(VERSION_2, tmp_path, dirs_exist_ok=True)
    change_settings(tmp_path / FILE_NAME, change)
    with pytest.raises(ValueError, match=re.escape(message)):
        TextPipeline.load(tmp_path)


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_load_raises_error_when_a_setting_is_wrong(pipeline, tmp_path, change, message):
    pipeline.save(tmp_path)
    change_settings(tmp_path / FILE_NAME, {f"texts.{name}": value for name, value in change.items()})
    message = re.sub("^'", "'texts.", message)
    with pytest.raises(ValueError, match=re.escape(message)):
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
    with pytest.raises(ValueError, match=re.escape(message)):
        Tokenizer(TextSettings("de"), codes.encode())


def test_a_pipeline_of_version_1_still_does_what_it_did():
    old = TextPipeline.load(VERSION_1)
    assert old.source.settings == TextSettings("de", lower_case=True)
    assert old.target.settings == TextSettings("en", lower_case=True)
    assert old.encode_source("Der „Bahnhof“ ist well-known.") == SOURCE_1
    assert old.encode_target("It isn't “there” at 2:30.") == TARGET_1
    assert old.decode(TARGET_1) == 'it isn\'t "there" at 2:30.'


def test_a_pipeline_of_version_2_still_does_what_it_did(tmp_path):
    old = TextPipeline.load(VERSION_2)
    old.save(tmp_path)
    for made in (old, TextPipeline.load(tmp_path)):
        assert made.source.settings == TextSettings("de", False, "none", detokenize=False, subwords="sentencepiece")
        assert made.target.settings == TextSettings("en", aggressive_hyphens=True, lower_case=True)
        assert made.encode_source("Der „Bahnhof“ ist well-known.") == SOURCE_2
        assert made.encode_target("It isn't “there” well-known at 2:30.") == TARGET_2
        assert made.decode(TARGET_2) == 'it isn\'t "there" well-known at 2:30.'


def test_settings_of_sentences_are_not_those_of_a_translation_model(tmp_path):
    record = DataRecord(vocabulary={"threshold": 0, "size": 8, "from": "train"})
    save_texts(tmp_path, {"text": (make_sentence_settings("en", "moses", "none"), b"")}, record)
    sentence = r"must have the settings of source and target, but has those of text; name the .*muse-plugin predict\.$"
    with pytest.raises(ValueError, match=sentence):
        TextPipeline.load(tmp_path)


@settings(max_examples=200, deadline=None)
@given(line=odd_text)
def test_every_text_gives_one_line_of_separable_tokens_with_any_subwords(moses_pipeline, pieces, line):
    for made in (moses_pipeline, pieces):
        for encode in (made.encode_source, made.encode_target):
            encoded = encode(line)
            # fairseq separates at any white space: it must find the same pieces, none of them empty or a special symbol
            assert re.split(r"\s+", encoded) == (encoded.split(" ") if encoded else [""])
            assert not {"<s>", "</s>", "<pad>", "<unk>", "<mask>"} & set(encoded.split(" "))
            assert len(made.decode(encoded).splitlines()) <= 1
            if made.source.settings.subwords == "subword-nmt":
                words = encoded.replace("@@ ", "").split(" ")
                assert not any("@@" in word for word in words), "a marker is left after the pieces were joined"


@settings(max_examples=100, deadline=None)
@given(words=plain_words)
def test_plain_text_survives_the_round_trip_with_any_subwords(moses_pipeline, pieces, words):
    sentence = " ".join(words).capitalize() + "."
    for made in (moses_pipeline, pieces):
        assert made.decode(made.encode_target(sentence)) == sentence


def test_each_setting_of_a_language_does_what_it_says():
    def encode(line, **changes):
        return " ".join(Tokenizer(TextSettings("en", subwords="none", **changes)).split(line))

    line = "“Well-known” It's <s> A"
    assert encode(line) == "&quot; Well-known &quot; It &apos;s &lt; s &gt; A"
    assert encode(line, normalize=False).startswith("“ Well-known ”")
    assert encode(line, aggressive_hyphens=True).startswith("&quot; Well @-@ known &quot;")
    assert encode(line, escape=False) == '" Well-known " It \'s < s > A'
    assert encode(line, lower_case=True).endswith("&lt; s &gt; a")
    assert encode(line, tokenizer="none", normalize=False) == "“Well-known” It's &lt;s&gt; A"


def test_decoding_inverts_each_way_of_making_words():
    moses = Tokenizer(TextSettings("en", aggressive_hyphens=True, subwords="none"))
    assert moses.join("A well @-@ known &quot; it &apos;s &quot; .") == 'A well-known "it\'s".'
    split = Tokenizer(TextSettings("en", tokenizer="none", detokenize=False, subwords="none"))
    assert split.join("it &apos;s here .") == "it &apos;s here ."
    assert TextPipeline(split, moses).decode("it &apos;s here .") == "it's here."


def test_each_language_may_have_subwords_of_its_own(pipeline, pieces, tmp_path):
    mixed = TextPipeline(pieces.source, pipeline.target)
    two = TextPipeline(pipeline.source, Tokenizer(pipeline.target.settings, b"#version: 0.2\nt h\n"))
    for made, names in (
        (mixed, ["bpe.target.codes", "sentencepiece.source.model"]),
        (two, ["bpe.source.codes", "bpe.target.codes"]),
    ):
        folder = tmp_path / names[1]
        made.save(folder)
        assert sorted(path.name for path in folder.iterdir()) == [*names, FILE_NAME]
        loaded = TextPipeline.load(folder)
        assert loaded.encode_source("Der Bahnhof") == made.encode_source("Der Bahnhof")
        assert loaded.encode_target("The train") == made.encode_target("The train")
    assert two.encode_target("thy") == "th@@ y"


def test_learn_gives_the_same_model_for_the_same_text(pieces):
    again = TextPipeline.learn("de", "en", GERMAN, ENGLISH, 60, subwords="sentencepiece", tokenizer="none")
    assert again.source.content == pieces.source.content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 10), "learning 10 pieces must have enough text for them, but SentencePiece gave"),
        ((GERMAN, ENGLISH, 3), "learning 3 pieces must have enough text for them, but SentencePiece gave"),
        ((GERMAN, ENGLISH, 0), "must have at least 1 piece and be one of unigram, bpe, but got 0 and 'unigram'"),
    ],
)
def test_learn_raises_error_when_pieces_cannot_be_learnt(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TextPipeline.learn("de", "en", *arguments, subwords="sentencepiece")


def test_learn_raises_error_when_the_choice_is_unknown():
    with pytest.raises(ValueError, match=r"subwords must be one of none, bpe, .* but got 'morfessor'"):
        TextPipeline.learn("de", "en", GERMAN, ENGLISH, 10, subwords="morfessor")
    with pytest.raises(ValueError, match="'tokenizer' of a text pipeline must be one of none, moses, but got"):
        TextPipeline.learn("de", "en", GERMAN, ENGLISH, 10, tokenizer="spacy")


@pytest.mark.parametrize("cut", [slice(0, 0), slice(0, 100), slice(0, -7), slice(5, None)])
def test_a_damaged_model_of_sentencepiece_gives_one_sentence(pieces, tmp_path, cut):
    content = pieces.source.content[cut]
    with pytest.raises(ValueError, match=r"must be a model of SentencePiece, but its .* bytes are none"):
        Tokenizer(pieces.source.settings, content)
    pieces.save(tmp_path)
    (tmp_path / "sentencepiece.model").write_bytes(content)
    with pytest.raises(ValueError, match=r"the SentencePiece pieces .* must be those the model was trained"):
        TextPipeline.load(tmp_path)


def test_files_beyond_their_size_are_not_read(pieces, tmp_path, monkeypatch):
    pieces.save(tmp_path)
    for name in ("text.subword_file.LARGEST_VOCABULARY", "files.json_objects.LARGEST_SETTINGS"):
        monkeypatch.setattr(f"muse_plugin.{name}", 100)
        with pytest.raises(ValueError, match=r"must have at most 100 bytes, but has [\d,]+; copy it again"):
            TextPipeline.load(tmp_path)


def test_pieces_that_are_bytes_are_refused():
    pytest.importorskip("sentencepiece")
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    options = {"vocab_size": 300, "model_type": "bpe", "byte_fallback": True, "minloglevel": 2}
    SentencePieceTrainer.Train(
        sentence_iterator=iter(GERMAN * 3), model_writer=model, hard_vocab_limit=False, **options
    )
    with pytest.raises(
        ValueError, match=r"^the model a must have pieces of characters only, but has bytes, .*fallback\.$"
    ):
        SentencePieces(model.getvalue(), "the model a")
