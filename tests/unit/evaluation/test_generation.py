"""Against fairseq itself: the BLEU that fairseq-generate prints is the one that its log evaluates to."""

import re
import sys
from types import SimpleNamespace

import fairseq_cli.generate
import pytest
from support import fairseq_commands
from support.helpers import parse_flags

from muse_plugin.evaluation import generation
from muse_plugin.evaluation.generation import PACKAGE_FOLDER, infer_languages, make_command
from muse_plugin.text.text_pipeline import TextPipeline

SPLIT = "train"  # learnt by heart, so that there are matches of all lengths


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Data with subword marks, and words that are not in the dictionary, and a model that knows them by heart."""
    folder = tmp_path_factory.mktemp("trained")
    fairseq_commands.make_data(folder, {"train": 24, "valid": 4})
    for path in folder.glob("*.??"):
        text = re.sub(r"\bw3\b", "w3@@ w4", path.read_text())
        path.write_text(re.sub(r"\bw5\b", "w5@@ w6@@ w7", text))
    known = [f"w{i}" for i in range(18)] + ["w3@@", "w5@@", "w6@@"]  # without w18 and w19
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in known))
    data = folder / "marked"
    prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid")]
    fairseq_commands.run(
        "preprocess", *prefixes, "-s", "de", "-t", "en", "--destdir", data, "--joined-dictionary", "--workers", 1,
        "--srcdict", folder / "dict.txt",
    )  # fmt: skip
    checkpoints = folder / "checkpoints"
    fairseq_commands.train(
        data, checkpoints, "muse_tiny", *fairseq_commands.SMALL, "--max-update", 60, "--warmup-updates", 10,
        "--dropout", 0, "--disable-validation", "--save-interval", 1000,
    )  # fmt: skip
    return data, checkpoints / "checkpoint_last.pt"


def generate_log(trained, folder, *arguments):
    """Runs fairseq-generate and returns its log and the BLEU line at its end."""
    data, checkpoint = trained
    fairseq_commands.run(
        "generate", data, "--user-dir", fairseq_commands.USER_DIR, "--path", checkpoint, "--cpu", "--beam", 5,
        "--gen-subset", SPLIT, "--results-path", folder, "--num-workers", 0, *arguments,
    )  # fmt: skip
    log = folder / f"generate-{SPLIT}.txt"
    return log, log.read_text().rstrip("\n").split("\n")[-1]


def as_fairseq_prints(bleu):
    precisions = "/".join(f"{precision:.1f}" for precision in bleu["precisions"])
    return (
        f"BLEU4 = {bleu['score']:.2f}, {precisions} (BP={bleu['bp']:.3f}, ratio={bleu['ratio']:.3f}, "
        f"syslen={bleu['hyp_len']}, reflen={bleu['ref_len']})"
    )


def test_bleu_is_the_one_that_fairseq_prints(trained, tmp_path, run_evaluate):
    log, closing = generate_log(trained, tmp_path / "words", "--remove-bpe")
    text = log.read_text()
    assert "<<unk>>" in text
    assert re.search(r"^H-.*<unk>", text, re.MULTILINE)
    outcome = run_evaluate("--generation-log", log)
    bleu = outcome.json["files"][0]["tokenized_bleu"]
    assert 20 < bleu["score"] < 95
    assert closing == f"Generate {SPLIT} with beam=5: {as_fairseq_prints(bleu)}"
    assert outcome.json["num_sentences"] == 24

    marked, closing = generate_log(trained, tmp_path / "subwords")
    assert "@@ " in marked.read_text()
    assert run_evaluate("--generation-log", marked).json["scores"] == outcome.json["scores"]
    of_subwords = run_evaluate("--generation-log", marked, "--post-process", "none").json["files"][0]["tokenized_bleu"]
    assert closing == f"Generate {SPLIT} with beam=5: {as_fairseq_prints(of_subwords)}"


def test_path_generates_and_scores(trained, tmp_path, run_evaluate):
    data, checkpoint = trained
    _, closing = generate_log(trained, tmp_path / "words", "--remove-bpe")
    outcome = run_evaluate(
        "--path", checkpoint, "--data", data, "--gen-subset", SPLIT, "--cpu", "--results-path", tmp_path / "kept",
        "--generate-arg=--num-workers=0", "--no-ter",
    )  # fmt: skip
    kept = tmp_path / "kept" / f"generate-{SPLIT}.txt"
    assert kept.read_text().rstrip("\n").endswith(closing)
    assert outcome.json["files"][0]["file"] == "checkpoint_last.pt"
    assert closing.endswith(as_fairseq_prints(outcome.json["files"][0]["tokenized_bleu"]))
    assert set(outcome.json["scores"]) == {"tokenized_bleu", "bleu", "chrf"}  # the language is that of the data
    assert outcome.json["seconds"]["generation"] < outcome.json["seconds"]["total"]
    options = outcome.json["options"]
    assert (options["source_lang"], options["target_lang"]) == ("de", "en")
    assert "beam" not in options


def test_command_has_every_setting_as_a_word_of_its_own(tmp_path):
    args = parse_flags(
        "evaluate", "--path", "a b.pt", "--data", "data $HOME", "--gen-subset", "test1", "--source-lang", "de",
        "--target-lang", "en", "--beam", "4", "--lenpen", "0.6", "--batch-size", "7", "--cpu",
        "--generate-arg=--fp16", "--generate-arg=--x=; rm",
    )  # fmt: skip
    assert make_command(args, tmp_path) == [
        sys.executable, fairseq_cli.generate.__file__, "data $HOME", "--user-dir", str(PACKAGE_FOLDER),
        "--path", "a b.pt", "--results-path", str(tmp_path), "--gen-subset", "test1", "--beam", "4",
        "--lenpen", "0.6", "--source-lang", "de", "--target-lang", "en",
        "--batch-size", "7", "--post-process", "subword_nmt", "--cpu", "--fp16", "--x=; rm",
    ]  # fmt: skip
    assert (PACKAGE_FOLDER / "cli.py").is_file()


@pytest.mark.parametrize(
    ("flags", "post_process"),
    [
        ([], "subword_nmt"),
        (["--post-process", "sentencepiece"], "sentencepiece"),
        (["--post-process", "none"], None),
        (["--length-unit", "subword"], None),
    ],
)
def test_flags_reach_fairseq(trained, monkeypatch, run_evaluate, write_log, flags, post_process):
    data, checkpoint = trained
    given = []
    log = write_log("log", ["a@@ b"], ["ab"], ["c@@ d"])

    def fake_generate(args, folder):
        given.append((make_command(args, folder), folder))
        assert folder.is_dir()
        return log

    monkeypatch.setattr("muse_plugin.evaluation.evaluate.generate", fake_generate)
    run_evaluate(
        "--path", f"{checkpoint}:other.pt", "--data", data, "--beam", "4", "--lenpen", "0", "--max-tokens", "99", *flags
    )
    ((command, folder),) = given
    assert command[2:] == [
        str(data), "--user-dir", str(PACKAGE_FOLDER), "--path", f"{checkpoint}:other.pt", "--results-path", str(folder),
        "--gen-subset", "test", "--beam", "4", "--lenpen", "0.0", "--source-lang", "de", "--target-lang", "en",
        "--max-tokens", "99", *(["--post-process", post_process] if post_process else []),
    ]  # fmt: skip
    assert not folder.exists()


def test_languages_come_from_the_names_of_files(tmp_path):
    assert infer_languages(tmp_path) == (None, None)
    (tmp_path / "test.de-en.de.idx").touch()
    assert infer_languages(tmp_path) == ("de", "en")


def test_failure_of_fairseq_is_reported_with_its_command(trained, tmp_path, monkeypatch):
    data, checkpoint = trained
    monkeypatch.setattr(generation, "make_command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    args = parse_flags("evaluate", "--path", checkpoint, "--data", data)
    with pytest.raises(
        ValueError, match=r"exit code 0, but got 3; its own message is above\. The command was: .*SystemExit"
    ):
        generation.generate(args, tmp_path)
    monkeypatch.setattr(generation, "make_command", lambda *_: [sys.executable, "-c", ""])
    with pytest.raises(FileNotFoundError, match=r"fairseq-generate must write .*generate-test.txt, but did not"):
        generation.generate(args, tmp_path)


@pytest.mark.parametrize("place", ["data", "checkpoints"])
@pytest.mark.parametrize(("subwords", "flags", "score"), [
    ("sentencepiece", [], 100), ("sentencepiece", ["--post-process", "none"], 0), ("bpe", [], 0),
])  # fmt: skip
def test_pieces_are_joined_as_the_text_pipeline_says(
    tmp_path, monkeypatch, run_evaluate, write_log, place, subwords, flags, score
):
    log = write_log("log", ["▁the ▁ca t ▁sat ▁down ▁here"], ["▁the ▁cat ▁sat ▁down ▁here"])
    for folder in ("data", "checkpoints"):
        (tmp_path / folder).mkdir()
    lines = ["the cat sat down here", "the cat came", "here it sat down"] * 3
    TextPipeline.learn("de", "en", lines, lines, 30, subwords=subwords).save(tmp_path / place)
    given = []

    def fake_generate(args, folder):
        given.append(make_command(args, folder))
        return log

    monkeypatch.setattr("muse_plugin.evaluation.evaluate.generate", fake_generate)
    outcome = run_evaluate(
        "--path", tmp_path / "checkpoints", "--data", tmp_path / "data", "--target-lang", "en", "--no-ter", *flags
    )
    assert round(outcome.json["scores"]["tokenized_bleu"]["mean"]) == score
    assert ("sentencepiece" in given[0]) == (score == 100)


def test_folders_stand_for_their_checkpoints(trained, tmp_path, monkeypatch, capsys):
    data, checkpoint = trained
    commands = []
    monkeypatch.setattr(
        generation.subprocess, "run", lambda command, **_: commands.append(command) or SimpleNamespace(returncode=0)
    )
    (tmp_path / "generate-test.txt").touch()
    args = parse_flags("evaluate", "--path", f"{checkpoint.parent}:{checkpoint}", "--data", data)
    generation.generate(args, tmp_path)
    assert f"{checkpoint}:{checkpoint}" in commands[0]
    assert capsys.readouterr().err == f"using checkpoint_last.pt in the folder {checkpoint.parent}\n"
