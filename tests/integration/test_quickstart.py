"""The quickstart from its bundled sentences to translations: what is bundled, and the whole script on a small part."""

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from support.helpers import REPOSITORY, assert_refused, load_program, recipe_environment, run_command
from support.recipes import WRITE_DOWN, parse_call, read_calls, run_recipe, run_written_down

QUICKSTART = REPOSITORY / "examples" / "quickstart"
COLLECTION = REPOSITORY.parent / "shared" / "data" / "tatoeba-en-de" / "deu.txt.gz"
SIZES = {"train": 72811, "valid": 500, "test": 1000}


@pytest.fixture(scope="module")
def selection():
    return load_program(QUICKSTART / "select_sentences.py")


@pytest.fixture(scope="module")
def bundle():
    return {
        name: gzip.decompress((QUICKSTART / "data" / f"deu-eng.{name}.tsv.gz").read_bytes()).decode("utf-8")
        for name in SIZES
    }


@pytest.fixture(scope="module")
def pairs(bundle):
    return {name: [tuple(line.split("\t")) for line in text.split("\n")[:-1]] for name, text in bundle.items()}


def test_bundle_has_the_stated_sizes_and_its_attribution(bundle, pairs):
    assert {name: len(part) for name, part in pairs.items()} == SIZES
    assert all(len(pair) == 2 and all(pair) for part in pairs.values() for pair in part)
    assert not any(character in text for text in bundle.values() for character in "\r\u2028\x85")
    assert sum(path.stat().st_size for path in (QUICKSTART / "data").glob("*.gz")) < 1_500_000
    attribution = (QUICKSTART / "data" / "ATTRIBUTION.txt").read_text()
    for fact in ("www.manythings.org/anki", "tatoeba.org", "CC BY 2.0", "2018-05-13", "72,811", "1,000", "500"):
        assert fact in attribution


@pytest.mark.parametrize("column", [0, 1], ids=["german", "english"])
def test_no_sentence_is_in_two_parts_even_with_other_case_or_punctuation(selection, pairs, column):
    keys = {name: [selection.key_of(pair[column]) for pair in part] for name, part in pairs.items()}
    assert all(all(key) for key in keys.values())
    for held_out in ("valid", "test"):
        assert max(Counter(keys[held_out]).values()) == 1
        assert not set(keys[held_out]) & set(keys["train"])
    assert not set(keys["valid"]) & set(keys["test"])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("select_sentences", ["--input", "nowhere.gz"]),
        ("prepare_data", ["--bundle", "nowhere", "--output", "out", "--pipeline", "model"]),
        ("report", ["--run-dir", "nowhere"]),
    ],
)
def test_a_file_that_is_missing_is_named(tmp_path, program, words):
    done = run_command([sys.executable, str(QUICKSTART / f"{program}.py"), *words], tmp_path)
    assert_refused(done, f"{program}: error: ", "nowhere")


def test_family_holds_all_pairs_that_share_a_sentence(selection):
    pairs = [("Ja, gut.", "Yes, good."), ("ja gut", "Well, fine."), ("Fein.", "Well fine!"), ("Nein.", "No.")]
    families = selection.group_families(pairs)
    assert sorted(map(len, families)) == [1, 3]


def test_split_gives_an_error_when_there_are_too_few_sentences(selection):
    with pytest.raises(ValueError, match="more than 3 families of sentences, but got 1"):
        selection.split_families([[("Ja.", "Yes.")]], seed=1, num_test=2, num_valid=1, num_train=10)


def test_selection_gives_an_error_when_the_input_has_one_column(selection, tmp_path):
    (tmp_path / "deu.txt").write_text("Hello.\tHallo.\nBye.\n")
    with pytest.raises(ValueError, match=r"English TAB German, but line 2 of .*deu\.txt is 'Bye\.'"):
        selection.read_pairs(tmp_path / "deu.txt")


def test_bundle_is_what_the_script_selects(selection, bundle):
    if not COLLECTION.is_file():
        pytest.skip(f"needs the original collection, {COLLECTION}")
    args = selection.build_parser().parse_args(["--input", str(COLLECTION)])
    sizes = {"train": args.train, "valid": args.valid, "test": args.test}
    selected = selection.select(args.input, args.seed, args.min_count, args.max_words, sizes)
    assert {name: text.decode("utf-8") for name, text in selected.items()} == bundle


