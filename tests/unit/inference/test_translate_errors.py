"""What ``translate`` says when something is missing or does not fit, and that no odd line ends it."""

import functools
import logging
import re
import shutil

import pytest
import torch
from support.helpers import parse_flags
from support.translation_models import ENGLISH, GERMAN, save_translation_model

from muse_plugin.checkpoints.safe_loading import load_checkpoint, save_atomically
from muse_plugin.inference import translate
from muse_plugin.inference.translate import Line, Translator
from muse_plugin.text.byte_pair_encoding import CODES_NAME
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME

parse = functools.partial(parse_flags, "translate")


@pytest.fixture
def model_folder(checkpoint_folder, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(checkpoint_folder, tmp_path / "model")


def test_run_translates_each_line_to_one_line_in_order(model_folder, tmp_path, caplog, capsys):
    lines = [
        b"Wo ist der Zug?",
        b"",
        b"Der Bahnhof \xff",
        "Wo\u2028ist\x85er?\r".encode(),
        b"Wo ist " * 100,
        b" \t ",
        b"Da",
    ]
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    args = parse("--path", model_folder, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--cpu")
    with caplog.at_level(logging.WARNING):
        assert translate.run(args) == 0
    output = (tmp_path / "out.txt").read_bytes()
    assert output.endswith(b"\n")
    translations = output.decode().split("\n")[:-1]
    assert len(translations) == len(lines)
    assert translations[1] == translations[5] == ""
    assert "line 3 is not valid UTF-8; its invalid bytes were replaced by U+FFFD." in caplog.messages
    assert "line 5 is longer than the 20 tokens that the model can read; only its beginning was translated." in (
        caplog.messages
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "model", "out.txt"]
    assert f"using checkpoint_avg.pt, of 2 checkpoints in the folder {model_folder}\n" in capsys.readouterr().err


def test_translation_does_not_depend_on_the_batch(model_folder):
    lines = [Line(i, " ".join(GERMAN[i % 3].split()[: 1 + i % 4])) for i in range(6)]
    alone = Translator.load(model_folder, cpu=True, beam=2, batch_size=1).translate_lines(lines)
    together = Translator.load(model_folder, cpu=True, beam=2, batch_size=4, max_tokens=25).translate_lines(lines)
    assert alone == together


def test_half_precision_reaches_every_parameter(model_folder, tmp_path, monkeypatch):
    translate_lines, found = Translator.translate_lines, []

    def remember(self, lines):
        found.append({parameter.dtype for parameter in self.models[0].parameters()})
        return translate_lines(self, lines)

    monkeypatch.setattr(Translator, "translate_lines", remember)
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in GERMAN))
    words = ["--path", model_folder, "--input", tmp_path / "in.txt", "--cpu", "--output"]
    for output, flags in (("whole.txt", []), ("half.txt", ["--fp16"])):
        assert translate.run(parse(*words, tmp_path / output, *flags)) == 0
        assert len((tmp_path / output).read_text().splitlines()) == len(GERMAN)
    assert found == [{torch.float32}, {torch.float16}]


def test_half_precision_in_onnxruntime_is_refused(model_folder):
    pytest.importorskip("onnxruntime")
    with pytest.raises(NotImplementedError, match=r"onnxruntime computes in float32 on the CPU, .* leave out --fp16"):
        Translator.load(model_folder, cpu=True, fp16=True, inference_backend="onnxruntime")


# Outside of pytest, which sets its own filters, this one is silenced by warning_filters.
@pytest.mark.filterwarnings(r"ignore:\s*'config' is validated against ConfigStore schema")
def test_a_checkpoint_with_settings_in_the_old_form_translates_the_same(model_folder):
    lines = [Line(1, GERMAN[0])]
    new = Translator.load(model_folder, cpu=True).translate_lines(lines)
    old = Translator.load(model_folder / "checkpoint_of_old_fairseq.pt", cpu=True).translate_lines(lines)
    assert new == old


def test_every_batch_keeps_its_limits(model_folder, monkeypatch):
    translator = Translator.load(model_folder, cpu=True, batch_size=4, max_tokens=40)
    search, batches = translator.search, []

    def remember(batch, phrases):
        batches.append([len(sentence) for sentence in batch])
        return search(batch, phrases)

    monkeypatch.setattr(translator, "search", remember)
    lines = [Line(i + 1, " ".join([GERMAN[0]] * (1 + 7 * i % 4))) for i in range(15)]
    assert len(translator.translate_lines(lines)) == 15
    assert sum(map(len, batches)) == 15
    assert {len(batch) for batch in batches} >= {4, 1}
    for batch in batches:
        assert len(batch) <= 4
        assert len(batch) * max(batch) <= 40 or len(batch) == 1


