"""``muse-plugin match explain``: what is drawn is what the model saw, and every wrong request is named."""

import json
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from support.helpers import assert_close, save_checkpoint

from muse_plugin.matching import explain as module
from muse_plugin.matching.explain import explain
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.modules.attends import find_attention, record_attention, record_heads
from muse_plugin_command import cli

PAIR = "the plot was thin\tIt was rather fun"
SIZES = ["--encoder-layers", "3", "--encoder-attention-heads", "4"]


@pytest.fixture(scope="module")
def make_model(shop, tmp_path_factory):
    """Writes a checkpoint of a head-wise match model on the data of the shop."""

    def make(*flags, arch="head_wise_match_transformer", task="head_wise_match"):
        folder = tmp_path_factory.mktemp("explain")
        shop.save_checkpoint(folder, shop.three / "data", *flags, *SIZES, arch=arch, task=task)
        return folder

    return make


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("--match-dim", "16")


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a film\ta story\n{PAIR}\nonly one\n\ta film\n")
    return path


def run(*arguments):
    return cli.main(["match", "explain", *map(str, arguments), "--cpu"])


def test_numbers_and_figure_are_those_of_the_pair(model, pairs, tmp_path, capsys):
    figure = tmp_path / "heads.svg"
    assert run("--path", model, "--input", pairs, "--line", 2, "--output", figure) == 0
    assert "heads.svg and " in capsys.readouterr().out
    assert b"<svg" in figure.read_bytes()
    numbers = json.loads((tmp_path / "heads.json").read_text())
    assert numbers["words"] == [
        ["[CLS]", "the", "plot", "was", "thin"],
        ["[CLS]", "it", "was", "rather", "fun"],
    ]
    assert numbers["layers"] == [0, 1, 2]
    loaded = PairModel.load(model, cpu=True)
    first, second = ([loaded.predictor.tokenizer.split(text)] for text in PAIR.split("\t"))
    vectors = loaded.encode(first), loaded.encode(second)
    expected = torch.softmax(loaded.score_pairs(*vectors), dim=-1)[0]
    assert_close(list(numbers["scores"].values()), expected, atol=1e-6)
    assert_close(torch.tensor(numbers["shares"]), loaded.model.matcher.winning_heads(*vectors)[0], atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("head_wise_match_transformer", ()),
        ("head_wise_match_transformer", ("--match-levels", "0,2", "--head-pooling", "mean")),
        ("head_wise_match_muse", ("--match", "cosine", "--match-aggregation", "concat")),
        ("head_wise_match_multi_scale", ("--encoder-attention-scales", "1,3,all")),
        ("head_wise_match_transformer", ("--head-pooling", "max")),
    ],
)
def test_words_are_shaded_by_what_the_sentences_vector_has_of_them(make_model, arch, flags):
    loaded = PairModel.load(make_model(*flags, arch=arch), cpu=True)
    explanation = explain(loaded, PAIR.split("\t"))
    layers = [0, 2] if "0,2" in flags else [0, 1, 2]
    assert explanation.layers == layers
    assert (explanation.shares is None) == ("concat" in flags)
    for side, text in enumerate(PAIR.split("\t")):
        net = loaded.model
        with record_attention(find_attention(net.encoder)) as weights, record_heads(net.levels) as outputs:
            loaded.encode([loaded.predictor.tokenizer.split(text)])
        for level, layer in enumerate(layers):
            of_words = weights[layer][0]  # (H, T, T)
            if loaded.model.head_pooling == "max":
                best = outputs[level][0].view(len(of_words[0]), 4, -1).max(dim=0).indices
                expected = torch.stack([of_words[head, best[head]].mean(dim=0) for head in range(4)])
            else:
                expected = of_words[:, 0] if loaded.model.head_pooling == "cls" else of_words.sum(1) / of_words.shape[1]
            assert_close(explanation.attention[side][level], expected, atol=1e-6)
        assert explanation.attention[side].shape[-1] == len(explanation.words[side])
        assert_close(explanation.attention[side].sum(-1), torch.ones(len(layers), 4), atol=1e-5)


def test_words_that_the_model_drops_are_not_drawn(make_model, tmp_path):
    model = make_model("--unknown-words", "drop", arch="head_wise_match_muse")
    (tmp_path / "pairs.tsv").write_text("the qqq a\tzzz yyy\n")
    assert run("--path", model, "--input", tmp_path / "pairs.tsv", "--line", 1, "--output", tmp_path / "a.svg") == 0
    numbers = json.loads((tmp_path / "a.json").read_text())
    first, second = numbers["words"]
    assert [word for word in first if word != "[CLS]"] == ["the", "a"]
    assert [word for word in second if word != "[CLS]"] == ["zzz"]
    assert {len(row) for level in numbers["attention"][0] for row in level} == {len(first)}