def run_script(run_dir, *arguments, **variables):
    environment = recipe_environment(FAST_TRIAL="1", RUN_DIR=str(run_dir), **variables)
    command = ["bash", str(QUICKSTART / "run.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=run_dir.parent, timeout=300)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """The run folder and the output of a trial run; its path has a space in it."""
    run_dir = tmp_path_factory.mktemp("trial") / "run dir"
    finished = run_script(run_dir, warm=False)  # every step in a new process, as for a user
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return run_dir, finished.stdout


def test_trial_reports_scores_translations_and_the_next_command(trial):
    run_dir, output = trial
    result = json.loads((run_dir / "result.json").read_text())
    assert result["test_sentences"] == 60
    assert result["passed"] is None
    assert result["versions"]["torch"]
    assert set(result["seconds"]) == {"prepare", "binarise", "train", "average", "generate"}
    assert "seed=1 updates=4" in result["settings"]
    assert f"BLEU {result['bleu']:.1f}   ({result['bleu_signature']})" in output
    assert "chrF " in output
    assert output.count("  translation  ") == 10
    assert "No verdict on the score" in output
    assert f"muse-plugin translate --path '{run_dir / 'model'}'" in output
    assert len((run_dir / "translations.en").read_text().split("\n")) == 61


@pytest.mark.parametrize(
    ("low", "high", "code", "word"), [(0, 100, 0, "PASS: BLEU"), (99, 100, 1, "OUTSIDE: BLEU"), (-2, -1, 1, "OUTSIDE")]
)
def test_report_judges_the_score(trial, tmp_path, monkeypatch, capsys, low, high, code, word):
    run_dir = shutil.copytree(trial[0], tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["report.py", "--run-dir", str(run_dir), "--expect", str(low), str(high)])
    assert load_program(QUICKSTART / "report.py").main() == code
    assert f"\n{word}" in capsys.readouterr().out
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["passed"], result["expected_bleu"]) == (code == 0, [low, high])


def test_trial_with_sentencepiece_gives_a_model_for_raw_text_and_for_fairseq(tmp_path):
    run_dir = tmp_path / "run"
    finished = run_script(run_dir, SUBWORDS="sentencepiece", MERGES="250")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "subwords=sentencepiece" in json.loads((run_dir / "result.json").read_text())["settings"]
    model = run_dir / "model"
    pieces = (run_dir / "text" / "pieces.txt").read_text(encoding="utf-8")
    assert (model / "dict.en.txt").read_text(encoding="utf-8").startswith(pieces)
    assert "\u2581" not in (run_dir / "translations.en").read_text(encoding="utf-8")
    environment = recipe_environment()
    command = ["muse-plugin", "translate", "--path", str(model), "--cpu"]
    done = subprocess.run(
        command, input="Tom ist hier.\n", capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    command = ["fairseq-interactive", str(run_dir / "bin"), "--user-dir", str(REPOSITORY / "muse_plugin"), "--cpu"]
    command += ["--path", str(model / "checkpoint_avg.pt"), "--bpe", "sentencepiece", "--max-len-b", "20"]
    command += ["--sentencepiece-model", str(model / "sentencepiece.model"), "--remove-bpe", "sentencepiece"]
    again = subprocess.run(
        command, input="Tom ist hier.\n", capture_output=True, text=True, env=environment, timeout=300
    )
    assert again.returncode == 0, again.stderr
    assert "S-0\tTom ist hier.\n" in again.stdout  # pieces joined again
    (detokenized,) = [line for line in again.stdout.split("\n") if line.startswith("D-0\t")]
    assert "\u2581" not in detokenized


def test_wrong_subwords_are_named(tmp_path):
    finished = run_script(tmp_path / "run", SUBWORDS="wordpiece")
    assert finished.returncode == 2
    assert (
        "SUBWORDS must be bpe, sentencepiece, sentencepiece:unigram or sentencepiece:bpe, but is 'wordpiece'."
        in finished.stderr
    )


@pytest.mark.parametrize(("updates", "interval"), [(None, 100), (200, 66), (3, 1)])
def test_a_short_training_saves_as_many_checkpoints_as_are_averaged(tmp_path, updates, interval):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for step in ("prepare", "binarise", "average", "generate"):
        (run_dir / f".{step}.done").touch()
    settings = {"RUN_DIR": str(run_dir)} | ({} if updates is None else {"UPDATES": str(updates)})
    programs = {"fairseq-train": WRITE_DOWN, "python": "exit 0"}
    done = run_written_down(tmp_path, "quickstart", "run", programs=programs, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (args,) = map(parse_call, read_calls(tmp_path))
    assert (args.save_interval_updates, args.keep_interval_updates) == (interval, 3)


def test_fewer_updates_than_averaged_checkpoints_are_refused(tmp_path):
    done = run_recipe("quickstart", "run", RUN_DIR=str(tmp_path / "run"), UPDATES="2")
    assert_refused(done, "UPDATES must be at least 3, for as many checkpoints are averaged, but is 2.")
    done = run_recipe("quickstart", "run", RUN_DIR=str(tmp_path / "run"), UPDATES="1", TRIAL="1")
    assert_refused(done, "UPDATES must be at least 2")  # a trial averages two


def test_second_run_does_nothing_twice(trial):
    run_dir, _ = trial
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.pt")}
    finished = run_script(run_dir)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("done before") == 5
    assert before == {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.pt")}


def test_run_refuses_a_folder_with_other_settings(trial):
    finished = run_script(trial[0], SEED="2")
    assert_refused(finished, "was made with other settings", "delete that folder or choose another one by RUN_DIR=")


def test_report_gives_an_error_when_a_sentence_was_not_translated(tmp_path, monkeypatch):
    for name in ("text", "generated"):
        (tmp_path / name).mkdir()
    for language in ("de", "en"):
        (tmp_path / "text" / f"test.raw.{language}").write_text("a\nb\nc\n")
    (tmp_path / "generated" / "generate-test.txt").write_text("H-0\t-0.5\tyes\nH-2\t-0.5\t\n")
    monkeypatch.setattr(sys, "argv", ["report.py", "--run-dir", str(tmp_path)])
    with pytest.raises(ValueError, match=r"the output of fairseq-generate must hold the 3 .* lacks 1 .* \(ids 1\)"):
        load_program(QUICKSTART / "report.py").main()
