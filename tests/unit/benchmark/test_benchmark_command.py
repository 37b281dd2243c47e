"""``muse-plugin benchmark`` on problems that are over in a moment."""

import json
import re
from argparse import Namespace

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.benchmark import benchmark, generation_speed, report, sentence_speed, systems, window_speed
from muse_plugin.benchmark.records import read_record
from muse_plugin.fairseq_repairs import missing_extensions
from muse_plugin.modules import attention
from muse_plugin_command import cli

TINY = ["--rounds", "2", "--threads", "1"]
KINDS = {
    "conv": ["--lengths", "4", "9", "--kernels", "3", "3+5", "--tokens", "20", "--channels", "4"],
    "attention": ["--lengths", "4", "--tokens", "20", "--channels", "4"],
    "loss": ["--tokens", "20", "--widths", "8", "--vocabularies", "30"],
    "generate": ["--setting", "tiny", "--lengths", "3", "5", "--sentences", "1", "2", "--vocabulary", "50"],
    "train": ["--setting", "tiny", "--lengths", "4", "6", "--tokens", "12", "--vocabulary", "50"],
    "batches": ["--sentences", "100", "200", "--max-tokens", "400"],
}


# fairseq's form is there where it was compiled.
BATCHING = ["fairseq, compiled", "numpy"] if missing_extensions.is_compiled("data.data_utils_fast") else ["numpy"]


CTRANSLATE2 = [systems.CTRANSLATE2, systems.CTRANSLATE2_INT8]


def run(kind, path, *more):
    assert cli.main(["benchmark", kind, *KINDS[kind], *TINY, "--json", str(path), *more]) == 0
    return read_record(path)


@pytest.mark.parametrize(
    ("kind", "cases", "names"),
    [
        ("conv", 4, ["fairseq, Python", "muse_plugin"]),
        ("attention", 2, ["fairseq MultiheadAttention", "explicit softmax", "muse_plugin"]),
        ("loss", 1, ["fairseq", "muse_plugin"]),
        ("generate", 4, ["fairseq dynamic conv", "fairseq Transformer", "MUSE", *CTRANSLATE2]),
        ("batches", 4, BATCHING),
    ],
)
def test_prints_a_row_per_case_and_writes_every_number(kind, cases, names, tmp_path, capsys):
    if kind == "generate":
        pytest.importorskip("ctranslate2", reason="needs the extra 'ctranslate2'")
    record = run(kind, tmp_path / "a.json")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + cases
    assert all(name in lines[0] for name in names)
    assert record.kind == kind
    assert record.settings["device"] == "cpu"
    assert record.run["threads"]["torch"] == 1
    assert len(record.measurements) == cases
    for line, measurement in zip(lines[2:], record.measurements, strict=True):
        assert list(measurement.values) == names
        assert all(len(values) == 2 and min(values) > 0 for values in measurement.values.values())
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[: len(measurement.case)] == [str(value) for value in measurement.case.values()]
        ratio = r"\*\*\d+\.\d\d\*\*( \(\d+\.\d\d-\d+\.\d\d\))?" if len(names) > 1 else r"\d+(\.\d+)?"
        assert re.fullmatch(ratio, cells[-1])


