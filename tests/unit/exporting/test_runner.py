"""The program in an exported folder: fairseq's beam search without fairseq, and folders that are not as they were."""

import ast
import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace

import pytest
from support.bare_packages import RUNNER_NEEDS, link_packages
from support.translation_models import GERMAN

from muse_plugin.inference.streaming import Line
from muse_plugin.inference.translate import Translator
from muse_plugin.runner import run as runner

LINES = [*GERMAN[:3], "", "Ich sehe Ann.", "<pad> <s> &lt; @@ Ü\u2028x", "Bahnhof " * 5, "Zug"]


@pytest.fixture(scope="module")
def ours(exported):
    return runner.Translator(exported, threads=1)


@pytest.fixture(scope="module")
def theirs(checkpoint_folder):
    return Translator.load(checkpoint_folder, cpu=True)


def search_by_fairseq(translator, sentences, **settings):
    """(score, tokens) of the n-best of each sentence, by fairseq's own generator."""
    names = {"max_len_a": 0, "max_len_b": 200, "min_len": 1, "beam": 5, "lenpen": 1.0, **settings}
    generator = translator.task.build_generator(translator.models, Namespace(**names))
    dictionary = translator.task.source_dictionary
    ids = [dictionary.encode_line(" ".join(tokens), add_if_not_exist=False).long() for tokens in sentences]
    dataset = translator.task.build_dataset_for_inference(ids, [len(own) for own in ids])
    sample = dataset.collater([dataset[i] for i in range(len(ids))])
    found = translator.task.inference_step(generator, translator.models, sample)
    by_number = dict(zip(sample["id"].tolist(), found, strict=True))
    return [
        [(float(one["score"]) / 0.6931471805599453, one["tokens"].tolist()[:-1]) for one in by_number[i]]
        for i in range(len(ids))
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam": 1},
        {"beam": 2, "lenpen": 0.3},
        {"beam": 4, "min_len": 4, "max_len_b": 7},
        {"beam": 3, "max_len_b": 2, "lenpen": 2.0},
        {"beam": 40},  # more than the dictionary has words
        {"min_len": 0, "max_len_b": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("together", [True, False])
def test_search_finds_what_fairseq_finds(ours, theirs, settings, together):
    sentences = [tokens for line in LINES if (tokens := ours.read_line(line))]
    lengths = {"max_len_a": 0, "max_len_b": 200, **settings}
    batches = [sentences] if together else [[tokens] for tokens in sentences]
    for batch in batches:
        expected = search_by_fairseq(theirs, batch, **settings)
        found = ours.search(batch, **lengths)
        for one, other in zip(found, expected, strict=True):
            assert [ids for _, ids in one] == [ids for _, ids in other]
            assert [score for score, _ in one] == pytest.approx([score for score, _ in other], abs=1e-4)


def test_lines_in_give_the_lines_of_translate(ours, theirs):
    expected = [theirs.translate_lines([Line(1, line)])[0] for line in LINES]
    assert ours.translate(LINES, batch_size=1) == expected
    assert ours.translate(LINES, batch_size=3) == expected  # the longest translation does not depend on the batch
    best = ours.translate_nbest(LINES, nbest=3, beam=3)
    assert [len(found) for found in best] == [3 if line else 0 for line in LINES]
    assert all(found == sorted(found, key=lambda one: -one.score) for found in best)


def test_tokens_are_those_of_the_text_pipeline(ours, theirs):
    for line in [*LINES, "„Sprechen Sie 2 : 30?“", "a" * 500, "\u00ad\u200b", "x\tz\x00", "&amp; <unk>"]:
        assert ours.source.split(line) == theirs.pipeline.source.split(line)
        tokens = theirs.pipeline.source.split(line)
        assert ours.target.join(tokens) == theirs.pipeline.target.join(" ".join(tokens))


def test_the_program_is_one_short_file_of_few_packages(exported):
    text = (exported / "run.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    tree = ast.parse(text)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert tops == {name.replace("-", "_") for name in RUNNER_NEEDS}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec", "compile", "__import__"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The environment of a machine that has neither torch nor fairseq."""
    packages = link_packages(tmp_path_factory.mktemp("packages"))
    return {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}


def run_program(folder, bare, content=b"", *words):
    command = [sys.executable, "-S", str(folder / "run.py"), "--threads", "1", *words]
    return subprocess.run(command, input=content, capture_output=True, env=bare, cwd=folder.parent, timeout=300)


def test_it_runs_where_neither_torch_nor_fairseq_is(exported, bare, ours):
    probe = (
        "import importlib.util as u; print([n for n in ('torch', 'fairseq', 'muse_plugin', 'onnx') if u.find_spec(n)])"
    )
    missing = subprocess.run([sys.executable, "-S", "-c", probe], env=bare, capture_output=True, text=True, cwd="/")
    assert missing.stdout == "[]\n", missing.stderr
    content = "".join(f"{line}\n" for line in LINES if "\u2028" not in line).encode() + b"\xff Zug"
    done = run_program(exported, bare, content)
    assert done.returncode == 0, done.stderr
    lines = [line for line in LINES if "\u2028" not in line] + ["\ufffd Zug"]
    assert done.stdout.decode().split("\n") == [*ours.translate(lines), ""]
    assert done.stderr.decode() == "line 8 is not valid UTF-8; its invalid bytes were replaced by U+FFFD.\n"
    best = run_program(exported, bare, b"Zug\n\nZug", "--nbest", "2", "--beam", "3").stdout.decode().split("\n")
    assert [line.split("\t")[0] for line in best] == ["1", "1", "3", "3", ""]


def test_onnxruntime_is_told_to_report_to_nobody(exported, bare, tmp_path):
    code = "import os, run; print(len(run.Translator('.').translate(['Zug'])), os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**bare, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-S", "-B", "-c", code]
    done = subprocess.run(command, env=environment, cwd=exported, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("1 1\n", "")
    assert list(tmp_path.iterdir()) == []  # it keeps what it reports in a file there


def test_a_damaged_folder_is_one_sentence_of_the_program(exported, bare, tmp_path):
    shutil.copytree(exported, tmp_path / "folder")
    (tmp_path / "folder" / "encoder.onnx").unlink()
    done = run_program(tmp_path / "folder", bare, b"Zug\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("run.py: error: ")
    assert "encoder.onnx does not exist, but" in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert run_program(exported, bare, b"", "--beam", "0").stderr == (
        b"run.py: error: beam must be a number of at least 1, but got 0.\n"
    )


CHECKED = ["encoder.onnx", "decoder_step.onnx", "dict.de.txt", "dict.en.txt", "bpe.codes", "text_pipeline.json"]


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign", "empty", "one_byte"])
def test_a_file_that_is_not_the_exported_one_is_named(exported, tmp_path, name, damage):
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    path = folder / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
        with pytest.raises(FileNotFoundError, match=rf"{name} does not exist, but .*; export the model again, or copy"):
            runner.Translator(folder)
        return
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path.write_bytes({"cut": content[:-1], "foreign": b"cos\nsystem\n", "empty": b"", "one_byte": changed}[damage])
    with pytest.raises(ValueError, match=rf"{name} must be the file that was exported, but has sha256 .*; export"):
        runner.Translator(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (None, "must be a JSON file, but reading it gave"),
        ([], "must hold a JSON object, but holds a list"),
        ({"format_version": 1}, "must have format_version 2, but has 1"),
        ({"histories": []}, "'histories' is no dict"),
        ({"histories": {"a": 8}}, "a history has not two sizes above 0"),
        ({"histories": {"a": [4, -1]}}, "a history has not two sizes above 0"),
        ({"max_source_positions": True}, "'max_source_positions' is no int"),
        ({"max_target_positions": 1}, "'max_target_positions' is below 2"),
        ({"files": {"../secret": ""}}, "'../secret' is no name of a file"),
        ({"files": {}}, "'files' lacks 'decoder_step.onnx'"),
        ({"source_dictionary": "/etc/passwd"}, "'files' lacks '/etc/passwd'"),
    ],
)
def test_odd_settings_are_named(exported, tmp_path, change, sentence):
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if isinstance(change, dict):
        own = change.pop("files", None)
        config |= change
        config["files"] = config["files"] if own is None else own if not own else config["files"] | own
        change = config
    path.write_text("{" if change is None else json.dumps(change))
    with pytest.raises(ValueError, match=sentence):
        runner.Translator(folder)


def test_a_graph_that_cannot_be_loaded_is_named(exported, tmp_path):
    import onnxruntime

    path = tmp_path / "encoder.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(ValueError, match=r"onnxruntime .* cannot load .*encoder\.onnx: "):
        runner.load_session(onnxruntime, path, onnxruntime.SessionOptions())


@pytest.mark.parametrize("name", ["beam", "batch_size", "nbest", "max_tokens"])
def test_settings_out_of_range_are_refused(ours, name):
    for value in (0, "a", float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be a number of at least 1, but got"):
            ours.translate(["Zug"], **{name: value})


def test_more_translations_than_the_beam_finds_are_refused(exported, bare, ours):
    with pytest.raises(ValueError, match=r"^nbest must be at most beam, but got 6 and beam 5; raise beam\.$"):
        ours.translate_nbest(["Zug"], nbest=6)
    done = run_program(exported, bare, b"Zug\n", "--beam", "2", "--nbest", "3")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"run.py: error: nbest must be at most beam, but got 3 and beam 2; raise beam.\n"
    assert len(ours.translate_nbest(["Zug"], nbest=6, beam=6)[0]) == 6


def test_a_text_in_place_of_lines_is_refused(ours):
    with pytest.raises(
        TypeError, match=r"lines must be a list of them, but got the text 'Zug'; give \[text\] for one\."
    ):
        ours.translate("Zug")


def test_a_long_line_of_a_later_block_is_named_by_its_place_in_the_text(exported, bare):
    done = run_program(exported, bare, b"\n" * 1001 + b"Bahnhof " * 5000 + b"\n", "--beam", "1")
    assert done.returncode == 0
    assert done.stderr.decode() == (
        "line 1002 is longer than the 20 tokens that the model can read; only its beginning is translated.\n"
    )


def test_a_long_line_is_cut_and_named(ours, caplog):
    assert ours.read_line("Bahnhof " * 5000, 7)[: ours.longest_source] == ours.source.split("Bahnhof " * 50)[:19]
    assert caplog.messages == [
        "line 7 is longer than the 20 tokens that the model can read; only its beginning is translated."
    ]
