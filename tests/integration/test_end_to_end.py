"""One way from raw text to translations, and one to labels, by the commands that a user gives."""

import io
import json

from sacremoses import MosesDetokenizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from support.fairseq_commands import SMALL, generate, run, train

from muse_plugin_command import cli

GERMAN = ["Wo ist der Bahnhof?", "Der Zug ist nicht da.", "Ich sehe den Bahnhof nicht.", "Wo ist der Zug?"] * 6
ENGLISH = ["Where is the station?", "The train isn't there.", "I don't see the station.", "Where is the train?"] * 6
TEXTS = [f"{label}\tthis {word} was {word} {n}" for n in range(12) for label, word in (("0", "film"), ("1", "book"))]


def test_a_model_trained_on_data_of_fairseq_preprocess_translates_raw_text(tmp_path, capsys):
    codes, run_folder = tmp_path / "codes", tmp_path / "run"
    moses = {lang: MosesTokenizer(lang=lang) for lang in ("de", "en")}
    words = {
        lang: [moses[lang].tokenize(line, return_str=True) for line in lines]
        for lang, lines in (("de", GERMAN), ("en", ENGLISH))
    }
    with codes.open("w", encoding="utf-8") as file:
        learn_bpe(io.StringIO("\n".join(words["de"] + words["en"])), file, 30)
    bpe = BPE(io.StringIO(codes.read_text(encoding="utf-8")))
    for lang, lines in words.items():
        (tmp_path / f"cut.{lang}").write_text("".join(bpe.process_line(line) + "\n" for line in lines))
    prefixes = [part for split in ("train", "valid", "test") for part in (f"--{split}pref", tmp_path / "cut")]
    run("preprocess", "-s", "de", "-t", "en", *prefixes, "--destdir", tmp_path / "bin", "--joined-dictionary")
    sizes = [*SMALL, "--max-target-positions", 24]  # which ends what so short a training has not taught to end
    train(tmp_path / "bin", run_folder, "muse", *sizes, "--max-epoch", 3, "--task", "translation")

    raw, translated = tmp_path / "in.txt", tmp_path / "out.txt"
    raw.write_text("".join(f"{line}\n" for line in GERMAN))
    translate = ["translate", "--path", run_folder, "--input", raw, "--output", translated, "--cpu"]
    assert cli.main([*map(str, translate)]) == 2
    assert "'muse-plugin text-pipeline' makes one" in capsys.readouterr().err
    words = ["text-pipeline", "--source-lang", "de", "--target-lang", "en", "--bpe-codes", codes]
    assert cli.main([*map(str, words), "--data", str(tmp_path / "bin"), "--output", str(run_folder)]) == 0
    assert cli.main([*map(str, translate)]) == 0
    hypotheses = generate(tmp_path / "bin", run_folder / "checkpoint_best.pt", "--remove-bpe", "--beam", 5)
    detokenizer = MosesDetokenizer(lang="en")
    expected = [detokenizer.detokenize(hypotheses[i].split()) for i in range(len(GERMAN))]
    assert translated.read_text().split("\n") == [*expected, ""]
    assert any(expected)


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