def test_without_ctranslate2_its_columns_are_there_and_a_sentence_says_why(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setattr(generation_speed.importlib.util, "find_spec", lambda name: None)
    record = run("generate", tmp_path / "a.json", "--beam", "2", "1")
    assert "CTranslate2 Transformer int8 not measured: pip install ctranslate2 adds it." in caplog.text
    assert "onnx" not in caplog.text  # no contestant of this setting
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [m.case["beam"] for m in record.measurements] == [2] * 4 + [1] * 4
    assert len(rows) == 8
    assert all(row.endswith(" | not measured" * 4 + " |") for row in rows)
    assert all(record.measurements[0].values[name] == [] for name in CTRANSLATE2)
    others = ["fairseq dynamic conv", "fairseq Transformer", "MUSE"]
    words = ["benchmark", "generate", *KINDS["generate"], *TINY, "--without", *others]
    assert cli.main(words) == 2
    assert "--without must leave a contestant that can run, but got CTranslate2" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_onnxruntime_is_measured_where_both_of_its_packages_are(package, monkeypatch, caplog):
    monkeypatch.setattr(generation_speed.importlib.util, "find_spec", lambda name: None if name == package else name)
    assert generation_speed._find_missing([systems.SIMPLE, systems.SIMPLE_ONNX]) == {systems.SIMPLE_ONNX}
    assert f"MUSE-simple, onnxruntime not measured: pip install {package} adds it." in caplog.text


def test_a_ctranslate2_that_cannot_compute_here_stops_no_other_contestant(tmp_path, monkeypatch, caplog):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra 'ctranslate2'")
    asked = []

    def refuse(folder, **options):
        asked.append(options)
        raise RuntimeError("Library libcublas.so.12 is not found")

    monkeypatch.setattr(ctranslate2, "Translator", refuse)
    record = run("generate", tmp_path / "a.json", "--dtype", "bfloat16", "--without", systems.DYNAMIC_CONV)
    assert "ctranslate2 must compute bfloat16 on cpu, but says: Library libcublas.so.12 is not found" in caplog.text
    assert [options["compute_type"] for options in asked] == ["bfloat16", "int8"]
    assert record.measurements[0].values[systems.MUSE] != []
    assert all(record.measurements[0].values[name] == [] for name in CTRANSLATE2)


def test_ctranslate2_computes_on_the_gpu_of_the_others(monkeypatch):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra 'ctranslate2'")
    from muse_plugin.benchmark.ctranslate2_search import CTranslate2Search

    asked = []

    class Translator:
        def __init__(self, folder, **options):
            asked.append(options)

        def translate_batch(self, sentences, **options):
            asked.append(sentences)

    monkeypatch.setattr(ctranslate2, "Translator", Translator)
    factory = systems.ModelFactory(50)
    model = factory.build(systems.CTRANSLATE2, "tiny").eval()
    CTranslate2Search(factory, model, torch.device("cuda", 1), "float16")
    assert (asked[0]["device"], asked[0]["device_index"], asked[0]["compute_type"]) == ("cuda", 1, "float16")
    assert asked[1] == [[factory.dictionary.symbols[-1]]]  # loads the libraries of the GPU


@pytest.mark.parametrize("int8", [False, True])
def test_ctranslate2_does_the_work_of_fairseqs_search(int8):
    pytest.importorskip("ctranslate2", reason="needs the extra 'ctranslate2'")
    from muse_plugin.benchmark.ctranslate2_search import CTranslate2Search

    torch.manual_seed(1)
    factory = systems.ModelFactory(50)
    model = factory.build(systems.CTRANSLATE2, "tiny").eval()
    source = factory.make_tokens(3, 7)
    search = CTranslate2Search(factory, model, torch.device("cpu"), "int8" if int8 else "float32")
    for beam in (2, 1):
        ours = generation_speed.make_search(factory, model, source, beam)()
        theirs = search.make_search(source, beam)()
        assert [len(one[0]["tokens"]) for one in ours] == [8] * 3  # seven words and the end
        assert {len(words) for words in theirs} <= {7, 8}
    if not int8:  # the last step may choose a word where fairseq's must end: a wider beam then prefers another path
        words = [[factory.dictionary[token] for token in one[0]["tokens"][:7]] for one in ours]
        assert [own[:7] for own in theirs] == words


def test_windows_are_measured_for_every_list_of_scales(tmp_path):
    sizes = ["--sentences", "2", "--embed-dim", "8", "--window-heads", "2", "--lengths", "4", "9"]
    flags = ["--windows", *sizes, "--scales", "1,3", "1,N/2"]
    assert cli.main(["benchmark", "attention", *flags, *TINY, "--json", str(tmp_path / "a.json")]) == 0
    measurements = read_record(tmp_path / "a.json").measurements
    assert [(m.case["scales"], m.case["length"]) for m in measurements] == [
        ("1,3", 4), ("1,3", 9), ("1,N/2", 4), ("1,N/2", 9),
    ]  # fmt: skip
    assert {tuple(m.values) for m in measurements} == {
        ("fairseq Transformer layers", "windows, dense masks", "windows")
    }
    assert measurements[1].work == {"tokens": 18}


def test_windows_and_dense_masks_are_the_same_layers(monkeypatch):
    args = Namespace(
        embed_dim=8, window_heads=2, layers=2, without_dense=False, device=torch.device("cpu"), dtype=torch.float32
    )
    encoders = window_speed._build_encoders(args, "3,N/2")
    x, seen = torch.randn(40, 2, 8), []
    own = attention.window_attention
    monkeypatch.setattr(attention, "window_attention", lambda *inputs: seen.append(inputs[-1]) or own(*inputs))
    assert_close(encoders[window_speed.OURS](x), encoders[window_speed.DENSE](x), atol=1e-5)
    assert seen == ["auto", "auto", "dense", "dense"]


def test_training_is_measured_in_time_and_memory(tmp_path, capsys):
    record = run("train", tmp_path / "a.json", "--without", "fairseq dynamic conv")
    names = ["fairseq Transformer", "MUSE, unfused form", "MUSE, fairseq's loss", "MUSE", "MUSE-simple"]
    assert [list(m.values) for m in record.measurements] == [names, names]
    measurement = record.measurements[0]
    assert measurement.work == {"tokens": 12}
    head, _, row, *_ = capsys.readouterr().out.splitlines()
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    assert cells["MUSE [tokens/s]"] == f"{12 / measurement.spread('MUSE').median:,.0f}"
    memory = run("train", tmp_path / "b.json", "--memory", "--without", *names[1:3])
    assert {m.unit for m in memory.measurements} == {"bytes"}
    for measurement in memory.measurements:
        for name, (peak,) in measurement.values.items():
            assert 10 * 2**20 < peak < 80 * 2**20, name  # 1 to 2 million weights, twice Adam's state, gradients
    out = capsys.readouterr().out
    assert "[MiB]" in out
    assert "tokens/s" not in out


def test_memory_of_the_loss_counts_scores_and_gradients(tmp_path):
    arguments = ["benchmark", "loss", "--memory", "--tokens", "4000", "--widths", "8", "--vocabularies", "4000"]
    assert cli.main([*arguments, "--json", str(tmp_path / "a.json")]) == 0
    (measurement,) = read_record(tmp_path / "a.json").measurements
    scores = 4 * 4000 * 4000
    assert measurement.values["fairseq"][0] > 2 * scores
    assert measurement.values["muse_plugin"][0] < 0.5 * scores


def test_report_shows_every_table_and_how_cost_grows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    paths = []
    for kind in ("generate", "train", "conv"):
        paths.append(tmp_path / f"{kind}.json")
        run(kind, paths[-1])
    (tmp_path / "figures").mkdir()
    output = tmp_path / "BENCHMARKS.md"
    words = ["benchmark", "report", *map(str, paths), "--output", str(output), "--figures", str(tmp_path / "figures")]
    assert cli.main(words) == 0
    text = output.read_text()
    assert set(report.SECTIONS) == set(benchmark.KINDS)
    for title in report.SECTIONS.values():
        assert f"\n## {title}\n" in text
    assert text.count("Not measured.") == 4  # attention, sentence, loss and batches
    assert "![Decoding: how its cost grows with the length of sentences](figures/generate.svg)" in text
    assert (tmp_path / "figures" / "train.svg").read_text().startswith("<?xml")
    assert f"wrote {output}" in capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("| tiny | 5 | 2 | 5 |")]
    assert len(rows) == 1
    before = output.read_bytes()
    assert cli.main(words) == 0
    assert output.read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "measurements": [{}]}'])
