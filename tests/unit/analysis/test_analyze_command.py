"""``muse-plugin analyze``: checkpoints and data in, figures and numbers out; nothing is trained."""

import json
import shutil
from importlib import metadata

import pytest
import torch
from support.analysis_results import read_table, skip_drawing
from support.helpers import assert_close

from muse_plugin.analysis import analyze_bert
from muse_plugin.analysis.analyze_model import analyze
from muse_plugin.analysis.analyzed_model import (
    Batches,
    choose_sentences,
    choose_shown_sentence,
    load_model,
    name_words,
)
from muse_plugin.analysis.attention_sites import find_sites
from muse_plugin_command import cli

ALL = ["gates", "kernels", "attention", "allocation", "directions", "words", "pooling"]
FIGURES = ["attention_distance", "concentration", "distance_distribution"]


def run(*words):
    return cli.main(["analyze", *map(str, words), *(["--cpu"] if "training" not in words else [])])


def stems(folder, ending):
    return sorted(path.stem for path in folder.glob(f"*.{ending}"))


# ---- translation ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(shop, tmp_path_factory):
    """MUSE next to fairseq's Transformer."""
    folder = tmp_path_factory.mktemp("compared") / "out"
    words = ["--path", shop.muse, "--against", shop.transformer, "--name", "MUSE <1>", "--against-name", "Transformer"]
    with pytest.MonkeyPatch.context() as patch:
        skip_drawing(patch)
        assert run("model", *words, "--sentences", 12, "--sentence", 3, "--output", folder, "--max-tokens", 40) == 0
    return folder


