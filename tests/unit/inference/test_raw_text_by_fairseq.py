"""Raw text through fairseq's own hub and interactive command, with the text pipeline as their tokenizer."""

import io
import logging
import re
import shutil

import pytest
import torch
from support.fairseq_commands import USER_DIR, run
from support.translation_models import GERMAN, save_translation_model

from muse_plugin.inference.translate import Line, Translator
from muse_plugin.models.muse import MuseModel
from muse_plugin.tasks.text_pipeline_tokenizer import TextPipelineConfig, TextPipelineTokenizer
from muse_plugin.text.text_settings import FILE_NAME


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_translation_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder):
    lines = [Line(number, text) for number, text in enumerate(GERMAN[:3], 1)]
    return Translator.load(folder, cpu=True, beam=3).translate_lines(lines)


def test_the_hub_translates_raw_text_with_the_folder_alone(folder, expected):
    model = MuseModel.from_pretrained(folder)
    assert model.translate(GERMAN[:3], beam=3) == expected
    assert model.translate(GERMAN[1], beam=3, max_len_a=1.5, max_len_b=30) == expected[1]


@pytest.mark.parametrize(
    ("settings", "given", "limits"),
    [({}, {}, (1.5, 30)), ({}, {"max_len_b": 9}, (0, 9)), ({"max_len_b": 50}, {}, (0, 50))],
)
def test_the_hub_ends_translations_where_the_commands_do(folder, monkeypatch, settings, given, limits):
    model, seen = MuseModel.from_pretrained(folder, **settings), []
    build = model.task.build_generator
    monkeypatch.setattr(
        model.task, "build_generator", lambda models, args, **rest: seen.append(args) or build(models, args)
    )
    model.translate("Zug", **given)
    assert [(args.max_len_a, args.max_len_b) for args in seen] == [limits]


