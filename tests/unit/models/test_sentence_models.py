"""What must hold for every sentence model: padding, batch, order of words, pairs, tags, gradients, storage, sizes."""

import io
import itertools
import logging
import pickle
import re
from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY
from support.fairseq_commands import parse_training
from support.helpers import assert_close
from support.sentence_models import (
    MODELS,
    PAD,
    SYMBOLS,
    TRUNK,
    VARIANTS,
    build,
    build_preset,
    built,
    make_input,
    make_sentences,
    make_task,
)
from torch import nn

from muse_plugin.models import presets
from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerModel
from muse_plugin.models.muse import MuseModel
from muse_plugin.models.muse_config import flat_flags
from muse_plugin.modules.sentence_pooling import POOLINGS

# float32, sums in another order; the largest difference over all variants was 1.9e-6.
ATOL = 1e-5
LENGTHS = (7, 1, 23, 2)
# Where a classification token next to one word sees itself alone: windows are one word wide, or there is no encoder.
BLIND = (
    "sentence_average",
    "lama_encoder",
    "single_layer_on_top",
    "windows_of_one",
    "scaled_by_model",
    "transformer_with_windows",
)
ORDERLESS = ("sentence_average", "lama_encoder", "single_layer_on_top", "no_positions", "no_windows", "windows_of_one")


# What is another model by the way its states are pooled alone.
OWN_POOLING = [
    *("lama", "lama_context", "lama_encoder", "sentence_structured_attention", "lama_of_rank_two_without_norm"),
    *("windows_with_source_to_token", "windows_with_low_rank_attention", "muse_with_low_rank_attention"),
]
ENCODERS = [variant for variant in VARIANTS if variant not in OWN_POOLING]
# Every encoder with one pooling, every pooling on one encoder, and the token alone where it sees nothing.
POOLED = sorted(
    {(variant, "cls_max") for variant in ENCODERS}
    | {("multi_scale_transformer", pooling) for pooling in POOLINGS}
    | {(variant, "cls") for variant in set(BLIND).intersection(ENCODERS)}
)


@pytest.fixture(params=ENCODERS)
def encoder(request):
    return request.param


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(params=POOLED, ids="-".join)
def pooled(request):
    return request.param


def has_characters(variant):
    return variant.startswith("character")


def logits_of(net, sentences, characters=False, **padding):
    return net(**make_input(sentences, characters=characters, **padding)).logits


# ---- what is next to a sentence ----------------------------------------------------------------------------------


@torch.no_grad()
def test_a_sentence_alone_equals_itself_in_a_batch_however_padded(pooled):
    variant, pooling = pooled
    net, sentences, characters = built(variant, pooling=pooling), make_sentences(*LENGTHS), has_characters(variant)
    batch = logits_of(net, sentences, characters)
    assert batch.shape == (4, 3)
    assert batch.isfinite().all()
    for longer, filling in ((9, PAD), (5, 6)):  # whatever comes after the end, it is not read
        assert_close(logits_of(net, sentences, characters, longer=longer, filling=filling), batch, atol=ATOL)
    for row, sentence in enumerate(sentences):
        assert_close(logits_of(net, [sentence], characters)[0], batch[row], atol=ATOL)


@torch.no_grad()
def test_a_sentence_of_one_word_gives_finite_numbers_that_depend_on_it(pooled):
    variant, pooling = pooled
    net, characters = built(variant, pooling=pooling), has_characters(variant)
    words = [torch.tensor([word]) for word in range(4, 9)]
    out = logits_of(net, words, characters)
    assert out.isfinite().all()
    blind = pooling == "cls" and variant in BLIND
    assert (out.std(0).max() > 1e-3) != blind  # a classification token that is not mixed with words knows none


@torch.no_grad()
def test_a_sentence_without_words_is_finite_and_disturbs_no_other(pooled):
    variant, pooling = pooled
    net, characters = built(variant, pooling=pooling), has_characters(variant)
    empty, others = torch.zeros(0, dtype=torch.int64), make_sentences(5, 2)
    out = logits_of(net, [empty, *others], characters)
    assert out.isfinite().all()
    assert_close(out[1:], logits_of(net, others, characters), atol=ATOL)