def test_everything_that_applies_is_written(compared):
    maps = [f"attention_map_{side}{end}" for side in ("cross", "decoder", "encoder") for end in ("", "_against")]
    expected = sorted([*FIGURES, *maps, "gates", "kernels"])
    for ending in ("png", "svg", "csv"):
        assert stems(compared, ending) == expected, ending
    numbers = json.loads((compared / "numbers.json").read_text())
    assert sorted(numbers["results"]) == expected
    assert sorted(numbers["not_applicable"]) == ["allocation", "directions", "pooling", "words"]
    assert [(m["name"], m["arch"], m["updates"]) for m in numbers["models"]] == [
        ("MUSE <1>", "muse", 7), ("Transformer", "transformer", 7)
    ]  # fmt: skip
    assert numbers["data"] == {"split": "valid", "sentences": 12, "shown_sentence": 3}
    assert numbers["versions"]["torch"] == metadata.version("torch")
    page = (compared / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(expected)
    assert "MUSE &lt;1&gt;" in page
    assert "allocation: no head of the model has a window" in page
    gates = read_table(compared / "gates.csv")
    assert {row["model"] for row in gates} == {"MUSE <1>"}
    assert len(gates) == 2 * 2 * 2
    heads = read_table(compared / "attention_distance.csv")
    assert len(heads) == 2 * 3 * 2 * 4  # models, sides, layers, heads


def test_the_shown_sentence_is_that_of_the_data(compared, shop):
    lines = {lang: (shop.root / "parallel" / f"valid.{lang}").read_text().splitlines() for lang in ("de", "en")}
    source, target = lines["de"][2].split(), lines["en"][2].split()
    for end, model in (("", "MUSE <1>"), ("_against", "Transformer")):
        rows = read_table(compared / f"attention_map_cross{end}.csv")
        assert {row["model"] for row in rows} == {model}
        first = [row for row in rows if (row["layer"], row["head"]) == ("1", "0")]
        assert list(dict.fromkeys(row["key_word"] for row in first)) == list(dict.fromkeys([*source, "</s>"]))
        assert [row["query_word"] for row in first[:: len(source) + 1]] == ["</s>", *target]
        sums = torch.tensor([float(row["weight"]) for row in first]).view(len(target) + 1, -1).sum(1)
        assert_close(sums, torch.ones(len(target) + 1), atol=1e-5)


def test_numbers_do_not_depend_on_batches_and_are_those_of_both_models(compared, shop):
    rows = {(row["model"], row["side"], row["layer"], row["head"]): row
            for row in read_table(compared / "attention_distance.csv")}  # fmt: skip
    for name, folder in (("MUSE <1>", shop.muse), ("Transformer", shop.transformer)):
        analyzed = load_model(folder, "valid", name=name, cpu=True)
        found = analyze(analyzed, ["attention"], 12, 3, max_tokens=1)  # sentence by sentence
        assert len(found.rows["heads"]) == 24
        for row in found.rows["heads"]:
            written = rows[name, row.side, str(row.layer), str(row.head)]
            assert float(written["entropy_bits"]) == pytest.approx(row.entropy_bits, abs=1e-4)
            if row.side != "cross":
                assert float(written["mean_distance_tokens"]) == pytest.approx(row.mean_distance_tokens, abs=1e-4)


def test_sentences_are_spread_over_the_split_and_batched_by_length(shop):
    analyzed = load_model(shop.muse, "valid", cpu=True)
    assert choose_sentences(analyzed, 1) == [0]
    assert choose_sentences(analyzed, 3) == [0, 12, 24]
    assert choose_sentences(analyzed, 99) == list(range(25))
    batches = Batches(analyzed, range(25), max_tokens=30)
    assert sorted(index for group in batches.groups for index in group) == list(range(25))
    lengths = [max(analyzed.dataset.num_tokens(index) for index in group) for group in batches.groups]
    assert lengths == sorted(lengths)
    assert all(len(group) * length <= 30 for group, length in zip(batches.groups, lengths, strict=True))
    assert len(batches) < 25
    assert sum(len(batch["src_tokens"]) for batch in batches) == 25
    chosen = choose_shown_sentence(analyzed, range(25), None)
    assert analyzed.dataset.num_tokens(chosen) == max(analyzed.dataset.num_tokens(i) for i in range(25))
    assert choose_shown_sentence(analyzed, range(25), 4) == 3


def test_a_sentence_that_is_too_long_for_the_model_is_not_shown(shop, monkeypatch):
    analyzed = load_model(shop.muse, "valid", cpu=True)
    longest = choose_shown_sentence(analyzed, range(25), None)
    limit = int(analyzed.dataset.num_tokens(longest)) - 1
    monkeypatch.setattr(analyzed.model, "max_positions", lambda: (limit, limit))
    assert longest not in choose_sentences(analyzed, 25)
    with pytest.raises(
        ValueError, match=rf"for the model, but {longest + 1} is longer than \({limit}, {limit}\); name"
    ):
        choose_shown_sentence(analyzed, range(25), longest + 1)


def test_models_of_one_name_are_numbered(shop, tmp_path, capsys, undrawn):
    words = ["--path", shop.muse, "--against", shop.muse, "--only", "gates"]
    assert run("model", *words, "--output", tmp_path / "out") == 0
    assert [row["model"] for row in read_table(tmp_path / "out" / "gates.csv")] == ["muse 1"] * 8 + ["muse 2"] * 8
    assert stems(tmp_path / "out", "png") == ["gates"]
    said = capsys.readouterr()
    assert "with their numbers: 1;" in said.out
    assert said.err.count(f"using checkpoint_best.pt, the only checkpoint in the folder {shop.muse}\n") == 2


# ---- sentences ------------------------------------------------------------------------------------------------------


def test_windows_of_a_sentence_model(shop, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("model", "--path", shop.multi_scale, "--output", out, "--sentences", 5, "--sentence", 1) == 0
    assert stems(out, "svg") == sorted([*FIGURES, "allocation", "attention_map_encoder"])
    for stem in stems(out, "png"):
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"{stem}.svg").read_bytes()
    rows = read_table(out / "allocation.csv")
    assert sum(int(row["heads"]) for row in rows) == 2 * 6
    assert "gates does not apply: the model has no gate between kernel sizes" in capsys.readouterr().out
    shown = read_table(out / "attention_map_encoder.csv")
    words = shop.make_lines(21)[0].split()
    keys = [row["key_word"] for row in shown[: len(words) + 1]]
    assert keys == ["[CLS]", *words]


def test_the_two_directions(shop, tmp_path, undrawn):
    out = tmp_path / "out"
    assert run("model", "--path", shop.distance, "--only", "directions", "--output", out) == 0
    assert stems(out, "svg") == ["direction_masks", "direction_weights"]
    rows = read_table(out / "direction_weights.csv")
    assert {(row["distance_mask"], row["alpha"]) for row in rows} == {("with", "0.5"), ("without", "0.0")}
    assert {row["direction"] for row in rows} == {"forward", "backward"}
    assert {row["layer"] for row in rows} == {"1"}


def test_the_two_directions_of_every_layer_of_a_translation_encoder(shop, tmp_path):
    out = tmp_path / "out"
    assert run("model", "--path", shop.distance_encoder, "--only", "directions,attention", "--output", out) == 0
    rows = read_table(out / "direction_weights.csv")
    assert len(rows) == len(
        {(row["direction"], row["layer"], row["distance_mask"], row["offset_tokens"]) for row in rows}
    )
    assert {(row["direction"], row["layer"]) for row in rows} == {
        (direction, layer) for direction in ("forward", "backward") for layer in "12"
    }
    masks = read_table(out / "direction_masks.csv")
    assert len(masks) == 2 * 12 * 12
    sides = {row["side"] for row in read_table(out / "attention_distance.csv")}
    assert sides == {"decoder", "cross", "forward", "backward"}


@pytest.mark.parametrize("model", ["distance", "head_wise_match", "head_wise_match_muse", "sentence_muse"])
def test_all_sentence_models_with_attention_are_read(shop, tmp_path, model):
    flags = [*shop.classify, "--encoder-layers=2", "--encoder-attention-heads=3", "--encoder-ffn-embed-dim=16"]
    if model == "distance":
        folder = shop.distance
    elif model == "sentence_muse":
        folder = shop.save_checkpoint(tmp_path / "model", shop.paired, model, *flags)
    else:
        flags = [flag for flag in flags if "classifier" not in flag]
        flags[1] = "head_wise_match"
        arch = "head_wise_match_transformer" if model == "head_wise_match" else model
        folder = shop.save_checkpoint(tmp_path / "model", shop.paired, arch, *flags, "--match-dim=4")
    analyzed = load_model(folder, "valid", cpu=True)
    found = analyze(analyzed, ["attention", "kernels"], 9)
    sides = {"forward", "backward"} if model == "distance" else {"encoder"}
    assert {row.side for row in found.rows["heads"]} == sides
    assert bool(found.rows["kernels"]) == ("muse" in model)
    texts = 1 if model == "distance" else 2
    assert found.rows["concentration"]
    first = [row for row in found.rows["concentration"] if row.layer == 1 and row.side in ("encoder", "forward")]
    assert sum(row.sentences for row in first) == 9 * texts
    (inputs,) = Batches(analyzed, [0])
    words, target = name_words(analyzed, inputs)
    assert target == []
    assert {row.key_word for row in found.rows["maps"]} <= set(words) | {
        "[CLS]",
        *" ".join(shop.make_lines(99)).split(),
    }
    assert len(find_sites(analyzed.model)) == 2


# ---- BERT -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT of random weights, with a vocabulary."""
    bert_folders = pytest.importorskip("support.bert_folders")
    folder = tmp_path_factory.mktemp("bert") / "bert"
    bert_folders.make_bert(folder)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "film", "##s", "."]
    pieces += [f"x{i}" for i in range(bert_folders.PIECES - len(pieces))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def test_attention_of_a_bert_is_that_of_transformers(bert, tmp_path, undrawn):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "text.txt").write_text("a good film.\n\nFilms\nA " + "good " * 30 + "\nnever read\n")
    out = tmp_path / "out"
    words = ["--bert-dir", bert, "--input", tmp_path / "text.txt", "--output", out]
    assert run("bert", *words, "--sentences", 3, "--sentence", 2, "--max-tokens", 16) == 0
    assert stems(out, "png") == sorted([*FIGURES, "attention_map_encoder"])
    numbers = json.loads((out / "numbers.json").read_text())
    assert numbers["data"]["sentences"] == 3
    shown = read_table(out / "attention_map_encoder.csv")
    assert [row["key_word"] for row in shown[:4]] == ["[CLS]", "film", "##s", "[SEP]"]
    model = transformers.BertModel.from_pretrained(bert, attn_implementation="eager").eval()
    with torch.no_grad():
        ids = [[2, 4, 5, 6, 8, 3], [2, 6, 7, 3], [2, 4, *[5] * 13, 3]]  # the last is cut to 16 positions
        found = [model(torch.tensor([row]), output_attentions=True).attentions for row in ids]
    expected = torch.stack([layer[0] for layer in found[1]]).flatten()
    assert_close([float(row["weight"]) for row in shown], expected, atol=1e-5)
    heads = {(row["layer"], row["head"]): row for row in read_table(out / "attention_distance.csv")}
    assert len(heads) == 3 * 4
    for layer in range(3):
        totals, queries = torch.zeros(4), 0
        for weights in found:
            places = torch.arange(weights[layer].shape[-1])
            totals += (weights[layer][0] * (places - places[:, None]).abs()).sum((1, 2))
            queries += len(places)
        written = [float(heads[str(layer + 1), str(head)]["mean_distance_tokens"]) for head in range(4)]
        assert_close(written, totals / queries, atol=1e-4)


