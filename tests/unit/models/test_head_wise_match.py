"""Models that compare two sentences head by head: what they keep of a sentence, what they train, what they refuse."""

import json
import re
from argparse import ArgumentParser, Namespace
from dataclasses import fields

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY, build_model
from support.helpers import assert_close
from support.sentence_models import SYMBOLS, TRUNK, make_input, make_sentences, make_task

from muse_plugin.modules import parallel_layer
from muse_plugin.modules.attends import find_head_sources

ATOL = 1e-5  # float32, sums in another order
_ATTENTION = {"encoder_layers": 3, "encoder_attention_heads": 4, "attention_dropout": 0.0}
_TRUNK = {name: value for name, value in TRUNK.items() if not name.startswith("classifier")}
SIZES = {
    "head_wise_match_transformer": {**_TRUNK, **_ATTENTION, "encoder_ffn_embed_dim": 16},
    "head_wise_match_muse": {**_TRUNK, **_ATTENTION, "encoder_ffn_embed_dim": 16},
    "head_wise_match_multi_scale": {
        **_TRUNK,
        **_ATTENTION,
        "encoder_head_dim": 5,
        "encoder_attention_scales": "1,3,N/4",
    },
    "head_wise_match": {},
}
BERT_SIZES = {
    "vocab_size": SYMBOLS - 4,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
MATCHES = {
    "element_max": {},
    "element_concat": {"match_aggregation": "concat"},
    "cosine": {"match": "cosine", "match_aggregation": "concat"},
    "bilinear": {"match": "bilinear", "match_aggregation": "concat"},
    "at_once": {"match_aggregation": "concat", "match_no_hierarchy": True},
    "single_level": {"match_levels": "last"},
    "two_levels": {"match_levels": "0,2", "match_per_layer": True},
    "mean_of_heads": {"head_pooling": "mean"},
    "classic": {"match": "classic"},
}


def make_word_pieces():
    """A dictionary with BERT's special pieces, as large as that of the other models."""
    dictionary = Dictionary()
    for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]"):
        dictionary.add_symbol(piece)
    for number in range(SYMBOLS - len(dictionary)):
        dictionary.add_symbol(f"piece{number}")
    return dictionary


def build(model, seed=0, task=None, **flags):
    torch.manual_seed(seed)
    if model == "head_wise_match":
        task = task or make_task(pairs=True, source_dictionary=make_word_pieces(), loads_checkpoint=True)
        flags.setdefault("bert_sizes", json.dumps(BERT_SIZES))
    task = task or make_task(pairs=True)
    net = build_model(
        Namespace(_name=model, arch=model, **{"match_dropout": 0.0, "match_dim": 16, **SIZES[model], **flags}), task
    )
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "bias" in name or "words" in name:
                parameter.normal_(std=0.3)
    return net.eval()


@pytest.fixture(params=SIZES)
def model(request):
    return request.param


# Every model with one way to match, every way with one model.
COMPARED = sorted(
    {(model, "element_max") for model in SIZES} | {("head_wise_match_transformer", match) for match in MATCHES}
)


@pytest.fixture(params=COMPARED, ids="-".join)
def compared(request):
    model, match = request.param
    return model, MATCHES[match]


def pairs_of(first, second, **padding):
    return {**make_input(first, **padding), **make_input(second, prefix="pair", **padding)}


