"""LAMA and the networks it is compared with: sizes as published, flags, attention for inspection."""

import re
from argparse import Namespace

import pytest
import torch
from fairseq.models import build_model
from support.helpers import assert_close
from support.reference import make_dictionary
from support.sentence_models import build, build_preset, faults_of, make_input, make_sentences, make_task
from torch import nn

from muse_plugin.models.presets import PRESETS
from muse_plugin.modules.recurrent_encoder import BiGRU

LAMA = ("lama", "lama_context", "lama_encoder")
BASELINES = ("structured_attention", "bigru", "cnn", "transformer", "average")


def make(name, classes=5, **flags):
    """A model of full size, as the command line makes it, on 25 words."""
    return build_preset(name, make_task(outputs=classes, source_dictionary=make_dictionary(25)), **flags)


def count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


# ---- sizes --------------------------------------------------------------------------------------------------------


def test_lama_has_the_parameters_worked_out_from_the_paper():
    net = make("lama")
    words = net.embedder.words
    assert (words.embedding_dim, net.embedder.projection) == (100, None)
    assert count(net.encoder) == 45_600
    assert count(net.pooling.parts[0].hidden) == 10_100
    assert count(net.pooling.parts[0].context_factors, net.pooling.parts[0].state_factors) == 3_000
    assert count(net.classifier) == 771_077
    assert count(net) == words.weight.numel() + 45_600 + 10_100 + 3_000 + 100 + 771_077
    assert count(make("lama_context")) == count(net) - 100  # no learned context
    assert count(make("lama_encoder")) == count(net) - 45_600


@pytest.mark.parametrize("heads", [2, 15])
def test_lama_has_the_parameters_of_the_formula_at_other_sizes(heads):
    d, h, m, classes = 60, 20, heads, 8
    net = make("lama", classes, word_embed_dim=d, encoder_embed_dim=d, encoder_hidden_size=h, pooling_heads=m)
    rows = net.embedder.words.num_embeddings
    expected = rows * d + 6 * (d * h + h * h + 2 * h) + (4 * h * h + 2 * h) + 2 * h + 4 * h * m
    assert count(net) == expected + (m * 2 * h * 512 + 512) + (512 * classes + classes)


def test_a_head_costs_1024_parameters_at_width_512_and_none_in_the_transformer():
    """The slope of the paper's Table 5, whose constant part cannot be identified."""
    heads = (2, 4, 8, 16, 32, 64)
    wide = {"encoder_hidden_size": 256, "word_embed_dim": 100, "encoder_embed_dim": 100}
    sizes = [count(make("lama", pooling_heads=m, **wide).pooling) for m in heads]
    assert [size - sizes[0] for size in sizes] == [1_024 * (m - 2) for m in heads]
    printed = [6.403, 6.405, 6.409, 6.418, 6.434, 6.468]  # millions
    for size, million in zip(sizes, printed, strict=True):
        assert abs((size - sizes[0]) / 1e6 - (million - printed[0])) < 0.002
    transformers = {count(make("sentence_transformer_documents", encoder_attention_heads=m).encoder) for m in heads}
    assert transformers == {3_152_384 + 2 * 512}  # the layer, and the layer norm on its input


def test_baselines_have_the_words_and_the_classifier_of_lama():
    widths = {"structured_attention": 30 * 100, "bigru": 100, "cnn": 300, "transformer": 512, "average": 100}
    documents = {name for name in PRESETS if name.endswith("_documents")}
    assert {f"sentence_{name}_documents" for name in BASELINES} == documents
    for name in BASELINES:
        net = make(f"sentence_{name}_documents")
        assert net.embedder.words.embedding_dim == 100
        assert (net.embedder.projection is None) == (name != "transformer")
        dropouts = [layer.p for layer in net.classifier if isinstance(layer, nn.Dropout)]
        linear = [layer for layer in net.classifier if isinstance(layer, nn.Linear)]
        assert dropouts == [0.0, 0.4]
        assert [layer.in_features for layer in linear] == [widths[name], 512]
        assert [type(layer) for layer in net.classifier][2] is nn.ReLU
    structured = make("sentence_structured_attention_documents").pooling.parts[0]
    assert (structured.num_heads, structured.hidden.out_features) == (30, 350)
    transformer = make("sentence_transformer_documents")
    assert (len(transformer.encoder.layers), transformer.pooling.kind) == (1, "mean")