def test_batches_of_bert_are_padded_and_small():
    first, second = analyze_bert.make_batches([[2, 5, 3], [2, 3], [2, 5, 5, 5, 3]], max_tokens=6)
    assert first["pieces"].tolist() == [[2, 3, 0], [2, 5, 3]]
    assert first["key_padding_mask"].tolist() == [[False, False, True], [False, False, False]]
    assert second["pieces"].tolist() == [[2, 5, 5, 5, 3]]
    assert second["key_padding_mask"] is None


@pytest.mark.parametrize(
    ("text", "flags", "sentence"),
    [
        ("\n \n", [], "--input must have a sentence, but"),
        ("a\n", ["--sentence", 2], "--sentence must be the number of a sentence that is read, from 1 to 1, but got 2."),
        ("a\n", ["--sentences", 0], "--sentences must be at least 1, but got 0."),
    ],
)
def test_what_a_bert_cannot_read_is_named(bert, tmp_path, capsys, text, flags, sentence):
    (tmp_path / "text.txt").write_text(text)
    words = ["--bert-dir", bert, "--input", tmp_path / "text.txt", "--output", tmp_path / "out", *flags]
    assert run("bert", *words) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- what cannot be shown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "flags", "sentence"),
    [
        ("transformer", ["--only", "gates"], "--only gates asks for what is not there: the model has no gate between"),
        ("transformer", ["--only", "kernels"], "the model has no dynamic or lightweight convolution; leave it out"),
        ("muse", ["--only", "allocation"], "--only allocation asks for what is not there: no head of the model has a"),
        ("muse", ["--only", "gates,directions"], "--only directions asks for what is not there: the model is no"),
        (
            "recurrent",
            ["--only", "attention"],
            "--only attention asks for what is not there: the model has no attention",
        ),
        ("recurrent", [], "can be shown: the model has no gate between kernel sizes; the model has no dynamic"),
        ("muse", ["--only", "gates,heads"], f"--only must list analyses out of {', '.join(ALL)}, but got 'heads'."),
        ("muse", ["--split", "test"], "--split must name a part of the data in"),
        ("multi_scale", ["--split", "test"], "--split must name a part of the data in"),
        (
            "muse",
            ["--sentence", 26],
            "--sentence must be the number of a sentence of the split, from 1 to 25, but got 26.",
        ),
        ("muse", ["--sentence", 0], "from 1 to 25, but got 0."),
        (
            "muse",
            ["--only", "gates", "--sentence", 3],
            "--sentence names whose attention is shown, but none is shown of",
        ),
        ("muse", ["--sentences", 0], "--sentences must be at least 1, but got 0."),
        ("muse", ["--max-tokens", 0], "--max-tokens must be at least 1, but got 0."),
        ("muse", ["--against-name", "B"], "--against-name names a second model, but there is no --against;"),
        (
            "muse",
            ["--against", "none"],
            "--against must name a checkpoint or a folder with one, but none does not exist",
        ),
        ("muse", ["--data", "none"], "are looked for in none, which does not exist; name their folder by --data."),
    ],
)
def test_what_cannot_be_shown_is_named(shop, tmp_path, capsys, path, flags, sentence):
    assert run("model", "--path", getattr(shop, path), "--output", tmp_path / "out", *flags) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_models_of_other_data_are_refused(shop, tmp_path, capsys):
    words = ["--path", shop.muse, "--output", tmp_path / "out", "--against"]
    assert run("model", *words, shop.multi_scale) == 2
    assert (
        "--against must be a model of the same data, but the two source dictionaries differ" in capsys.readouterr().err
    )


