"""A BERT read from a folder of Hugging Face's transformers: same states, same heads; and what is wrong with folders."""

import re

import pytest
import torch
from support.bert_folders import HEADS, LAYERS, PIECES, WIDTH, make_bert
from support.helpers import assert_close, change_settings
from support.pickled_call import Call

from muse_plugin.modules.attends import find_head_sources, record_heads
from muse_plugin.modules.bert_encoder import BertEncoder
from muse_plugin.pretrained.bert_weights import load_bert_weights, parse_bert_sizes, read_bert_sizes, write_bert_sizes


def load(folder):
    encoder = BertEncoder(read_bert_sizes(folder)).eval()
    load_bert_weights(encoder, folder)
    return encoder


def make_batch():
    generator = torch.Generator().manual_seed(5)
    pieces = torch.randint(0, PIECES, (3, 9), generator=generator)
    mask = torch.arange(9) >= torch.tensor([9, 4, 2])[:, None]
    return pieces, mask


@torch.no_grad()
@pytest.mark.parametrize(
    ("safe", "wrapped", "settings"),
    [
        (True, False, {}),
        (False, False, {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
        (False, True, {"hidden_act": "gelu_new", "type_vocab_size": 1}),
    ],
    ids=["safetensors", "bin", "first_releases"],
)
def test_states_and_heads_are_those_of_transformers(tmp_path, safe, wrapped, settings):
    bert = make_bert(tmp_path, safe=safe, wrapped=wrapped, **settings)
    theirs = []
    for layer in bert.encoder.layer:
        layer.attention.output.dense.register_forward_pre_hook(lambda module, args: theirs.append(args[0]))
    encoder = load(tmp_path)
    pieces, mask = make_batch()
    states = bert(input_ids=pieces, attention_mask=(~mask).long(), output_hidden_states=True)
    mine = []
    for layer in encoder.layers:
        layer.register_forward_pre_hook(lambda module, args: mine.append(args[0]))
    sources = find_head_sources(encoder)
    with record_heads(sources) as heads:
        mine.append(encoder(pieces, mask))
    real = ~mask
    for layer in range(LAYERS + 1):
        assert_close(mine[layer][real], states.hidden_states[layer][real], atol=1e-5)
    assert [(source.num_heads, source.head_dim) for source in sources] == [(HEADS, WIDTH // HEADS)] * LAYERS
    for layer in range(LAYERS):
        assert_close(heads[layer][real], theirs[layer][real], atol=1e-5)


@torch.no_grad()
def test_the_lowest_layers_can_be_had_alone(tmp_path):
    make_bert(tmp_path)
    whole, sizes = load(tmp_path), read_bert_sizes(tmp_path)._replace(num_hidden_layers=2)
    encoder = BertEncoder(sizes).eval()
    load_bert_weights(encoder, tmp_path)
    pieces, mask = make_batch()
    states = []
    whole.layers[2].register_forward_pre_hook(lambda module, args: states.append(args[0]))
    whole(pieces, mask)
    assert_close(encoder(pieces, mask), states[0], atol=0, rtol=0)


@torch.no_grad()
def test_padding_changes_no_real_position(tmp_path):
    make_bert(tmp_path)
    encoder = load(tmp_path)
    pieces, mask = make_batch()
    batch = encoder(pieces, mask)
    for row in range(3):
        length = int((~mask[row]).sum())
        assert_close(encoder(pieces[row : row + 1, :length])[0], batch[row, :length], atol=1e-5)
    assert batch.isfinite().all()


def test_sizes_survive_being_written(tmp_path):
    make_bert(tmp_path, hidden_act="relu", layer_norm_eps=0.5)
    sizes = read_bert_sizes(tmp_path)
    assert parse_bert_sizes(write_bert_sizes(sizes)) == sizes
    assert (sizes.hidden_act, sizes.layer_norm_eps, sizes.vocab_size) == ("relu", 0.5, PIECES)


@torch.no_grad()
def test_a_sentence_beyond_the_positions_is_refused(tmp_path):
    make_bert(tmp_path)
    sentence = "this BERT reads at most 16 word pieces, [CLS] and [SEP] among them, but got 17; read fewer words."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        load(tmp_path)(torch.zeros(1, 17, dtype=torch.int64))


# ---- what is wrong with a folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": ...}, "BERT's sizes must have hidden_size, but it is missing."),
        ({"hidden_size": "24"}, "BERT's sizes must be possible ones, but hidden_size is '24'."),
        ({"hidden_size": True}, "BERT's sizes must be possible ones, but hidden_size is True."),
        ({"num_hidden_layers": 0}, "BERT's sizes must be possible ones, but num_hidden_layers is 0."),
        ({"hidden_act": "swish"}, "BERT's sizes must be possible ones, but hidden_act is 'swish'."),
        (
            {"hidden_dropout_prob": 1.0},
            "BERT's sizes must be possible ones, but hidden_dropout_prob is 1.0.",
        ),
        (
            {"num_attention_heads": 5},
            "BERT's hidden_size must be divisible by num_attention_heads, but they are 24 and 5.",
        ),
        (
            {"model_type": "roberta"},
            "--bert-dir must hold a BERT, model_type 'bert', but this is 'roberta'; choose another model.",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "BERT's positions must be absolute, but position_embedding_type is 'relative_key'.",
        ),
    ],
    ids=["missing", "text", "truth", "zero", "activation", "rate", "heads", "other_model", "positions"],
)
def test_impossible_sizes_are_refused(tmp_path, change, message):
    make_bert(tmp_path)
    change_settings(tmp_path / "config.json", change)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_bert_sizes(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'}: {message}"


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_sizes_that_are_no_json_object_are_refused(text):
    with pytest.raises(ValueError, match=r"^BERT's sizes must be a JSON object, but"):
        parse_bert_sizes(text)


def test_a_folder_without_its_files_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"--bert-dir must name a folder with config\.json and model\.safetensors"
    ):
        read_bert_sizes(tmp_path)
    make_bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no parameters"):
        load(tmp_path)


def change_weights(folder, change):
    path = folder / "pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("encoder.layer.1.attention.self.query.bias"),
            "encoder.layer.1.attention.self.query.bias is missing;",
        ),
        (
            lambda s: s.update({"encoder.layer.3.output.dense.bias": torch.zeros(1)}),
            "encoder.layer.3.output.dense.bias is unknown;",
        ),
        (
            lambda s: [s.pop(name) for name in list(s) if "layer.2.attention" in name],
            "encoder.layer.2.attention.output.LayerNorm.bias, encoder.layer.2.attention.output.LayerNorm.weight, "
            "encoder.layer.2.attention.output.dense.bias, encoder.layer.2.attention.output.dense.weight, "
            "encoder.layer.2.attention.self.key.bias and 5 more are missing;",
        ),
        (
            lambda s: s.update({"embeddings.word_embeddings.weight": torch.zeros(41, WIDTH)}),
            "must fit config.json next to it, but embeddings.word_embeddings.weight has the shape (41, 24) instead of "
            "(40, 24).",
        ),
    ],
    ids=["missing", "unknown", "many", "shape"],
)
def test_parameters_that_do_not_fit_are_named(tmp_path, change, message):
    make_bert(tmp_path, safe=False)
    change_weights(tmp_path, change)
    with pytest.raises(ValueError, match=re.escape(message)):
        load(tmp_path)


def test_nothing_in_a_file_of_parameters_is_run(tmp_path):
    make_bert(tmp_path, safe=False)
    torch.save({"a": Call(open, str(tmp_path / "trace"), "w")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds more than parameters"):
        load(tmp_path)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_file_cut_short_is_refused(tmp_path, name):
    make_bert(tmp_path, safe=name.endswith("safetensors"))
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="cut short, damaged"):
        load(tmp_path)