@torch.no_grad()
def test_a_pair_alone_equals_itself_in_a_batch_however_padded(compared):
    model, match = compared
    net = build(model, **match)
    first, second = make_sentences(7, 1, 4, seed=1), make_sentences(2, 9, 1, seed=2)
    batch = net(**pairs_of(first, second)).logits
    assert batch.shape == (3, 3)
    assert_close(net(**pairs_of(first, second, longer=4, filling=6)).logits, batch, atol=ATOL)
    for row in range(3):
        assert_close(net(**pairs_of(first[row : row + 1], second[row : row + 1])).logits[0], batch[row], atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize(("levels", "chosen"), [("last", [2]), ("0,2", [0, 2]), ("1", [1])])
def test_levels_are_those_layers_of_all(model, levels, chosen):
    words = make_input(make_sentences(7, 1, 4, seed=1))
    whole, net = build(model), build(model, match_levels=levels)
    encoder = {name: tensor for name, tensor in whole.state_dict().items() if not name.startswith("matcher")}
    net.load_state_dict(encoder, strict=False)
    of_all = whole.represent(**words).chunk(3, dim=1)
    assert_close(net.represent(**words), torch.cat([of_all[level] for level in chosen], dim=1), atol=0, rtol=0)


def test_bert_must_have_a_position_for_every_word_piece_of_the_longest_text(tmp_path):
    from support.bert_folders import make_bert

    make_bert(tmp_path, vocab_size=BERT_SIZES["vocab_size"])  # 16 positions
    for max_words, fits in ((14, True), (15, False)):
        task = make_task(pairs=True, source_dictionary=make_word_pieces(), max_words=max_words)
        if fits:
            assert build("head_wise_match", task=task, bert_dir=str(tmp_path), bert_sizes=None).longest_text == 14
            continue
        with pytest.raises(ValueError, match=r"among the 16 positions of this BERT, so be at most 14, but got 15"):
            build("head_wise_match", task=task, bert_dir=str(tmp_path), bert_sizes=None)


def test_bert_keeps_its_lowest_layers(tmp_path):
    from support.bert_folders import make_bert

    make_bert(tmp_path, vocab_size=BERT_SIZES["vocab_size"])  # 3 layers
    task = make_task(pairs=True, source_dictionary=make_word_pieces())
    flags = {"task": task, "bert_dir": str(tmp_path), "bert_sizes": None}
    net, whole = build("head_wise_match", bert_layers=2, **flags), build("head_wise_match", **flags)
    assert (len(net.levels), len(whole.levels)) == (2, 3)
    assert json.loads(net.remembered["bert_sizes"])["num_hidden_layers"] == 2
    for layers in (-1, 4):
        with pytest.raises(ValueError, match=rf"^--bert-layers must be from 1 to the 3 layers .* but got {layers}\.$"):
            build("head_wise_match", bert_layers=layers, **flags)


@torch.no_grad()
def test_kept_vectors_give_the_same_bits_as_the_whole_model(compared):
    model, match = compared
    net = build(model, **match)
    first, second = make_sentences(7, 1, 4, seed=1), make_sentences(2, 9, 1, seed=2)
    kept = [net.represent(**make_input(sentences)).numpy().tobytes() for sentences in (first, second)]
    size = len(kept[0]) // 12
    assert size == net.matcher.vector_size
    vectors = [torch.frombuffer(bytearray(data), dtype=torch.float32).view(3, size) for data in kept]
    logits = net(**pairs_of(first, second)).logits
    assert torch.equal(net.score_pairs(*vectors), logits)
    everything = net.score_all_pairs(*vectors)
    assert everything.shape == (3, 3, 3)
    assert_close(everything.diagonal().T, logits, atol=ATOL)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["cls", "max", "mean"])
def test_the_inference_form_compares_all_of_a_large_batch(pooling, monkeypatch):
    """A layer computes large batches in parts, of which heads must not be those of the last."""
    net = build("head_wise_match_muse", head_pooling=pooling)
    sentences = make_input(make_sentences(6, 6, 5, 4, 6))
    with torch.no_grad():
        expected = net.represent(**sentences)
        net.make_generation_fast_()
        monkeypatch.setattr(parallel_layer, "_CPU_CHUNK", 1)
        assert_close(net.represent(**sentences), expected, atol=ATOL)