@torch.no_grad()
def test_every_word_can_matter(encoder):
    net, characters = built(encoder, pooling="mean"), has_characters(encoder)
    (sentence,) = make_sentences(9)
    before = logits_of(net, [sentence], characters)
    for at in range(9):
        changed = sentence.clone()
        changed[at] = 4 + (changed[at] - 3) % (SYMBOLS - 4)
        assert (logits_of(net, [changed], characters) - before).abs().max() > 1e-4


@torch.no_grad()
def test_order_of_words_matters_where_there_are_positions_windows_or_steps(encoder):
    net, characters = built(encoder, pooling="mean"), has_characters(encoder)
    sentences = make_sentences(*range(6, 16), seed=1)
    swapped = [torch.cat([row[3:4], row[1:3], row[:1], row[4:]]) for row in sentences]
    difference = (logits_of(net, swapped, characters) - logits_of(net, sentences, characters)).abs().max()
    assert difference > 5e-4 if encoder not in ORDERLESS else difference < ATOL


def test_pooling_of_negative_states_ignores_the_zeros_of_padding():
    net = build("sentence_average", pooling="max").eval()
    with torch.no_grad():
        net.embedder.projection.bias.fill_(-50)
    sentences = make_sentences(6, 2)
    vectors = net.represent(**make_input(sentences, longer=3))
    assert (vectors < -20).all()
    assert_close(vectors[1:], net.represent(**make_input(sentences[1:])), atol=ATOL)


@torch.no_grad()
def test_only_learned_positions_end():
    sentence = (
        "--encoder-positions learned is for at most 1024 words (a classification token is one), but got 1025; "
        "use --encoder-positions sinusoidal or a smaller --max-words."
    )
    net = build("sentence_transformer", encoder_layers=1, encoder_positions="learned").eval()
    assert logits_of(net, make_sentences(1023), longer=9).isfinite().all()
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        logits_of(net, make_sentences(1024))
    endless = build("sentence_transformer", encoder_layers=1).eval()
    assert logits_of(endless, make_sentences(1300)).isfinite().all()


# ---- the classification token -------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(("scales", "seen"), [("1", 0), ("3", 1), ("3,7", 3), ("all", 9), ("N/2", 2)])
def test_the_classification_token_is_a_node_with_the_windows_of_any_other(scales, seen):
    """Nine words and the token are ten nodes: half of that is a window of five."""
    net = build(encoder_layers=1, encoder_attention_scales=scales, pooling="cls").eval()
    (sentence,) = make_sentences(9)
    before = net.represent(**make_input([sentence]))
    for at in range(9):
        changed = sentence.clone()
        changed[at] = 4 + (changed[at] - 3) % (SYMBOLS - 4)
        same = torch.equal(net.represent(**make_input([changed])), before)
        assert same == (at >= seen), f"word {at}"


@torch.no_grad()
def test_the_classification_token_stands_first_and_counts_as_a_word():
    net = build("sentence_average", pooling="cls").eval()
    states, mask = net.encode(**make_input(make_sentences(4, 2)))
    assert states.shape == (2, 5, 12)
    assert_close(states[:, 0], net.cls.expand(2, -1), atol=0, rtol=0)
    assert mask.tolist() == [[False] * 5, [False] * 3 + [True] * 2]
    assert net.encode(**make_input(make_sentences(4)))[1] is None


@pytest.mark.parametrize("pooling", POOLINGS)
def test_only_poolings_that_need_the_token_have_one(pooling):
    net = build(pooling=pooling)
    assert (net.cls is not None) == pooling.startswith("cls")
    net(**make_input(make_sentences(3, 2))).logits.sum().backward()
    assert net.cls is None or net.cls.grad.any()


# ---- pairs --------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["max", "cls_max_concat"])
@pytest.mark.parametrize("kind", ["product", "difference_twice"])
def test_a_pair_is_classified_by_the_features_of_its_vectors(kind, pooling):
    for model in MODELS:
        net = build(model, make_task(pairs=True), pair_features=kind, pooling=pooling).eval()
        first, second = make_sentences(5, 2, 9), make_sentences(3, 11, 1, seed=1)
        u = net.represent(**make_input(first))
        v = net.represent(*make_input(second, prefix="pair").values())
        last = u * v if kind == "product" else u - v
        expected = net.classifier(torch.cat([u, v, (u - v).abs(), last], dim=1))
        actual = net(**make_input(first), **make_input(second, prefix="pair", longer=2)).logits
        assert_close(actual, expected, atol=ATOL)
        for row in range(3):
            pair = {**make_input(first[row : row + 1]), **make_input(second[row : row + 1], prefix="pair")}
            assert_close(net(**pair).logits[0], actual[row], atol=ATOL)


