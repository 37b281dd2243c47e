"""One way from raw text to translations, and one to labels, by the commands that a user gives."""

import json

import pytest
from support.fairseq_commands import SMALL, generate, run, train

from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin_command import cli

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist nicht da.", "Ich sehe den Bahnhof nicht.", "Wo ist der Zug?"] * 6
ENGLISH = ["Where is the station?", "The train isn't there.", "I don't see the station.", "Where is the train?"] * 6
TEXTS = [f"{label}\tthis {word} was {word} {n}" for n in range(12) for label, word in (("0", "film"), ("1", "book"))]


@pytest.fixture
def text(tmp_path):
    """Raw sentences made into subwords and binarised; returns the folder."""
    pipeline = TextPipeline.learn("de", "en", GERMAN, ENGLISH, size=60)
    folder = tmp_path / "data"
    pipeline.save(folder)
    for lang, encode, lines in (("de", pipeline.encode_source, GERMAN), ("en", pipeline.encode_target, ENGLISH)):
        for split in ("train", "valid", "test"):
            (tmp_path / f"{split}.{lang}").write_text("".join(f"{encode(line)}\n" for line in lines))
    prefixes = [f"--{split}pref={tmp_path / split}" for split in ("train", "valid", "test")]
    words = ["-s", "de", "-t", "en", "--destdir", folder, "--joined-dictionary", "--workers", 1]
    run("preprocess", *prefixes, *words)
    return folder


def test_raw_text_is_trained_on_averaged_and_translated(text, tmp_path):
    train(text, tmp_path / "run", "muse", *SMALL, "--max-epoch", 3, "--task", "translation")
    average = text / "checkpoint_avg.pt"
    words = ["average", "--inputs", tmp_path / "run", "--num-epoch-checkpoints", 2, "--output", average]
    assert cli.main([*map(str, words)]) == 0
    assert sorted(generate(text, average)) == list(range(len(GERMAN)))
    (tmp_path / "in.txt").write_text("Wo ist der Zug?\n\nDer Bahnhof ist nicht da.\n")
    words = ["translate", "--path", text, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--cpu"]
    assert cli.main([*map(str, words)]) == 0
    first, second, third, rest = (tmp_path / "out.txt").read_text().split("\n")
    assert (second, rest) == ("", "")
    assert first
    assert third


def test_labelled_text_is_prepared_trained_on_and_predicted(tmp_path):
    source, data = tmp_path / "text.tsv", tmp_path / "data"
    source.write_text("".join(f"{line}\n" for line in TEXTS))
    words = ["prepare-text", "--train", source, "--valid", source, "--output", data]
    assert cli.main([*map(str, words)]) == 0
    kind = "muse_sentence_classification"
    sizes = ["--word-embed-dim=12", "--encoder-embed-dim=16", "--classifier-hidden-dim=16", "--encoder-hidden-size=8"]
    words = ["--task", kind, "--criterion", kind, *sizes, "--batch-size", 6, "--max-epoch", 8, "--dropout", 0]
    train(data, tmp_path / "run", "sentence_bigru", *words, "--no-epoch-checkpoints")
    predict = ["predict", "--path", tmp_path / "run", "--input", tmp_path / "in.txt", "--cpu", "--format", "jsonl"]
    (tmp_path / "in.txt").write_text("this film was film\nthis book was book\n")
    assert cli.main([*map(str, predict), "--output", str(tmp_path / "out.jsonl")]) == 0
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["label"] for answer in answers] == ["0", "1"]