def test_flags_that_classic_matching_does_not_read_are_named(caplog):
    flags = {"match_levels": "0", "match_no_hierarchy": True}
    build("head_wise_match_transformer", match="classic", **flags)
    assert caplog.messages == [
        "--match-levels has no effect with --match classic, but got 0; drop it.",
        "--match-no-hierarchy has no effect with --match classic, but got True; drop it.",
    ]
    caplog.clear()
    build("head_wise_match_transformer", **flags)
    assert caplog.messages == []


def test_every_word_of_either_sentence_can_matter(compared):
    model, match = compared
    net = build(model, **match)
    (first,), (second,) = make_sentences(6, seed=1), make_sentences(6, seed=2)
    before = net(**pairs_of([first], [second])).logits
    for side in range(2):
        changes = []
        for at in range(6):
            pair = [first.clone(), second.clone()]
            pair[side][at] = 8 + (int(pair[side][at]) - 3) % (SYMBOLS - 8)
            changes.append(float((net(**pairs_of([pair[0]], [pair[1]])).logits - before).abs().max()))
        # A maximum over words or heads may not be that of this very word.
        assert sum(change > 1e-7 for change in changes) >= 4, changes


LAYOUTS = {
    "normalize_before": {"encoder_normalize_before": True},
    "parallel": {"encoder_branches": "self_attention,conv,ffn", "match_levels": "1"},
    "conv_first": {"encoder_branches": "conv/self_attention,ffn", "encoder_normalize_before": True},
    "attention_last": {"encoder_branches": "conv,ffn/self_attention", "encoder_kernel_sizes": "3"},
    "learned": {
        "encoder_positions": "learned",
        "encoder_attention_bias": "distance",
        "encoder_distance_slopes": "learned",
        "encoder_attention_bias_layers": "0,2",
    },
}
TRAINED = [(model, MATCHES[match]) for model, match in COMPARED]
TRAINED += [("head_wise_match_transformer", layout) for layout in LAYOUTS.values()]
TRAINED += [("head_wise_match_multi_scale", {"match_levels": "1"}), ("head_wise_match", {"match_levels": "0,1"})]


@pytest.mark.parametrize(("model", "match"), TRAINED)
def test_all_that_is_trained_gets_a_gradient_and_all_that_is_not_changes_nothing(model, match):
    net = build(model, **match).train()
    first, second = make_sentences(*[6] * 24, seed=1), make_sentences(*[5] * 24, seed=2)
    net(**pairs_of(first, second)).logits.square().sum().backward()
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    assert [name for name, p in trained.items() if p.grad is None] == []
    frozen = [p for p in net.parameters() if not p.requires_grad]
    assert all(p.grad is None for p in frozen)
    assert bool(frozen) == (match.get("match") != "classic")  # what follows the last heads, except in classic match
    net.eval()
    with torch.no_grad():
        before = net(**pairs_of(first, second)).logits
        for parameter in frozen:
            parameter.add_(1.0)
        assert torch.equal(net(**pairs_of(first, second)).logits, before)


@torch.no_grad()
@pytest.mark.parametrize("model", ["head_wise_match_transformer", "head_wise_match"])
def test_head_vectors_are_taken_before_the_output_projection_at_the_classification_token(model):
    """Softmax, values, row 0: computed again from the parameters of the first layer."""
    net = build(model, match_levels="0")
    (sentence,) = make_sentences(5)
    seen = []
    layer = net.encoder.layers[0]
    layer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    (vector,) = net.represent(**make_input([sentence]))
    if model == "head_wise_match":
        x, weight, bias = seen[0][0], layer.in_proj.weight, layer.in_proj.bias
        assert len(x) == 7  # [CLS] and [SEP]
    else:
        stage = layer.stages[0]
        x, weight, bias = seen[0][:, 0], stage.in_proj_weight, stage.in_proj_bias
        assert len(x) == 6
    query, key, value = (x @ weight.T + bias).chunk(3, dim=-1)
    for head in range(4):
        part = slice(3 * head, 3 * head + 3)
        weights = torch.softmax(query[0, part] @ key[:, part].T / 3**0.5, dim=-1)
        assert_close(vector[part], weights @ value[:, part], atol=ATOL)