def test_both_sentences_of_a_pair_use_one_encoder():
    net = build("sentence_bigru", make_task(pairs=True))
    single = build("sentence_bigru")
    extra = sum(p.numel() for p in net.parameters()) - sum(p.numel() for p in single.parameters())
    assert extra == 3 * 14 * TRUNK["classifier_hidden_dim"]


# ---- tags and vectors ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_tags_of_a_sentence_alone_equal_those_in_a_batch(encoder):
    characters = has_characters(encoder)
    net = build(**VARIANTS[encoder], task=make_task("tags", 5, characters=characters)).eval()
    assert (net.cls, net.pooling, net.classifier) == (None, None, None)
    sentences = make_sentences(*LENGTHS)
    batch = logits_of(net, sentences, characters, longer=4)
    assert batch.shape == (4, 27, 5)
    for row, sentence in enumerate(sentences):
        alone = logits_of(net, [sentence], characters)[0]
        assert alone.shape == (len(sentence), 5)
        assert_close(batch[row, : len(sentence)], alone, atol=ATOL)
    best = net.best_tags(batch, torch.tensor(LENGTHS))
    assert best == [batch[row, :n].argmax(-1).tolist() for row, n in enumerate(LENGTHS)]


def test_a_field_gives_the_loss_of_each_sentence_where_tags_are_given():
    pytest.importorskip("torchcrf", reason="needs pytorch-crf")
    net = build(task=make_task("tags", 3), crf=True).eval()
    sentences = make_sentences(4, 1, 3)
    batch = make_input(sentences)
    tags = torch.tensor([[0, 2, 1, 1], [2, -1, -1, -1], [1, 1, 0, -1]])
    logits, losses, _ = net(**batch, target=tags)
    assert net(**batch).losses is None
    assert losses.shape == (3,)
    crf = net.tag_scores.crf
    for row, n in enumerate((4, 1, 3)):
        totals = {}
        for path in itertools.product(range(3), repeat=n):
            steps = sum(crf.transitions[pair] for pair in itertools.pairwise(path))
            ends = crf.start_transitions[path[0]] + crf.end_transitions[path[-1]]
            totals[path] = logits[row, range(n), path].sum() + steps + ends
        own = totals[tuple(tags[row, :n].tolist())]
        assert_close(losses[row], torch.stack([*totals.values()]).logsumexp(0) - own, atol=ATOL)
        assert tuple(net.best_tags(logits, batch["src_lengths"])[row]) == max(totals, key=totals.get)


@torch.no_grad()
@pytest.mark.parametrize("model", MODELS)
def test_words_may_be_vectors(model):
    net = build(model, make_task("number", 4, vector_size=6, source_dictionary=None)).eval()
    vectors, lengths = torch.randn(3, 8, 6), torch.tensor([8, 5, 1])
    out = net(src_tokens=vectors, src_lengths=lengths).logits
    assert out.shape == (3, 4)
    for row, n in enumerate((8, 5, 1)):
        alone = net(src_tokens=vectors[row : row + 1, :n], src_lengths=torch.tensor([n])).logits
        assert_close(out[row], alone[0], atol=ATOL)


# ---- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "tags"), [*((variant, False) for variant in VARIANTS), *((variant, True) for variant in ENCODERS)]
)
def test_every_parameter_receives_a_finite_gradient(variant, tags):
    characters, noise = has_characters(variant), 0.3
    flags = {**VARIANTS[variant], "embedding_dropout": noise, "dropout": noise, "classifier_dropout": noise}
    if "encoder_attention_heads" in MODELS[flags.get("model", "multi_scale_transformer")]:
        flags["attention_dropout"] = noise
    net = build(**flags, task=make_task("tags" if tags else "label", characters=characters)).train()
    lengths = (*LENGTHS, 12, 5, 1, 9)
    logits = logits_of(net, make_sentences(*lengths), characters)
    if tags:
        logits = torch.cat([logits[row, :n] for row, n in enumerate(lengths)])
    F.cross_entropy(logits, torch.arange(len(logits)) % 3).backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []
    assert all(p.grad.isfinite().all() for p in net.parameters())
    assert not net.embedder.words.weight.grad[PAD].any()


