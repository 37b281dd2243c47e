"""Flags of sentence models that cannot work: each is refused with the rule, what was received, and the way out."""

import re
import sys
from argparse import Namespace

import pytest
from fairseq.models import build_model
from support.sentence_models import MODELS, TRUNK, build, faults_of, make_task

TRANSFORMERS = ("multi_scale_transformer", "sentence_transformer", "sentence_muse")


def test_the_flags_that_the_others_change_one_by_one_are_good():
    for model in MODELS:
        build(model)


SIZES = ["word_embed_dim", "character_ngram_dim", "character_embed_dim", "character_features", "encoder_embed_dim"]
RATES = ["embedding_dropout", "dropout", "classifier_dropout", "classifier_input_dropout"]


@pytest.mark.parametrize("name", SIZES)
def test_build_raises_error_when_a_size_of_the_trunk_is_below_one(name):
    flag = "--" + name.replace("_", "-")
    for model in MODELS:
        for value in (0, -3):
            assert faults_of(model, **{name: value})[0] == f"{flag} must be at least 1, but got {value}.", model


@pytest.mark.parametrize("name", RATES)
def test_build_raises_error_when_a_rate_of_the_trunk_is_no_probability(name):
    flag = "--" + name.replace("_", "-")
    for model in MODELS:
        for value in (-0.1, 1.0, float("nan")):
            assert faults_of(model, **{name: value}) == [f"{flag} must lie in [0, 1), but got {value}."], model


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *((model, name) for model in TRANSFORMERS for name in ("encoder_layers", "encoder_attention_heads")),
        ("multi_scale_transformer", "encoder_head_dim"),
        ("sentence_transformer", "encoder_ffn_embed_dim"),
        ("sentence_bigru", "encoder_layers"),
        ("sentence_bigru", "encoder_hidden_size"),
        ("sentence_cnn", "encoder_filters"),
        ("distance_attention_network", "encoder_attention_heads"),
        ("distance_attention_network", "encoder_ffn_embed_dim"),
        *(("lama", name) for name in ("encoder_hidden_size", "pooling_heads", "pooling_rank", "pooling_hidden_dim")),
    ],
)
def test_build_raises_error_when_a_size_of_the_encoder_or_the_pooling_is_below_one(model, name):
    assert faults_of(model, **{name: 0}) == [f"--{name.replace('_', '-')} must be at least 1, but got 0."]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *((model, "attention_dropout") for model in TRANSFORMERS),
        *((model, "activation_dropout") for model in TRANSFORMERS[1:]),
    ],
)
def test_build_raises_error_when_a_rate_of_the_encoder_is_no_probability(model, name):
    expected = [f"--{name.replace('_', '-')} must lie in [0, 1), but got 1.5."]
    assert faults_of(model, **{name: 1.5}) == expected


def test_build_reports_all_faults_together():
    found = faults_of(
        "sentence_transformer",
        dropout=2.0,
        encoder_layers=0,
        freeze_word_vectors=True,
        encoder_branches="self_attention,rnn",
    )
    assert len(found) == 4
    assert found[0] == "--dropout must lie in [0, 1), but got 2.0."
    assert found[1] == "--encoder-layers must be at least 1, but got 0."
    assert "rnn" in found[3]


@pytest.mark.parametrize("model", ["sentence_transformer", "sentence_muse", "distance_attention_network"])
def test_build_raises_error_when_heads_do_not_divide_the_width(model):
    assert faults_of(model, encoder_attention_heads=5) == [
        "--encoder-embed-dim must be divisible by --encoder-attention-heads, but got 12 and 5; change one of them."
    ]
    build("multi_scale_transformer", encoder_attention_heads=5)  # whose heads have a width of their own


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"encoder_attention_scales": "1,4"}, "must be odd, but got 4; use 3 or 5."),
        ({"encoder_attention_scales": "1,two"}, "but got 'two' in '1,two'."),
        ({"encoder_attention_scales": "1,3,5,7,9"}, "5 scales for 4 heads; use fewer scales or more heads."),
        ({"encoder_attention_bias": "windows"}, "but got 'windows'."),
        ({"encoder_attention_bias": "distance", "encoder_distance_alpha": -1.0}, "but got -1.0."),
    ],
)
def test_build_raises_error_when_windows_cannot_be(flags, part):
    for model in TRANSFORMERS:
        (sentence,) = faults_of(model, **{"encoder_attention_bias": "multi-scale", **flags})
        assert sentence.endswith(part), model
        assert sentence.startswith("--encoder-attention-"), model


@pytest.mark.parametrize("branches", ["self_attention,cross_attention", "", "ffn,ffn"])
def test_build_raises_error_when_branches_cannot_be(branches):
    (sentence,) = faults_of("sentence_transformer", encoder_branches=branches)
    assert sentence.startswith("--encoder-branches")


@pytest.mark.parametrize("sizes", ["4", "", "[[3],[5],[7]]"])
def test_build_raises_error_when_kernel_sizes_cannot_be(sizes):
    (sentence,) = faults_of("sentence_muse", encoder_kernel_sizes=sizes)
    assert sentence.startswith("--encoder-kernel-sizes")


