"""``muse-plugin serve`` for a folder of ``muse-plugin export``: what run.py gives, without torch and fairseq."""

import json
import os
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from support.bare_packages import RUNNER_NEEDS, link_packages
from support.helpers import REPOSITORY, parse_flags
from support.http import Running, ask, post
from support.translation_models import GERMAN
from support.view_models import make_model_folder

from muse_plugin.runner import run as runner
from muse_plugin.serve.exported_model import load_exported_model
from muse_plugin.serve.page_sentence import MAX_SOURCE_TOKENS
from muse_plugin.serve.sentences import LongSentenceError
from muse_plugin_command import cli
from muse_plugin_command.flags.serve import is_exported

TIMEOUT = 120  # seconds, for a machine that is busy
LINES = [*GERMAN[:3], "", "Ich sehe Ann.", "Zug"]
SERVE_NEEDS = ("starlette", "uvicorn", "prometheus-client", "tqdm")


def load(folder, *flags):
    return load_exported_model(parse_flags("serve", "--path", str(folder), "--cpu", *flags))


@pytest.fixture
def copy(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "folder"))


def test_the_command_answers_as_run_py_does_where_neither_torch_nor_fairseq_is(exported, tmp_path):
    packages = link_packages(tmp_path, (*RUNNER_NEEDS, *SERVE_NEEDS))
    (packages / "muse_plugin").symlink_to(REPOSITORY / "muse_plugin")
    (packages / "muse_plugin_command").symlink_to(REPOSITORY / "muse_plugin_command")
    bare = {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    code = "import importlib.util as u, signal, sys; from muse_plugin_command import cli; "
    code += "signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "assert not any(map(u.find_spec, ('torch', 'fairseq'))); sys.exit(cli.main(sys.argv[1:]))"
    flags = ["--path", str(exported), "--port", "0", "--page", "--split", "lines", "--beam", "3", "--batch-size", "4"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-S", "-c", code, "serve", *flags]
    with subprocess.Popen(command, env=bare, cwd=tmp_path, text=True, **pipes) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith(f"{exported} is served at http://127.0.0.1:"), process.stderr.read()
            server = Namespace(port=int(line.split(":")[2].split("/")[0]))
            body = json.dumps({"q": LINES, "source": "de", "target": "en"}).encode()
            status, answer = post(server, "/translate", body)
            described = json.loads(ask(server, "GET", "/model")[2])
            inspected = post(server, "/inspect", json.dumps({"text": LINES[0]}).encode())
        finally:
            process.send_signal(signal.SIGTERM)
        output, error = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, output, error) == (0, "", "")
    program = [sys.executable, str(exported / "run.py"), "--beam", "3", "--threads", "1"]
    content = "".join(f"{text}\n" for text in LINES).encode()
    printed = subprocess.run(program, input=content, capture_output=True, timeout=TIMEOUT, check=True).stdout
    assert (status, answer["translatedText"]) == (200, printed.decode().split("\n")[:-1])
    assert (described["beam"], described["nbest"], described["gates"]) == (3, 3, {})
    assert inspected[0] == 200
    assert inspected[1]["hypotheses"][0]["text"] == answer["translatedText"][0]


def test_the_page_gets_what_a_checkpoint_gives_but_for_attention_and_scores_of_tokens(exported, checkpoint_folder):
    from muse_plugin.inference.translate import Translator
    from muse_plugin.serve.inspect import Inspector

    ours = load(exported, "--beam", "4", "--lenpen", "0.7").make_inspector(2)
    theirs = Inspector(Translator.load(checkpoint_folder, beam=4, lenpen=0.7, cpu=True), nbest=2)
    names = [name for name in theirs.describe() if not name.startswith("gate")]
    assert [ours.describe()[name] for name in names] == [theirs.describe()[name] for name in names]
    for text in (LINES[0], "Zug \u4e2d"):
        found, expected = ours.inspect(text), theirs.inspect(text)
        assert found["source"] == expected["source"]
        assert len(found["hypotheses"]) == 2
        for one, other in zip(found["hypotheses"], expected["hypotheses"], strict=True):
            assert one["text"] == other["text"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)
            # Of the checkpoint, the end of the sentence is a token with a score.
            written = [token["text"] for token in other["tokens"] if token["text"] != "</s>"]
            assert one["tokens"] == [{"text": token, "score": None} for token in written]
            assert one["attention"] == []
        assert found["attention_note"].startswith("This model is an exported one, whose graphs give neither attention")
    with pytest.raises(ValueError, match=r"^a sentence must have at least one word, but the text is blank; type one"):
        ours.inspect(" ")
    with pytest.raises(ValueError, match=r"^a sentence must have at most 19 tokens here, but got "):
        ours.inspect("Zug " * 25)
    assert ours.describe()["max_tokens"] == 19 < MAX_SOURCE_TOKENS


def test_a_sentence_that_would_be_cut_is_refused_as_by_a_checkpoint(exported, checkpoint_folder):
    from muse_plugin.serve.checkpoint_model import load_checkpoint_model

    served = load_checkpoint_model(parse_flags("serve", "--path", str(checkpoint_folder), "--cpu")), load(exported)
    sentence = r"^a sentence must have at most 19 tokens, but 'Zug Zug Zug .*'\.\.\. has more; send it in parts\.$"
    for model in served:
        pieces = 19 // len(runner.Translator(exported, threads=1).source.split("Zug"))
        model.translate(["Zug " * pieces])
        for text in ("Zug " * (pieces + 1), "Zug " * 1000):
            with pytest.raises(LongSentenceError, match=sentence):
                model.translate(["Zug", text])


def test_limits_and_batches_are_those_of_every_model(exported):
    model = load(exported)
    expected = runner.Translator(exported, threads=1).translate(LINES)
    with Running(model.translate, most_at_once=3) as server:
        body = json.dumps({"q": LINES, "source": "de", "target": "en"}).encode()
        assert post(server, "/translate", body) == (200, {"translatedText": expected})
        assert server.sizes == [3, 3]
        body = json.dumps({"q": "a" * 2000, "target": "en"}).encode()
        assert post(server, "/translate", body)[0] == 413


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder_step.onnx", "dict.de.txt", "config.json", "bpe.codes"])
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_a_file_that_is_not_the_exported_one_is_one_sentence(copy, name, damage, capsys):
    path = copy / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-3] if damage == "cut" else b"cos\nsystem\n")
    assert cli.main(["serve", "--path", str(copy), "--port", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"muse-plugin serve: error: {path} ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("content", [{}, {"texts": 1}, {"texts": {"source": {"lang": "de"}, "target": None}}])
def test_settings_of_a_stranger_with_checksums_are_one_sentence(copy, content):
    path = copy / "text_pipeline.json"
    path.write_text(json.dumps(content))
    config = json.loads((copy / "config.json").read_text())
    config["files"][path.name] = runner.hashlib.sha256(path.read_bytes()).hexdigest()
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"must be as muse-plugin export wrote it, but reading it gave \w+Error: "):
        load(copy)


def test_a_program_in_the_folder_is_not_executed(copy):
    (copy / "run.py").write_text("raise SystemExit('executed')")
    assert load(copy).translate(["Zug"]) == runner.Translator(copy, threads=1).translate(["Zug"])


def test_the_data_of_a_checkpoint_are_refused(exported, tmp_path):
    with pytest.raises(ValueError, match=r"^--data names the dictionaries of a checkpoint, but .* leave it out\.$"):
        load(exported, "--data", str(tmp_path))


def test_half_precision_is_for_a_checkpoint(exported, checkpoint_folder):
    import torch

    from muse_plugin.serve.checkpoint_model import load_checkpoint_model

    with pytest.raises(ValueError, match=r"^--fp16 is for a checkpoint, but .* leave it out\.$"):
        load(exported, "--fp16")
    served = load_checkpoint_model(parse_flags("serve", "--path", str(checkpoint_folder), "--cpu", "--fp16"))
    inspector = served.make_inspector(1)
    assert {parameter.dtype for parameter in inspector.translator.models[0].parameters()} == {torch.float16}
    assert len(served.translate(["Wo ist der Zug?"])) == 1
    assert inspector.inspect("Wo ist der Zug?")["hypotheses"]


def test_a_missing_onnxruntime_is_named(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"needs onnxruntime for an exported folder, .*; run pip install onnx"):
        load(exported)


def test_a_checkpoint_is_no_exported_folder_even_with_a_graph_next_to_it(copy, tmp_path):
    assert is_exported(copy)
    assert not is_exported(copy / "encoder.onnx")
    assert not is_exported(tmp_path / "nothing")
    (copy / "checkpoint_best.pt").write_text("")
    assert not is_exported(copy)


def test_sentence_pieces_go_out_of_fairseq_and_are_served(tmp_path):
    from muse_plugin.inference.streaming import Line
    from muse_plugin.inference.translate import Translator

    folder, output = tmp_path / "model", tmp_path / "exported"
    folder.mkdir()
    make_model_folder(folder, subwords="sentencepiece", tokenizer="none")
    assert cli.main(["export", "--path", str(folder), "--output", str(output)]) == 0
    assert "sentencepiece.model" in {path.name for path in output.iterdir()}
    translator = Translator.load(folder, cpu=True)
    lines = [*LINES, "\u2581 <pad> Ü", "\u00ad x\tz"]
    expected = [translator.translate_lines([Line(1, line)])[0] for line in lines]
    assert len({*expected}) > 2
    program = [sys.executable, str(output / "run.py"), "--threads", "1"]
    content = "".join(f"{line}\n" for line in lines).encode()
    printed = subprocess.run(program, input=content, capture_output=True, timeout=TIMEOUT, check=True).stdout
    assert printed.decode().split("\n")[:-1] == expected
    assert load(output).translate(lines) == expected