@pytest.mark.parametrize("name", ["embedding_dropout", "dropout", "attention_dropout", "classifier_dropout"])
def test_dropout_acts_in_training_only(name):
    net, batch = build(**{name: 0.5}), make_input(make_sentences(9, 4))
    net.eval()
    assert torch.equal(net(**batch).logits, net(**batch).logits)
    assert_close(net(**batch).logits, build().eval()(**batch).logits, atol=0, rtol=0)
    net.train()
    assert not torch.equal(net(**batch).logits, net(**batch).logits)


@torch.no_grad()
@pytest.mark.usefixtures("on_device")
def test_half_precision_is_finite_and_near(encoder):
    characters = has_characters(encoder)
    net = build(**VARIANTS[encoder], task=make_task("tags", characters=characters)).eval()
    sentences = make_sentences(*LENGTHS)
    expected = logits_of(net, sentences, characters)
    out = logits_of(net.bfloat16(), sentences, characters)
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
    out, expected = (torch.cat([x[row, :n] for row, n in enumerate(LENGTHS)]) for x in (out, expected))
    assert_close(
        out.float(), expected, atol=0.25, why="bfloat16 has 8 bits, through several layers, on numbers up to 6"
    )


# ---- storage ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_state_dict_is_read_back_exactly(variant):
    characters = has_characters(variant)
    net, other = built(variant), build(**VARIANTS[variant], seed=11).eval()
    sentences = make_sentences(*LENGTHS)
    assert not torch.equal(logits_of(net, sentences, characters), logits_of(other, sentences, characters))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file), strict=True)
    assert_close(logits_of(other, sentences, characters), logits_of(net, sentences, characters), atol=0, rtol=0)


@pytest.fixture
def vectors(tmp_path):
    """Files of vectors of some words, and of their n-grams: w0 has 1s, w1 2s, and so on; w9 is none of ours."""
    words, ngrams = tmp_path / "words.txt", tmp_path / "ngrams.txt"
    words.write_text("".join(f"w{n} {' '.join([str(n + 1.0)] * 10)}\n" for n in (0, 1, 5)) + "other" + " 7" * 10 + "\n")
    ngrams.write_text(f"1gram-w{' 1' * 4}\n1gram-2{' 3' * 4}\n")
    return words, ngrams


def first_of(dictionary):
    return dictionary.index("w0")


def test_vectors_are_counted_and_those_of_other_words_refused(vectors, tmp_path, caplog):
    caplog.set_level(logging.INFO, "muse_plugin")
    words, ngrams = map(str, vectors)
    build(word_vectors=words, character_ngram_vectors=ngrams, character_ngram_dim=4, input_projection="always")
    count = sum(1 for word in make_task().source_dictionary.symbols if word.startswith("w"))
    assert f"--word-vectors {words}: vectors for 3 of {count} words; missing are w2 w3 w4" in caplog.text
    assert f"--character-ngram-vectors {ngrams}: vectors for {count} of {count} words; missing are none" in caplog.text
    (tmp_path / "others.txt").write_text("hund" + " 1" * 10 + "\n")
    (tmp_path / "other_ngrams.txt").write_text("1gram-ß" + " 1" * 4 + "\n")
    for name, flags in (
        ("word_vectors", {"word_vectors": str(tmp_path / "others.txt"), "freeze_word_vectors": True}),
        (
            "character_ngram_vectors",
            {"character_ngram_vectors": str(tmp_path / "other_ngrams.txt"), "character_ngram_dim": 4},
        ),
    ):
        sentence = f"--{name.replace('_', '-')} {flags[name]} must have vectors of words of the data, but has none of"
        with pytest.raises(ValueError, match=re.escape(sentence)):
            build(**flags)