@pytest.mark.parametrize("data", ["absolute", "relative"])
def test_the_hub_finds_languages_and_pipeline_where_the_dictionaries_are(folder, expected, tmp_path, data):
    """As after a training on the data of prepare-translation, whose command names no languages."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    shutil.copytree(folder, tmp_path / "data")
    (tmp_path / "data" / "checkpoint_avg.pt").rename(checkpoints / "checkpoint_last.pt")
    state = torch.load(checkpoints / "checkpoint_last.pt", weights_only=False)
    state["cfg"]["task"].source_lang = state["cfg"]["task"].target_lang = None
    torch.save(state, checkpoints / "checkpoint_last.pt")
    model = MuseModel.from_pretrained(
        checkpoints, data_name_or_path=tmp_path / "data" if data == "absolute" else "../data"
    )
    assert model.translate(GERMAN[:3], beam=3, max_len_a=1.5, max_len_b=30) == expected


def test_the_hub_takes_fairseqs_own_settings(folder):
    model = MuseModel.from_pretrained(folder, "checkpoint_of_old_fairseq.pt", folder, tokenizer="space")
    assert model.encode(f"{GERMAN[0]}").ne(model.src_dict.unk()).any()
    assert type(model.tokenizer).__name__ == "SpaceTokenizer"


def test_the_hub_leaves_blank_lines_blank_and_reads_the_beginning_of_long_ones(folder, expected, caplog):
    model = MuseModel.from_pretrained(folder)
    assert model.translate(["", GERMAN[0], " \u2028"], beam=3, max_len_a=1.5, max_len_b=30) == ["", expected[0], ""]
    assert model.translate("") == ""
    long = " ".join(GERMAN * 9)
    assert model.translate([long, GERMAN[0]], beam=3, max_len_a=1.5, max_len_b=30)[1] == expected[0]
    assert "sentence 1 is longer than 20 tokens; only its beginning is translated." in caplog.messages


def test_the_hub_takes_sentences_longer_than_the_batches_of_training(folder, expected):
    model = MuseModel.from_pretrained(folder, max_tokens=3)
    assert model.translate(GERMAN[:3], beam=3, max_len_a=1.5, max_len_b=30) == expected


@pytest.mark.parametrize("kind", ["hard", "soft", True])
def test_the_hub_aligns_words_when_it_is_asked_to(folder, kind):
    model = MuseModel.from_pretrained(folder)
    found = model.generate([model.encode(GERMAN[0])], beam=2, print_alignment=kind, max_len_b=9)[0][0]
    assert len(found["alignment"]) > 0


def test_the_hub_has_no_alignments_from_onnxruntime(folder):
    pytest.importorskip("onnxruntime")
    model = MuseModel.from_pretrained(folder, inference_backend="onnxruntime")
    with pytest.raises(NotImplementedError, match=r"onnxruntime only searches, but was asked for attention \("):
        model.generate([model.encode(GERMAN[0])], beam=2, print_alignment="hard")


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    sentence = (
        r"^the folder must hold one of checkpoint_avg\.pt, checkpoint_best\.pt, checkpoint_last\.pt, but "
        rf"{re.escape(str(tmp_path))} holds none; name the file by checkpoint_file\.$"
    )
    with pytest.raises(FileNotFoundError, match=sentence):
        MuseModel.from_pretrained(tmp_path)


def test_a_folder_that_does_not_exist_is_named(folder, tmp_path):
    missing = tmp_path / "missing"
    for call in (
        lambda: MuseModel.from_pretrained(missing, "checkpoint_avg.pt"),
        lambda: MuseModel.from_pretrained(folder, data_name_or_path=missing),
    ):
        with pytest.raises(FileNotFoundError, match=rf"^the folder {re.escape(str(missing))} does not exist; "):
            call()


def test_a_setting_of_the_search_that_does_not_exist_is_named(folder):
    model = MuseModel.from_pretrained(folder)
    assert model.translate(GERMAN[:1], lenpen=2, skip_invalid_size_inputs=True)
    with pytest.raises(TypeError, match=r"^the search has no setting called 'lenpn'; did you mean 'lenpen'\?$"):
        model.translate(GERMAN[:1], lenpn=2)
    with pytest.raises(ValueError, match=r"^beam must be at least 1, but is 0; 5 is usual\.$"):
        model.translate(GERMAN[0], beam=0)


def test_interactive_takes_raw_text(folder, expected, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in GERMAN[:3])))
    printed = run(
        "interactive", folder, "--user-dir", USER_DIR, "--path", folder / "checkpoint_avg.pt", "--cpu", "--beam", 3,
        "--source-lang", "de", "--target-lang", "en", "--max-len-a", 1.5, "--max-len-b", 30,
        "--tokenizer", "muse_text_pipeline", "--text-pipeline", folder,
    )  # fmt: skip
    assert [text.strip() for text in re.findall(r"^D-\d+\t\S+\t(.*)$", printed, re.MULTILINE)] == expected


def test_the_tokenizer_needs_a_folder_with_a_pipeline(tmp_path):
    config = TextPipelineConfig()
    with pytest.raises(ValueError, match=r"^--tokenizer muse_text_pipeline needs --text-pipeline DIR, but it is not"):
        TextPipelineTokenizer(config)
    config.text_pipeline = str(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"{FILE_NAME} does not exist"):
        TextPipelineTokenizer(config)


# ---- phrases that must occur --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_phrases_occur_in_the_translations_of_their_own_lines(folder, order):
    translator = Translator.load(folder, cpu=True, beam=6, constraints=order)
    phrases = [["the station", "see"], [], ["isn't"]]
    lines = [Line(i, "\t".join([GERMAN[i], *phrases[i]])) for i in range(3)]
    translations = translator.translate_lines(lines)
    for own, translation in zip(phrases, translations, strict=True):
        assert all(phrase in translation for phrase in own)
    free = Translator.load(folder, cpu=True, beam=6).translate_lines([Line(i, GERMAN[i]) for i in range(3)])
    assert "see" not in free[0]
    assert "isn't" not in free[2]
    if order == "ordered":
        assert translations[0].index("the station") < translations[0].index("see")


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_phrases_that_a_translation_has_no_room_for_are_left_out_and_said(folder, order, caplog):
    translator = Translator.load(folder, cpu=True, beam=2, constraints=order)
    with caplog.at_level(logging.WARNING):
        translation, other = translator.translate_lines(
            [Line(1, f"{GERMAN[0]}\tsee\tthe station\t{'the station ' * 40}\tis"), Line(2, f"{GERMAN[1]}\tsee")]
        )
    assert "see" in translation
    assert "the station" in translation
    assert "see" in other
    assert [message for message in caplog.messages if message.startswith("line ")] == [
        "line 1: its translation may have at most 11 tokens, fewer than its phrases have; the last 2 of its phrases "
        "are left out."
    ]


def test_a_phrase_with_unknown_words_is_left_out_and_said(folder, caplog):
    translator = Translator.load(folder, cpu=True, beam=6, constraints="ordered")
    with caplog.at_level(logging.WARNING):
        (translation,) = translator.translate_lines([Line(7, f"{GERMAN[0]}\t\u4f60\t \tsee")])
    assert "see" in translation
    assert [message for message in caplog.messages if message.startswith("line ")] == [
        "line 7: the phrase '\u4f60' has words that the model does not know; it is left out."
    ]


def test_without_the_flag_a_tab_is_a_space(folder):
    translator = Translator.load(folder, cpu=True)
    first, second = translator.translate_lines([Line(1, "Wo\tist"), Line(2, "Wo ist")])
    assert first == second