@torch.no_grad()
def test_bert_reads_its_own_ids_between_its_own_signs():
    net = build("head_wise_match")
    read = []
    net.encoder.register_forward_pre_hook(lambda module, args: read.append(args))
    sentences = [torch.tensor([9, 3, 10]), torch.tensor([8])]  # 3 is fairseq's sign for unknown words
    net.represent(**make_input(sentences))
    pieces, mask = read[0]
    assert pieces.tolist() == [[2, 5, 1, 6, 3], [2, 4, 3, 0, 0]]
    assert mask.tolist() == [[False] * 5, [False] * 3 + [True] * 2]


@torch.no_grad()
def test_a_model_folded_for_inference_says_the_same(model):
    net = build(model)
    batch = pairs_of(make_sentences(7, 1, 4, seed=1), make_sentences(2, 9, 1, seed=2))
    before = net(**batch).logits
    net.make_generation_fast_()
    assert_close(net(**batch).logits, before, atol=ATOL)


def test_encoders_without_heads_have_no_sources():
    assert find_head_sources(torch.nn.GRU(3, 3)) == []


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"match": "cosine"},
            "--match cosine makes one number of each head, of which --match-aggregation max would leave a single one; "
            "use --match-aggregation concat.",
        ),
        ({"match_dropout": 1.0}, "--match-dropout must lie in [0, 1), but got 1.0."),
        ({"match_dim": -1}, "--match-dim must be at least 0, but got -1; 0 is the width of a head."),
        ({"match_levels": "0,3"}, "--match-levels must list different layers from 0 to 2, e.g. 0,1, but got '0,3'."),
        ({"pooling": "mean"}, "--pooling has no effect on head-wise match, but got mean; drop it."),
        (
            {"pair_features": "signed_product"},
            "--pair-features has no effect on head-wise match, but got signed_product",
        ),
        ({"encoder_layers": 0}, "--encoder-layers must be at least 1, but got 0."),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build("head_wise_match_transformer", **flags)


def test_single_sentences_are_refused(model):
    task = make_task(pairs=False, source_dictionary=make_word_pieces(), loads_checkpoint=True)
    with pytest.raises(ValueError, match=r"^head-wise match compares two sentences, but this task has single ones;"):
        build(model, task=task)


def test_bert_without_a_folder_is_refused():
    with pytest.raises(ValueError, match=r"^--arch head_wise_match needs --bert-dir"):
        build("head_wise_match", bert_sizes=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda dictionary: dictionary.add_symbol("more"),
            "the data must be word pieces of BERT's own vocabulary of 26 entries, but their dictionary has 27; prepare "
            "the data with muse-plugin prepare-text --tokenizer wordpiece --bert-dir and the same folder.",
        ),
        (
            lambda dictionary: dictionary.indices.pop("[SEP]"),
            "the dictionary must have BERT's [SEP], but it is missing; prepare",
        ),
    ],
    ids=["size", "special"],
)
def test_a_dictionary_that_is_not_berts_is_refused(change, message):
    dictionary = make_word_pieces()
    change(dictionary)
    task = make_task(pairs=True, source_dictionary=dictionary, loads_checkpoint=True)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build("head_wise_match", task=task)


@pytest.mark.parametrize("name", ["head_wise_match", "head_wise_match_translation"])
def test_what_a_checkpoint_remembers_is_no_flag(name):
    config = MODEL_DATACLASS_REGISTRY[name]
    kept = [entry.name for entry in fields(config) if entry.metadata.get("remembered")]
    assert kept == [{"head_wise_match": "bert_sizes"}.get(name, "translation_flags")]
    parser = ArgumentParser(allow_abbrev=False)
    MODEL_REGISTRY[name].add_args(parser)
    flags = {action.dest for action in parser._actions}
    assert {entry.name for entry in fields(config)} - flags == {"_name", *kept}