@pytest.mark.parametrize("frozen", [False, True])
def test_word_vectors_come_from_the_file_and_move_only_if_they_may(vectors, frozen):
    task = make_task()
    net = build(word_vectors=str(vectors[0]), freeze_word_vectors=True, task=task)  # (build scales what is trained)
    table, at = net.embedder.words.weight, first_of(task.source_dictionary)
    for row, value in ((at, 1.0), (at + 1, 2.0), (at + 5, 6.0)):
        assert (table[row] == value).all()
    rest = torch.cat([table[2:at], table[at + 2 : at + 5], table[at + 6 :]])
    assert rest.abs().max() <= 0.05
    assert rest.any(1).all()
    assert not table[PAD].any()
    net = build(word_vectors=str(vectors[0]), freeze_word_vectors=frozen, task=task)
    before = net.embedder.words.weight.clone()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.1)
    logits_of(net, make_sentences(*LENGTHS)).square().sum().backward()
    optimizer.step()
    assert torch.equal(net.embedder.words.weight, before) == frozen
    assert net.embedder.projection.weight.grad.any()
    assert not net.embedder.words.weight[PAD].any()


def test_a_second_table_of_character_ngrams_stands_beside_the_words_and_is_fixed(vectors):
    task = make_task()
    net = build(character_ngram_vectors=str(vectors[1]), character_ngram_dim=4, task=task)
    at = first_of(task.source_dictionary)
    table = net.embedder.extra.weight
    assert (table[at] == 1).all()  # w0: of its characters only w is there
    assert (table[at + 2] == 2).all()  # w2: w and 2
    assert not table.requires_grad
    assert net.embedder.projection.in_features == 14
    logits_of(net, make_sentences(*LENGTHS)).square().sum().backward()
    assert table.grad is None


@torch.no_grad()
def test_vector_files_are_read_for_training_and_not_missed_when_a_checkpoint_has_them(vectors):
    flags = {
        "word_vectors": str(vectors[0]),
        "freeze_word_vectors": True,
        "character_ngram_vectors": str(vectors[1]),
        "character_ngram_dim": 4,
    }
    sentences = make_sentences(*LENGTHS)
    net = build(**flags).eval()
    expected = logits_of(net, sentences)
    for path in vectors:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"words\.txt"):
        build(**flags)
    loaded = build(**flags, task=make_task(loads_checkpoint=True), seed=9).eval()
    assert not torch.allclose(logits_of(loaded, sentences), expected, atol=1e-2)
    loaded.load_state_dict(net.state_dict(), strict=True)
    assert_close(logits_of(loaded, sentences), expected, atol=0, rtol=0)


# ---- sizes and registration ---------------------------------------------------------------------------------------

PRESETS = [name for name in presets.PRESETS if not issubclass(MODEL_REGISTRY[name], MuseModel)]


def test_registered_models_are_ours_and_their_flags_survive_pickle():
    for name in (*MODELS, *PRESETS):
        assert MODEL_REGISTRY[name].__module__.startswith("muse_plugin.models.")
        assert ARCH_MODEL_NAME_REGISTRY[name] == name
        config = MODEL_REGISTRY[name].config_class()
        assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("name", [*MODELS, PRESETS[0]])
def test_every_flag_reaches_the_command_line(name):
    config = MODEL_REGISTRY[name].config_class
    args = parse_training("data", "--arch", name, "--max-tokens=1")
    flat = flat_flags(args, config)
    for f in fields(config):
        if f.name != "_name":
            assert str(getattr(flat, f.name)) == str(getattr(config(), f.name)), f.name
    flags = ["--encoder-embed-dim=24", "--pooling=mean", "--word-vectors=file", "--freeze-word-vectors"]
    given = parse_training("data", "--arch", name, "--max-tokens=1", *flags)
    flat = flat_flags(convert_namespace_to_omegaconf(given).model, config)
    assert (flat.encoder_embed_dim, str(flat.pooling)) == (24, "mean")
    assert (flat.word_vectors, flat.freeze_word_vectors) == ("file", True)


def heads_of(net):
    """Heads per scale, layer by layer, from the smallest scale."""
    rows = []
    for layer in net.encoder.layers:
        names = [str(scale) for scale in layer.windows.scales]
        rows.append({name: names.count(name) for name in dict.fromkeys(names)})
    return rows