def test_the_models_of_the_paper_have_its_settings():
    for name in LAMA:
        net = make(name)
        part = net.pooling.parts[0]
        assert (part.num_heads, part.rank, part.l2_norm) == (15, 1, True)
        assert (part.context is None) == (name == "lama_context")
        assert isinstance(net.encoder, BiGRU) == (name != "lama_encoder")
        assert [layer.p for layer in net.classifier if isinstance(layer, nn.Dropout)] == [0.0, 0.4]
    assert not build("lama", pooling_norm="none").pooling.parts[0].l2_norm


def test_dropout_of_the_classifiers_input_is_that_of_the_other_layer_unless_given():
    for given, expected in ((None, [0.25, 0.25]), (0.0, [0.0, 0.25]), (0.5, [0.5, 0.25])):
        net = build("sentence_average", classifier_dropout=0.25, classifier_input_dropout=given)
        assert [layer.p for layer in net.classifier if isinstance(layer, nn.Dropout)] == expected


# ---- what heads look at -------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["low_rank_attention", "structured_attention"])
@pytest.mark.parametrize("model", ["lama_context", "multi_scale_transformer", "sentence_muse", "sentence_cnn"])
def test_attention_is_given_for_inspection_and_adds_up_to_the_vector(model, pooling):
    net = build(model, pooling=pooling, pooling_heads=3, pooling_context="mean", pooling_hidden_dim=5).eval()
    batch = make_input(make_sentences(6, 1, 4), longer=2)
    heads = net.attend(**batch)
    assert heads.weights.shape == (3, 3, 8)
    for row, n in enumerate((6, 1, 4)):
        assert_close(heads.weights[row, :, :n].sum(dim=1), torch.ones(3))
        assert not heads.weights[row, :, n:].any()
    assert_close(heads.weights[1, :, 0], torch.ones(3))
    states, _ = net.encode(**batch)
    expected = torch.stack([weights @ own for weights, own in zip(heads.weights, states, strict=True)])
    assert_close(net.represent(**batch), expected.flatten(1))
    assert_close(heads.vectors, expected)


@torch.no_grad()
def test_the_context_is_the_mean_of_the_words_that_the_encoder_reads_not_of_its_states():
    net = build("lama_context").eval()
    batch = make_input(make_sentences(6, 3), longer=1)
    words, _, mask = net.embed(**batch)
    assert not words[mask].any()
    part = net.pooling.parts[0]
    assert part.context_size == 12
    for row, n in enumerate((6, 3)):
        context = words[row, :n].mean(dim=0)
        states = net.encode(**batch)[0][row : row + 1, :n]
        factors = part.state_factors(torch.tanh(part.hidden(states)))
        scores = torch.tanh(factors * part.context_factors(context))
        weights = (scores / scores.norm(dim=-1, keepdim=True)).softmax(dim=1)
        assert_close(net.attend(**batch).weights[row, :, :n], weights[0].T)


def test_words_are_trained_through_the_context():
    """With a GRU whose states do not depend on what it reads, only the context can carry a gradient to the words."""
    net = build("lama_context")
    with torch.no_grad():
        for name, parameter in net.encoder.named_parameters():
            if "_ih_" in name:  # states do not depend on words, but on positions
                parameter.zero_()
        for parameter in net.encoder.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter)
    net(**make_input(make_sentences(7))).logits[0, 0].backward()
    assert net.embedder.words.weight.grad.any()


def test_attention_of_a_model_without_heads_is_refused():
    for model, pooling in (("sentence_bigru", "max"), ("lama", "mean")):
        sentence = (
            "the attention of heads needs --pooling low_rank_attention or structured_attention, but this model has "
            f"--pooling {pooling}; train one with such a pooling."
        )
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            build(model, pooling=pooling).attend(**make_input(make_sentences(3)))
    with pytest.raises(ValueError, match=r"^the attention of heads needs .*, but this model pools otherwise; "):
        build("lama", make_task("tags")).attend(**make_input(make_sentences(3)))