def test_data_of_another_dictionary_or_a_damaged_checkpoint_are_named(shop, tmp_path, capsys):
    folder = shutil.copytree(shop.muse, tmp_path / "muse")
    state = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    state["model"]["encoder.embed_tokens.weight"] = torch.zeros(3, 16)
    torch.save(state, folder / "checkpoint_best.pt")
    assert run("model", "--path", folder, "--output", tmp_path / "out") == 2
    assert "but loading the model gave: " in capsys.readouterr().err
    content = (shop.muse / "checkpoint_best.pt").read_bytes()
    (folder / "checkpoint_best.pt").write_bytes(content[: len(content) // 2])
    assert run("model", "--path", folder, "--output", tmp_path / "out") == 2
    assert "is cut short or damaged" in capsys.readouterr().err
    assert run("model", "--path", shop.muse, "--data", tmp_path, "--output", tmp_path / "out") == 2
    assert "must be those that" in capsys.readouterr().err


# ---- data -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def trained_in(shop, tmp_path, monkeypatch):
    """A folder where training was started with relative paths, which nobody is in any more."""
    folder = tmp_path / "work"
    shutil.copytree(shop.parallel, folder / "bin")
    monkeypatch.chdir(folder)
    shop.save_checkpoint(folder / "saved", "bin", "muse", *shop.small)  # languages are read from the names of files
    monkeypatch.chdir("/")  # which has a folder bin without dictionaries, too
    return folder


def test_relative_data_are_found_from_any_folder(trained_in, tmp_path, undrawn, capsys):
    words = ["--path", trained_in / "saved", "--only", "gates", "--output", tmp_path / "out"]
    assert run("model", *words) == 0
    assert f"using the data in {trained_in / 'bin'}, which the checkpoint calls bin\n" in capsys.readouterr().err


def test_data_next_to_the_checkpoint_are_used(trained_in, tmp_path, undrawn, capsys):
    moved = (trained_in / "bin").rename(tmp_path / "moved")
    shutil.copy(trained_in / "saved" / "checkpoint_best.pt", moved)
    assert run("model", "--path", moved, "--only", "gates", "--output", tmp_path / "out") == 0
    assert f"using the data in {moved}, which the checkpoint calls bin\n" in capsys.readouterr().err


def test_data_that_are_nowhere_are_one_sentence(trained_in, tmp_path, capsys):
    shutil.rmtree(trained_in / "bin")
    assert run("model", "--path", trained_in / "saved", "--output", tmp_path / "out") == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[1].startswith("muse-plugin analyze: error: the data in bin must be those that ")
    assert said[1].endswith("but there is no dictionary in it; name the folder of the right ones by --data.")