def test_heads_of_the_default_sizes_are_distributed_as_published():
    for name in ("multi_scale_transformer", "multi_scale_transformer_sst", "multi_scale_transformer_mtl16"):
        assert heads_of(build_preset(name)) == [
            {"1": 5, "3": 2, "N/16": 2, "N/8": 1},
            {"1": 4, "3": 2, "N/16": 2, "N/8": 1, "N/4": 1},
            {"1": 2, "3": 2, "N/16": 2, "N/8": 2, "N/4": 2},
        ]


def test_heads_of_the_other_presets_are_those_of_the_rule():
    assert heads_of(build_preset("multi_scale_transformer_snli", make_task(pairs=True))) == [
        {"1": 3, "3": 1, "N/16": 1},
        {"1": 2, "3": 1, "N/16": 1, "N/8": 1},
        dict.fromkeys(("1", "3", "N/16", "N/8", "N/4"), 1),
    ]
    assert heads_of(build_preset("multi_scale_transformer_tagging", make_task("tags"))) == [
        {"1": 7, "3": 2, "5": 1},
        {"1": 5, "3": 2, "5": 2, "7": 1},
        dict.fromkeys(("1", "3", "5", "7", "9"), 2),
    ]


@pytest.mark.parametrize(
    ("name", "width", "heads", "head_dim", "matrices"),
    [
        ("multi_scale_transformer_sst", 300, 10, 30, 360_600),
        ("multi_scale_transformer_mtl16", 300, 10, 30, 360_600),
        ("multi_scale_transformer_tagging", 300, 10, 30, 360_600),
        ("multi_scale_transformer_snli", 600, 5, 64, 769_200),
    ],
)
def test_presets_have_the_published_widths(name, width, heads, head_dim, matrices):
    pairs, predicts = name.endswith("snli"), "tags" if name.endswith("tagging") else "label"
    net = build_preset(name, make_task(predicts, pairs=pairs))
    assert isinstance(net, MultiScaleTransformerModel)
    assert len(net.encoder.layers) == 3
    for layer in net.encoder.layers:
        assert (layer.layer_norm.normalized_shape, layer.num_heads, layer.head_dim) == ((width,), heads, head_dim)
        weights = [p.numel() for key, p in layer.named_parameters() if "bias" not in key or "norm" in key]
        assert sum(weights) == matrices
    assert net.embedder.projection.weight.shape == (width, 300)
    if predicts == "label":
        assert net.pooling.kind == "cls_max"
        first = next(module for module in net.classifier if isinstance(module, nn.Linear))
        assert first.weight.shape == (600, 4 * width if pairs else width)
    assert net.pair_features == "difference_twice"


def test_logits_can_be_scaled_by_the_width_of_the_model():
    net, other = build(), build(attention_scale="model")
    assert [layer.query_gain for layer in net.encoder.layers] == [1.0, 1.0]
    assert [layer.query_gain for layer in other.encoder.layers] == [(5 / 12) ** 0.5] * 2


def test_a_flag_beats_the_preset():
    net = build_preset("multi_scale_transformer_snli", make_task(), encoder_layers=1, encoder_head_dim=7)
    assert (len(net.encoder.layers), net.encoder.layers[0].head_dim, net.encoder.layers[0].num_heads) == (1, 7, 5)


def test_noise_of_the_presets():
    """Dropouts were not published; these are the ones that presets.py names."""
    expected = {"sst": (0.4, 0.4), "mtl16": (0.5, 0.5), "snli": (0.5, 0.5), "tagging": (0.3, 0.3)}
    for name, (embedding, classifier) in expected.items():
        config = MODEL_REGISTRY[f"multi_scale_transformer_{name}"].config_class()
        assert (config.embedding_dropout, config.classifier_dropout) == (embedding, classifier)
        assert (config.dropout, config.attention_dropout) == (0.1, 0.3)


def test_baselines_have_the_sizes_of_their_flags():
    for name in ("sentence_bigru", "sentence_cnn", "sentence_average", "sentence_transformer", "sentence_muse"):
        net = build_preset(name)
        assert net.encoder.output_size == 300
        vector = net.represent(**make_input(make_sentences(3, 2)))
        assert vector.shape == (2, 300)
        assert net.pair_features == "product"