@pytest.fixture
def unfinished(model_folder, tmp_path, monkeypatch):
    """The words of a command that was stopped after its first buffer."""
    (tmp_path / "in.txt").write_text("Wo?\n" * 4)
    words = ["--path", model_folder, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--cpu"]
    monkeypatch.setattr(translate, "BUFFER_SIZE", 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "translate_lines", lambda self, lines: 1 / 0 if len(lines) == 1 else ["x"] * 3)
        with pytest.raises(ZeroDivisionError):
            translate.run(parse(*words))
    return words


def test_other_settings_do_not_go_on(unfinished):
    flags = ["--beam", 4, "--lenpen", 0.5, "--max-tokens", 400, "--batch-size", 4]
    message = (
        "made with --beam 5 (now 4) and --lenpen 1.0 (now 0.5) and --max-tokens 4000 (now 400) and --batch-size 64"
    )
    with pytest.raises(
        FileExistsError, match=re.escape(message) + r".*; give --restart to begin again, or name another"
    ):
        translate.run(parse(*unfinished, *flags))


@pytest.mark.parametrize("file", ["checkpoint", "dict.de.txt", FILE_NAME])
def test_another_model_does_not_go_on_unless_told_to_begin_anew(unfinished, model_folder, tmp_path, file):
    if file == "checkpoint":
        state = torch.load(model_folder / "checkpoint_avg.pt", weights_only=False)
        next(iter(state["model"].values())).mul_(2)
        torch.save(state, model_folder / "checkpoint_avg.pt")
    else:
        path = model_folder / file
        text = path.read_text()
        path.write_text(text + "\n" if file == FILE_NAME else re.sub(r" \d+\n", " 99\n", text, count=1))
    with pytest.raises(FileExistsError, match=rf"was made with a {file} of sha256 \w{{16}} \(now sha256 \w{{16}}\);"):
        translate.run(parse(*unfinished))
    assert translate.run(parse(*unfinished, "--restart")) == 0
    assert "x" not in (tmp_path / "out.txt").read_text().split("\n")


def test_a_failed_run_leaves_the_old_output(model_folder, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("Wo?\n")
    (tmp_path / "out.txt").write_text("old\n")
    monkeypatch.setattr(Translator, "translate_lines", lambda self, lines: 1 / 0)
    args = parse("--path", model_folder, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--cpu")
    with pytest.raises(ZeroDivisionError):
        translate.run(args)
    assert (tmp_path / "out.txt").read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 3


def test_run_raises_error_when_path_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--path must name a checkpoint or a folder .*/nowhere does not exist"):
        translate.run(parse("--path", tmp_path / "nowhere"))


def test_run_raises_error_when_folder_has_no_checkpoint(model_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds none; did you mean .*/model\?"):
        translate.run(parse("--path", tmp_path))
    (model_folder / "checkpoint_avg.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"one of checkpoint_avg\.pt, .*holds none; name the checkpoint file"):
        translate.run(parse("--path", model_folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (FILE_NAME, r"the text pipeline .*text_pipeline\.json does not exist; copy text_pipeline\.json and"),
        (CODES_NAME, r"the BPE codes .*bpe\.codes, which .* names, do not exist"),
        ("dict.de.txt", r"the dictionary .*dict\.de\.txt does not exist; copy it from the folder that fairseq-preproc"),
        ("dict.en.txt", r"the dictionary .*dict\.en\.txt does not exist"),
    ],
)
def test_run_raises_error_when_a_file_is_missing(model_folder, name, message):
    (model_folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        translate.run(parse("--path", model_folder, "--data", model_folder))


@pytest.mark.parametrize("name", ["checkpoint_avg.pt", "checkpoint_of_old_fairseq.pt"])
def test_a_checkpoint_alone_is_read_with_the_data_of_its_training(model_folder, checkpoint_folder, tmp_path, name):
    (tmp_path / "checkpoints").mkdir()
    checkpoint = shutil.copy(checkpoint_folder / name, tmp_path / "checkpoints")
    lines = [Line(1, GERMAN[0])]
    translator = Translator.load(checkpoint, cpu=True)
    assert translator.folder == checkpoint_folder
    assert translator.translate_lines(lines) == Translator.load(model_folder, cpu=True).translate_lines(lines)


def test_run_raises_error_when_the_training_data_is_gone(tmp_path):
    folder = save_translation_model(tmp_path)
    (folder / "elsewhere").mkdir()
    checkpoint = (folder / "checkpoint_avg.pt").rename(folder / "elsewhere" / "checkpoint_avg.pt")
    (folder / FILE_NAME).unlink()
    with pytest.raises(FileNotFoundError, match=r"the text pipeline .*elsewhere/text_pipeline\.json does not exist"):
        translate.run(parse("--path", checkpoint))


@pytest.mark.parametrize("words", [[], ["--data", "DATA"]])
def test_run_raises_error_when_the_model_was_trained_with_another_task(model_folder, tmp_path, words):
    checkpoint = tmp_path / "checkpoint_best.pt"
    state = load_checkpoint(model_folder / "checkpoint_avg.pt")
    state["cfg"]["task"] = {"_name": "muse_mirrored_summation"}  # it has no data
    save_atomically(state, checkpoint)
    with pytest.raises(
        ValueError, match=r"a translation model, but .*best\.pt was trained with --task muse_mirrored_sum"
    ):
        translate.run(parse("--path", checkpoint, *(model_folder if word == "DATA" else word for word in words)))


def test_run_raises_error_when_dictionary_is_another(model_folder):
    (model_folder / "dict.en.txt").write_text("only 1\n")
    (model_folder / "dict.de.txt").write_text("only 1\n")
    with pytest.raises(ValueError, match=r"must be those that .* was trained with, but .*size mismatch .*--data"):
        translate.run(parse("--path", model_folder))


def test_run_raises_error_when_the_pipeline_is_of_other_text(model_folder):
    TextPipeline.learn("de", "en", ["Ganz anderer Text ganz"] * 3, ["quite other text quite"] * 3, 30).save(
        model_folder
    )
    message = (
        r"never makes \d+ of the \d+ tokens \(.*%\) of .*dict\.de\.txt and .*, such as '.* are missing there; give"
    )
    with pytest.raises(ValueError, match=message):
        translate.run(parse("--path", model_folder))


def test_run_warns_when_the_pipeline_lacks_merges(model_folder, tmp_path, caplog):
    TextPipeline.learn("de", "en", GERMAN, ENGLISH, 28).save(model_folder)
    (tmp_path / "in.txt").write_text("Da\n")
    args = parse("--path", model_folder, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--cpu")
    with caplog.at_level(logging.WARNING):
        assert translate.run(args) == 0
    (warning,) = caplog.messages
    assert "it never makes 2 of the" in warning
    assert "translations suffer" in warning


def test_run_raises_error_when_pipeline_is_for_other_languages(model_folder):
    path = model_folder / FILE_NAME
    path.write_text(path.read_text().replace('"lang": "de"', '"lang": "fr"'))
    shutil.copy(model_folder / "dict.de.txt", model_folder / "dict.fr.txt")
    with pytest.raises(ValueError, match=r"was trained with source_lang 'de' and .*text_pipeline\.json has 'fr'"):
        translate.run(parse("--path", model_folder))


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--beam", "0"], ValueError, "--beam must be at least 1, but got 0"),
        (["--batch-size", "-1"], ValueError, "--batch-size must be at least 1, but got -1"),
        (["--beam", "0", "--batch-size", "0"], ValueError, "but got 0.\n--batch-size must be at least 1, but"),
        (["--max-tokens", "0"], ValueError, "--max-tokens must be at least 1, but got 0"),
        (["--input", "/nowhere/a.txt"], FileNotFoundError, "--input must name a file, but /nowhere/a.txt does"),
        (["--input", "/"], IsADirectoryError, "--input must name a file, but / is a folder"),
        (["--output", "/"], IsADirectoryError, "--output must name a file, but / is a folder"),
        (["--restart"], ValueError, "--restart needs --input FILE and --output FILE, but --input is not given"),
        (["--output", "/nowhere/a.txt"], FileNotFoundError, "--output must be in an existing folder, but /nowhere"),
    ],
)
def test_run_raises_error_when_a_flag_is_wrong(model_folder, words, error, message):
    with pytest.raises(error, match=re.escape(message)):
        translate.run(parse("--path", model_folder, *words))