def test_report_refuses_other_files(tmp_path, capsys, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    assert cli.main(["benchmark", "report", str(path), "--output", str(tmp_path / "b.md")]) == 2
    message = capsys.readouterr().err
    assert f"{path} must be what 'muse-plugin benchmark KIND --json FILE' writes, but it cannot be read" in message
    assert not (tmp_path / "b.md").exists()


def test_report_names_a_missing_file_and_a_missing_folder(tmp_path, capsys):
    path = tmp_path / "a.json"
    words = ["benchmark", "report", str(path), "--output", str(tmp_path / "b.md")]
    assert cli.main(words) == 2
    assert f"there is no {path}; 'muse-plugin benchmark KIND --json {path}' writes it." in capsys.readouterr().err
    run("loss", path)
    assert cli.main([*words, "--figures", str(tmp_path / "none")]) == 2
    assert "--figures must be a folder that exists, but got" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["conv", "--rounds", "0"], "--rounds: must be at least 1, but got 0"),
        (
            ["conv", "--device", "cuda"],
            "--device must be one that PyTorch can use, but got cuda and there is no GPU; use cpu.",
        ),
        (["conv", "--device", "tpux"], "--device must be cpu, cuda or cuda:N, but got tpux."),
        (["conv", "--json", "/no/such/folder/a.json"], "--json must be in a folder that exists, but got"),
        (["conv", "--kernels", "3+x"], "--kernels"),
        (["conv", "--kernels", "3+0"], "--kernels: must be at least 1, but got 0"),
        (["conv", "--backend", "triton"], "--backend must run on --device cpu, but got triton; use auto."),
        (["sentence", "--heads", "7"], "--embed-dim must be a multiple of --heads, but got 300 and 7."),
        (["generate", "--lengths", "9", "1024"], "--lengths must be below 1024, but got 1024."),
        (["batches", "--multiple", "0"], "--multiple: must be at least 1, but got 0"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_measured(words, sentence, capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert cli.main(["benchmark", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_the_record_names_the_command_and_the_machine(tmp_path, monkeypatch):
    words = ["benchmark", "loss", *KINDS["loss"], *TINY, "--json", str(tmp_path / "a.json")]
    monkeypatch.setattr("sys.argv", ["muse-plugin", *words])
    assert cli.main() == 0
    content = json.loads((tmp_path / "a.json").read_text())
    expected = " ".join(["muse-plugin", "benchmark", "loss", *KINDS["loss"], *TINY])
    assert content["command"] == expected
    assert content["run"]["versions"]["torch"]
    assert "json" not in content["settings"]


def test_whole_sentence_models_are_measured(tmp_path):
    sizes = ["--sentences", "2", "--embed-dim", "10", "--heads", "5", "--layers", "1", "--vocabulary", "20"]
    path = tmp_path / "sentence.json"
    assert cli.main(["benchmark", "sentence", *sizes, "--lengths", "3", "5", *TINY, "--json", str(path)]) == 0
    measurements = read_record(path).measurements
    assert [m.case for m in measurements] == [{"length": 3}, {"length": 5}]
    names = (sentence_speed.FAIRSEQ, sentence_speed.TRANSFORMER, sentence_speed.BIGRU, sentence_speed.MULTI_SCALE)
    assert all(tuple(m.values) == names for m in measurements)


def test_contestants_score_sentences_of_equal_sizes():
    args = Namespace(embed_dim=10, heads=5, layers=2, vocabulary=20, device=torch.device("cpu"), dtype=torch.float32)
    models = sentence_speed.build_models(args)
    tokens, lengths = torch.randint(4, 24, (3, 5)), torch.full((3,), 5)
    shapes = {name: tuple(model(tokens, lengths).shape) for name, model in models.items()}
    assert shapes.pop(sentence_speed.FAIRSEQ) == (5, 3, 10)
    assert set(shapes.values()) == {(3, 2)}
