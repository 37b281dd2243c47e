"""``muse-plugin export``: what it writes, what it refuses, and that nothing half-written is left."""

import hashlib
import json
import shutil
from argparse import Namespace

import pytest
from support.translation_models import ENGLISH, GERMAN

from muse_plugin.runner import run as runner
from muse_plugin_command import cli


def export(path, output, *words):
    return cli.main(["export", "--path", str(path), "--output", str(output), *words])


def needs(*names):
    for name in names:
        pytest.importorskip(name, reason="needs the extra 'export'")


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("test.de", GERMAN), ("test.en", ENGLISH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(tmp_path / "test.de"), str(tmp_path / "test.en")]


def test_the_folder_holds_every_file_with_its_checksum(exported):
    config = json.loads((exported / "config.json").read_text())
    names = {path.name for path in exported.iterdir()}
    assert names == {*config["files"], "config.json", "run.py", "README.md"}
    for name, sha256 in config["files"].items():
        assert hashlib.sha256((exported / name).read_bytes()).hexdigest() == sha256
    assert config["weights"] == "float32"


def test_the_graphs_have_standard_operators_alone(exported):
    import onnx

    for name in ("encoder.onnx", "decoder_step.onnx"):
        model = onnx.load(str(exported / name))
        assert {(own.domain, own.version) for own in model.opset_import} == {("", 17)}
        assert {node.domain for node in model.graph.node} <= {""}
        sizes = [dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
        assert {"sentences", "source_length"} <= {*sizes}


def test_the_card_says_what_the_model_is(exported):
    card = (exported / "README.md").read_text(encoding="utf-8")
    for part in (
        "de to en",
        "A `muse_tiny`, trained by fairseq",
        "1 layers, width 8",
        "## Licence\n\nCC0",
        "Not measured.",
    ):
        assert part in card, part


def test_scores_beside_the_checkpoint_stand_in_the_card(checkpoint_folder, tmp_path):
    from muse_plugin.exporting.model_card import find_scores

    score = {"mean": 36.5774, "sd": None, "signature": "nrefs:1|case:lc|tok:13a"}
    (tmp_path / "model").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "test.json").write_text(json.dumps({"scores": {"bleu": score, "odd": 1}}))
    (tmp_path / "results" / "other.json").write_text("[1]")
    found = find_scores(tmp_path / "model" / "checkpoint_avg.pt")
    assert found == {"test": [("sacreBLEU", 36.5774, "nrefs:1|case:lc|tok:13a")]}
    shutil.copy(tmp_path / "results" / "test.json", tmp_path / "results.json")  # of a recipe with one test set
    found = find_scores(tmp_path / "model" / "checkpoint_avg.pt")
    assert found == {name: [("sacreBLEU", 36.5774, "nrefs:1|case:lc|tok:13a")] for name in ("test", "results")}
    (tmp_path / "model" / "results").mkdir()
    other = {"mean": 30.0, "signature": "nrefs:1"}
    (tmp_path / "model" / "results" / "test.json").write_text(json.dumps({"scores": {"bleu": other}}))
    found = find_scores(tmp_path / "model" / "checkpoint_avg.pt")
    assert [(name, rows[0][1]) for name, rows in found.items()] == [
        ("model/results/test", 30.0), ("results/test", 36.5774), ("results", 36.5774)
    ]  # fmt: skip
    shutil.rmtree(tmp_path / "model" / "results")
    shutil.copytree(checkpoint_folder, tmp_path / "model", dirs_exist_ok=True)
    assert export(tmp_path / "model", tmp_path / "folder") == 0
    # One backslash before a bar, also in code: GitHub takes it away there.
    card = (tmp_path / "folder" / "README.md").read_text(encoding="utf-8")
    assert r"| test | sacreBLEU | 36.58 | `nrefs:1\|case:lc\|tok:13a` |" in card