# ---- flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "sentences"),
    [
        (
            {"pooling_norm_epsilon": 1e-50},
            [
                "--pooling-norm-epsilon must be finite and at least 1e-12, but got 1e-50; --pooling-norm none switches "
                "the norm off."
            ],
        ),
        (
            {"pooling_rank": 0, "pooling_norm_epsilon": 0.0, "classifier_hidden_dim": -1},
            [
                "--pooling-rank must be at least 1, but got 0.",
                "--classifier-hidden-dim must be at least 0, but got -1; 0 is a single layer.",
                "--pooling-norm-epsilon must be finite and at least 1e-12, but got 0.0; --pooling-norm none switches "
                "the norm off.",
            ],
        ),
    ],
)
def test_build_raises_error_for_flags_that_cannot_work(flags, sentences):
    assert faults_of("lama", **flags) == sentences


@pytest.mark.parametrize(
    ("pooling", "name", "value"),
    [
        ("max", "pooling_heads", 8),
        ("mean", "pooling_rank", 3),
        ("max", "pooling_context", "mean"),
        ("max", "pooling_norm", "none"),
        ("max", "pooling_norm_epsilon", 0.0),
        ("low_rank_attention", "pooling_hidden_dim", 9),
        ("low_rank_attention", "projection_norms", "all"),
    ],
)
def test_flags_that_the_pooling_does_not_read_are_named(pooling, name, value, caplog):
    build("lama", **{"pooling": pooling, "pooling_heads": 15, name: value})
    (record,) = caplog.records
    sentence = f"--{name.replace('_', '-')} has no effect with --pooling {pooling}, but got {value}; drop it."
    assert (record.levelname, record.getMessage()) == ("WARNING", sentence)


def test_flags_that_the_pooling_reads_and_those_of_a_checkpoint_are_not_named(caplog):
    build("lama", pooling_heads=8, pooling_rank=2, pooling_norm="none", pooling_norm_epsilon=0.0)
    build("lama", pooling="structured_attention", pooling_heads=8, pooling_hidden_dim=9)
    build("lama", make_task(loads_checkpoint=True), pooling="max", pooling_heads=8)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"character_features": 8}, "--character-features has no effect without --character-encoder, but got 8; drop"),
        ({"word_feature_dim": 8}, "--word-feature-dim has no effect without --word-features, but got 8; drop it."),
        ({"character_ngram_dim": 8}, "--character-ngram-dim has no effect without --character-ngram-vectors, but got"),
        (
            {"classifier_hidden_dim": 0, "classifier_activation": "elu"},
            "--classifier-activation has no effect without --classifier-hidden-dim, but got elu; drop it.",
        ),
    ],
)
def test_flags_of_parts_that_are_not_there_are_named(flags, words, caplog):
    build("lama", **flags)
    (message,) = caplog.messages
    assert message.startswith(words)
    caplog.clear()
    build("lama", character_encoder="cnn", character_features=8, classifier_activation="elu")
    assert caplog.messages == []


def test_a_tagger_names_all_flags_of_the_pooling_that_it_does_not_have(caplog):
    build(
        "lama",
        make_task("tags"),
        pooling_heads=8,
        pooling_norm="none",
        pooling_hidden_dim=9,
        classifier_hidden_dim=5,
        pair_features="signed_product",
    )
    assert [record.getMessage() for record in caplog.records] == [
        "--pooling-heads has no effect on a tagger, which does not pool, but got 8; drop it.",
        "--pooling-norm has no effect on a tagger, which does not pool, but got none; drop it.",
        "--pooling-hidden-dim has no effect on a tagger, which does not pool, but got 9; drop it.",
        "--classifier-hidden-dim has no effect on a tagger, which does not pool, but got 5; drop it.",
        "--pair-features has no effect on single sentences, but got signed_product; drop it.",
    ]


def test_word_vectors_of_another_width_are_refused(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("w0 1 2 3\nw1 4 5 6\n")
    sentence = (
        f"--word-vectors {path} must be as wide as --word-embed-dim 100: the width of all rows must be 100, but line 1 "
        f"of {path} has width 3; copy the file again or give its own width."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build_model(Namespace(_name="lama", arch="lama", word_embed_dim=100, word_vectors=str(path)), make_task())