@pytest.mark.parametrize("widths", ["", "3,,4", "3,0", "two", "-3", "3.5", "²"])
def test_build_raises_error_when_filter_widths_are_no_numbers(widths):
    assert faults_of("sentence_cnn", encoder_filter_widths=widths) == [
        f"--encoder-filter-widths must list whole numbers of at least 1, e.g. 3,4,5, but got {widths!r}."
    ]


NO_CHARACTERS = "reads the characters of every word, but the data have none; prepare them with muse-plugin prepare-text"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"freeze_word_vectors": True},
            "--freeze-word-vectors keeps pretrained vectors as they are, but there is no --word-vectors; give a file "
            "or drop the flag.",
        ),
        (
            {"character_encoder": "bilstm", "character_features": 7},
            "--character-features must be even with --character-encoder bilstm, half for each direction, but got 7.",
        ),
        (
            {"task": make_task(), "character_encoder": "cnn"},
            f"--character-encoder {NO_CHARACTERS} --characters, or train with --character-encoder none.",
        ),
        (
            {"task": make_task(), "word_features": "shape"},
            f"--word-features {NO_CHARACTERS} --characters, or train with --word-features none.",
        ),
        *(
            (
                {"task": make_task(predicts), "crf": True},
                "--crf makes tags depend on each other, but this task has one label per sentence; drop the flag or use "
                "--task muse_sequence_tagging.",
            )
            for predicts in ("label", "number")
        ),
        (
            {"task": make_task("tags", pairs=True)},
            "a tagger reads single sentences, but the data have pairs (input1); remove that folder or use --task "
            "muse_sentence_classification.",
        ),
        (
            {"model": "sentence_transformer", "encoder_attention_bias": "distance", "encoder_branches": "ffn"},
            "--encoder-attention-bias limits self-attention, but got --encoder-branches ffn without it; add "
            "self_attention or drop the flag.",
        ),
    ],
)
def test_build_raises_error_when_flags_or_data_do_not_go_together(given, sentence):
    assert faults_of(**given) == [sentence]


def test_build_raises_error_when_the_task_is_not_one_of_sentences():
    task = Namespace(cfg=Namespace(_name="translation"), source_dictionary=make_task().source_dictionary)
    sentence = (
        "a sentence model needs a task of sentences, but got --task translation; use --task "
        "muse_sentence_classification, muse_sequence_tagging or muse_mirrored_summation."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build_model(Namespace(_name="sentence_cnn", arch="sentence_cnn", **TRUNK), task)


def test_build_raises_error_when_word_features_cannot_be():
    for given, part in (
        ("case", "needs text with upper-case letters"),
        ("colour", "but got ['colour']"),
        ("", "each once"),
    ):
        (sentence,) = faults_of(task=make_task(characters=True), word_features=given)
        assert sentence.startswith("--word-features: ")
        assert part in sentence


@pytest.mark.parametrize("name", ["pooling", "character_encoder", "classifier_activation"])
def test_build_raises_error_for_an_unknown_choice(name):
    flag = "--" + name.replace("_", "-")
    with pytest.raises(ValueError, match=rf"^{flag} must be one of [a-z_, ]+, but got 'nonesuch'\.$"):
        build(task=make_task(characters=True), **{name: "nonesuch"})


def test_a_missing_package_is_named_with_its_flag(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcrf", None)
    with pytest.raises(ImportError, match=r"^--crf: a conditional random field needs the package pytorch-crf"):
        build("sentence_bigru", make_task("tags", outputs=4), crf=True)


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        (
            "sentence_transformer",
            {"encoder_attention_scales": "1,3"},
            ["--encoder-attention-scales has no effect with --encoder-attention-bias none, but got 1,3"],
        ),
        (
            "sentence_muse",
            {"encoder_attention_bias": "distance", "encoder_attention_scale_alpha": 0.1, "encoder_distance_alpha": 2.0},
            ["--encoder-attention-scale-alpha has no effect with --encoder-attention-bias distance, but got 0.1"],
        ),
        (
            "multi_scale_transformer",
            {"encoder_distance_slopes": "learned", "encoder_attention_diagonal": "kept"},
            [
                "--encoder-attention-diagonal has no effect with --encoder-attention-bias multi-scale, but got kept",
                "--encoder-distance-slopes has no effect with --encoder-attention-bias multi-scale, but got learned",
            ],
        ),
        (
            "sentence_transformer",
            {"encoder_kernel_sizes": "7"},
            ["--encoder-kernel-sizes has no effect without a convolution in --encoder-branches, but got 7"],
        ),
        ("sentence_cnn", {"dropout": 0.4}, ["--dropout has no effect with this encoder, but got 0.4"]),
        ("sentence_average", {"dropout": 0.0}, ["--dropout has no effect with this encoder, but got 0.0"]),
        ("sentence_bigru", {"dropout": 0.4}, []),
        ("sentence_transformer", {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "1,3"}, []),
        ("sentence_transformer", {"encoder_attention_bias": "distance", "encoder_attention_bias_layers": "0"}, []),
    ],
)
def test_flags_of_what_is_not_chosen_are_named(model, flags, words, caplog):
    build(model, **flags)
    assert caplog.messages == [f"{sentence}; drop it." for sentence in words]