@pytest.mark.parametrize("model", [Namespace(dropout=0.3), {"dropout": 0.3}])
def test_the_card_names_settings_wherever_fairseq_keeps_them(model):
    from muse_plugin.exporting.model_card import describe_training

    cfg = {
        "model": model,
        "optimizer": Namespace(_name="adam", adam_betas="(0.9, 0.98)"),
        "lr_scheduler": {"_name": "inverse_sqrt", "warmup_updates": 4000},
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        "optimization": {"lr": [0.001], "clip_norm": 0.0},
    }
    assert describe_training({"cfg": cfg, "optimizer_history": [{"num_updates": 7}]}) == {
        **{"dropout": "0.3", "optimizer": "adam", "adam_betas": "(0.9, 0.98)", "lr_scheduler": "inverse_sqrt"},
        **{"warmup_updates": "4000", "criterion": "label_smoothed_cross_entropy", "label_smoothing": "0.1"},
        **{"lr": "[0.001]", "updates done": "7"},
    }


def test_int8_is_smaller_and_measured_before_and_after(checkpoint_folder, tmp_path, texts, exported):
    output = tmp_path / "folder"
    assert export(checkpoint_folder, output, "--int8", "--evaluate", *texts) == 0
    card = (output / "README.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in card.splitlines() if line.startswith(("| float32 |", "| int8 |"))]
    assert [row[0] for row in rows] == ["| float32", "| int8"]
    assert all(row[2] == "9" and "\\|tok:13a\\|" in row[3] for row in rows)
    assert json.loads((output / "config.json").read_text())["weights"] == "int8"
    assert len(runner.Translator(output).translate(GERMAN)) == len(GERMAN)
    import onnx

    kinds = {node.op_type for node in onnx.load(str(output / "decoder_step.onnx")).graph.node}
    assert "MatMulInteger" in kinds
    assert {path.name for path in output.iterdir()} == {path.name for path in exported.iterdir()}


def test_weights_beyond_one_file_lie_in_a_second(checkpoint_folder, tmp_path, monkeypatch, exported):
    monkeypatch.setattr("muse_plugin.models.onnx.onnx_file.LARGEST_FILE", 1000)
    monkeypatch.setattr("muse_plugin.models.onnx.onnx_file.SECOND_FILE_FROM", 0)
    output = tmp_path / "folder"
    assert export(checkpoint_folder, output) == 0
    names = {path.name for path in output.iterdir()}
    assert {"encoder.onnx.data", "decoder_step.onnx.data"} <= names
    assert runner.Translator(output).translate(GERMAN) == runner.Translator(exported).translate(GERMAN)
    (output / "encoder.onnx.data").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"encoder\.onnx\.data must be the file that was exported"):
        runner.Translator(output)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--format", "ctranslate2"],
            "convolutions or limited attention; export with --format onnx",
        ),
        (
            ["--format", "ctranslate2", "--evaluate", "TEXT", "TEXT"],
            "--evaluate translates with the program of",
        ),
        (["--evaluate", "TEXT", "SHORT"], "--evaluate must name two files of as many lines, but"),
        (["--evaluate", "TEXT", "nothing"], "--evaluate must name a file, but nothing does not exist"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(checkpoint_folder, tmp_path, texts, capsys, words, sentence):
    needs("onnx", "onnxruntime", "ctranslate2")
    (tmp_path / "short").write_text("a\n")
    words = [{"TEXT": texts[0], "SHORT": str(tmp_path / "short")}.get(word, word) for word in words]
    before = sorted(tmp_path.iterdir())
    assert export(checkpoint_folder, tmp_path / "folder", *words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_with_something_in_it_is_not_touched(checkpoint_folder, tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    assert export(checkpoint_folder, tmp_path) == 2
    assert "--output must name a new or an empty folder, but" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_missing_package_is_named_before_the_model_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert export(tmp_path / "nothing", tmp_path / "folder") == 2
    assert "pip install onnx onnxruntime, or install this package with the extra 'export'" in capsys.readouterr().err