@torch.no_grad()
def test_a_translation_models_heads_see_the_end_of_the_sentence_too(shop, tmp_path):
    dictionary = Dictionary.load(str(shop.three / "data" / "input0" / "dict.txt"))
    sizes = {"encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_layers": 2, "encoder_attention_heads": 4}
    args = Namespace(_name="muse", arch="muse", **sizes, decoder_layers=1)
    translation = build_model(args, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))
    cfg = {"common": {}, "task": {"_name": "translation"}, "criterion": {"_name": "cross_entropy"}, "model": vars(args)}
    save_checkpoint(tmp_path / "translation.pt", translation.state_dict(), args=None, cfg=cfg)
    flags = ["--translation-checkpoint", str(tmp_path / "translation.pt")]
    arch = "head_wise_match_translation"
    shop.save_checkpoint(tmp_path, shop.three / "data", *flags, arch=arch, task="head_wise_match")
    loaded = PairModel.load(tmp_path / "checkpoint_best.pt", cpu=True)
    explanation = explain(loaded, PAIR.split("\t"))
    assert explanation.words == (["the", "plot", "was", "thin", "</s>"], ["it", "was", "rather", "fun", "</s>"])
    assert explanation.layers == [0, 1]
    for side, text in enumerate(PAIR.lower().split("\t")):
        tokens = torch.tensor([[*(dictionary.index(word) for word in text.split()), dictionary.eos()]])
        with record_attention(find_attention(translation.eval().encoder)) as weights:
            translation.encoder(tokens, torch.tensor([5]))
        seen = torch.stack([weights[layer][0].mean(dim=1) for layer in (0, 1)])  # (layers, H, words and end)
        assert_close(explanation.attention[side], seen, atol=1e-6)


def test_long_sentences_are_cut_with_a_warning_or_refused(model, tmp_path, capsys, caplog):
    (tmp_path / "pairs.tsv").write_text("a film\tthe plot of it was rather thin but fun\n")
    arguments = ["--path", model, "--input", tmp_path / "pairs.tsv", "--output", tmp_path / "a.png"]
    assert run(*arguments, "--long-texts", "refuse") == 2
    assert "--long-texts refuse allows 6 words, but line 1 has 9; raise --max-words" in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()
    assert run(*arguments) == 0
    assert "only the first 6 words are read of 'the plot of it was rather thin but fun'" in caplog.text
    assert [len(words) for words in json.loads((tmp_path / "a.json").read_text())["words"]] == [1 + 2, 1 + 6]
    assert run(*arguments, "--max-words", 9) == 0
    assert [len(words) for words in json.loads((tmp_path / "a.json").read_text())["words"]] == [1 + 2, 1 + 9]


def test_heads_can_be_chosen(model, pairs, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "draw", lambda explanation, heads, path: drawn.append(heads))
    assert run("--path", model, "--input", pairs, "--output", tmp_path / "a.png", "--heads", "2.3, 0.1") == 0
    assert run("--path", model, "--input", pairs, "--output", tmp_path / "a.png") == 0
    assert drawn[0] == [(2, 3), (0, 1)]
    shares = torch.tensor(json.loads((tmp_path / "a.json").read_text())["shares"])
    assert len(drawn[1]) == 6
    best = [shares[place] for place in drawn[1]]
    assert best == sorted(best, reverse=True)
    assert best[0] == shares.max()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--line", 9], "has fewer than 9 lines"),
        (["--line", 0], "--line must be at least 1, but got 0."),
        (["--line", 3], "a pair is two texts with a tab between them, but line 3 of"),
        (["--line", 4], "a pair is two texts with a tab between them, but line 4 of"),
        (
            ["--heads", "3.0"],
            "--heads must list layers out of 0, 1, 2 and heads from 0 to 3, such as 2.0, but got '3.0'.",
        ),
        (["--heads", "1.4"], "but got '1.4'."),
        (["--heads", "first"], "but got 'first'."),
        (["--output", "heads.jpg"], "--output must end in .png, .pdf, .svg, but got heads.jpg"),
    ],
)
def test_what_cannot_be_shown_is_named(model, pairs, tmp_path, capsys, arguments, sentence):
    output = [] if "--output" in arguments else ["--output", tmp_path / "a.png"]
    assert run("--path", model, "--input", pairs, *output, *arguments) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize("taken", ["a.png", "a.json"])
def test_nothing_is_written_where_a_folder_is(model, pairs, tmp_path, capsys, taken):
    (tmp_path / taken).mkdir()
    assert run("--path", model, "--input", pairs, "--output", tmp_path / "a.png") == 2
    assert f"--output must name a file, but {tmp_path / taken} is a folder; add a file name." in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("a.*")] == [taken]


def test_models_that_compare_no_heads_are_refused(shop, make_model, pairs, tmp_path, capsys):
    for folder in (shop.three, make_model("--match", "classic")):
        assert run("--path", folder, "--input", pairs, "--output", tmp_path / "a.png") == 2
        assert "match explain shows heads that are compared, but this model compares none" in capsys.readouterr().err
