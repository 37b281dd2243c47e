"""The recipe of documents: its Python programs on made-up files, and the commands that its scripts run."""

import gzip
import importlib
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile

import pytest
import torch
from support.helpers import REPOSITORY, assert_refused, parse_flags
from support.recipes import WRITE_DOWN, mark_prepared, parse_call, read_calls, read_flag, run_main, run_written_down

import muse_plugin  # noqa: F401  (registers the models)

RECIPE = REPOSITORY / "examples" / "documents"
NAMES = ("lama_context", "lama", "lama_encoder", "structured_attention", "bigru", "cnn", "transformer", "average")
MODELS = [name if name.startswith("lama") else f"sentence_{name}" for name in NAMES]


@pytest.fixture
def load(monkeypatch):
    """Imports a program of the recipe as it is when it is run: its folder is the first to look in."""
    monkeypatch.syspath_prepend(str(RECIPE))
    names = (
        "documents",
        "folds",
        "results",
        "compare",
        "plot_heads",
        "plot_parameters",
        "networks",
        "parameters",
        "speed",
    )
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


# ---- documents.py -------------------------------------------------------------------------------------------------


def test_every_form_becomes_labels_and_texts(tmp_path, monkeypatch, capsys, load):
    documents = load("documents")
    (tmp_path / "r8").write_text("Class\tExample\nearn\tnet profit \ngrain\twheat\n", encoding="utf-8")
    (tmp_path / "news.gz").write_bytes(gzip.compress("TITLE\tCATEGORY\nA film  ...\te\nStocks “up”\tb\n".encode()))
    (tmp_path / "imdb").write_text("0\t2\t7\tbad<br /><br/>film\tindeed\n1\t9\t8\tgood\u0085one\n", encoding="utf-8")
    expected = {
        "r8": "earn\tnet profit\ngrain\twheat\n",
        "news": "e\tA film  ...\nb\tStocks “up”\n",
        "imdb": "0\tbad  film indeed\n1\tgood\u0085one\n",
    }
    for form, text in expected.items():
        assert run_main(monkeypatch, documents, form, tmp_path / form, "--output", tmp_path / "out") == 0
        assert (tmp_path / "out").read_text(encoding="utf-8") == text
    assert capsys.readouterr().out.splitlines()[0] == "out: 2 documents; earn 1, grain 1"


def test_reviews_are_read_from_the_archive_by_class_and_number(tmp_path, monkeypatch, load):
    documents = load("documents")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("train/pos/10_9", "train/pos/9_8", "train/neg/2_1", "train/unsup/1_0", "test/neg/1_3"):
            content = f"text of {name}<br />".encode()
            member = tarfile.TarInfo(f"aclImdb/{name}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    flags = (tmp_path / "a.tar.gz", "--output", tmp_path / "out")
    assert run_main(monkeypatch, documents, "imdb-archive-train", *flags) == 0
    assert (tmp_path / "out").read_text().splitlines() == [
        "0\ttext of train/neg/2_1",
        "1\ttext of train/pos/9_8",
        "1\ttext of train/pos/10_9",
    ]
    assert run_main(monkeypatch, documents, "imdb-archive-train", *flags, "--per-class", "1") == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 2


def test_what_is_no_review_is_not_read_from_the_archive(tmp_path, monkeypatch, capsys, load):
    documents = load("documents")
    monkeypatch.setattr(documents, "LONGEST_REVIEW", 10)
    folder, link = tarfile.TarInfo("aclImdb/train/pos/1_9.txt"), tarfile.TarInfo("aclImdb/train/pos/2_9.txt")
    folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, "/etc/hostname"
    review = tarfile.TarInfo("aclImdb/train/pos/3_9.txt")
    output = tmp_path / "out"
    for size, code in ((10, 0), (11, 2)):
        review.size = size
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            for member in (folder, link, review):
                archive.addfile(member, io.BytesIO(b"x" * member.size))
        output.unlink(missing_ok=True)
        arguments = ("imdb-archive-train", tmp_path / "a.tar.gz", "--output", output)
        assert run_main(monkeypatch, documents, *arguments) == code
        assert output.exists() == (code == 0)
        if code == 0:
            assert output.read_text() == "1\txxxxxxxxxx\n"
    assert "3_9.txt must have at most 10 bytes, but has 11" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "content", "sentence"),
    [
        ("r8", b"earn\tnet\n", "line 1: must be 'Class\\tExample', but is 'earn\\tnet'."),
        ("news", b"TITLE\tCATEGORY\nno tab\n", "line 2: must have 2 columns, but has 1: 'no tab'."),
        ("imdb", b"0\t1\tx\n", "line 1: must have 4 columns, but has 3"),
        ("r8", b"Class\tExample\nearn\t\xff\n", "line 2: must be UTF-8, but is not"),
        ("imdb-archive-test", b"no archive", "must be a whole .tar.gz archive, but is not"),
        (
            "imdb-archive-test",
            lzma.compress(bytes(range(256)) * 400)[:-100],
            "must be a whole .tar.gz archive, but is not",
        ),
        ("r8", None, "but there is none."),
        ("imdb-archive-test", None, "but there is none."),
    ],
)
def test_files_of_another_form_are_refused(tmp_path, monkeypatch, capsys, load, form, content, sentence):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    output = tmp_path / "out"
    assert run_main(monkeypatch, load("documents"), form, tmp_path / "file", "--output", output) == 2
    assert sentence in capsys.readouterr().err
    assert not output.exists()
    assert not output.with_name("out.part").exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_gz_file_is_refused(tmp_path, monkeypatch, capsys, load, damage):
    text = "".join(f"earn\t{number} net\n" for number in range(9_000))
    packed = gzip.compress(f"Class\tExample\n{text}".encode(), mtime=0)
    half = len(packed) // 2
    damaged = {"cut": packed[:half], "changed": packed[:half] + b"\xff" * 99 + packed[half + 99 :], "other": b"earn"}
    (tmp_path / "file.gz").write_bytes(damaged[damage])
    output = tmp_path / "out"
    assert run_main(monkeypatch, load("documents"), "r8", tmp_path / "file", "--output", output) == 2
    assert f"{tmp_path / 'file.gz'} must be a whole .gz file, but is not (" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file.gz"]


# ---- folds.py -----------------------------------------------------------------------------------------------------


def test_folds_part_the_documents_with_their_classes_and_a_seed_gives_the_same_again(tmp_path, monkeypatch, load):
    folds = load("folds")
    lines = [f"{'aab'[i % 3]}\ttext {i}" for i in range(60)]
    (tmp_path / "one").write_text("\n".join(lines[:40]) + "\n")
    (tmp_path / "two").write_text("\n".join(lines[40:]) + "\n")
    flags = (tmp_path / "one", tmp_path / "two", "--folds", 3, "--output")
    seen = {}
    for name, seed in (("x", 1), ("y", 1), ("z", 2)):
        assert run_main(monkeypatch, folds, *flags, tmp_path / name, "--seed", seed) == 0
        parts = []
        for fold in (1, 2, 3):
            folder = tmp_path / name / f"fold{fold}" / "text"
            train, valid = ((folder / f"{split}.txt").read_text().splitlines() for split in ("train", "valid"))
            assert sorted(train + valid) == sorted(lines)
            assert len(valid) == 20
            assert 13 <= sum(line.startswith("a") for line in valid) <= 14
            parts.append(valid)
        assert sorted(line for part in parts for line in part) == sorted(lines)
        seen[name] = parts
    assert seen["x"] == seen["y"] != seen["z"]


def test_folds_do_not_depend_on_pythons_hash(load):
    folds = load("folds")
    expected = folds.assign(list("abcab" * 6), 3, 5)
    code = (
        f"import sys; sys.path.insert(0, {str(RECIPE)!r}); import folds; print(folds.assign(list('abcab' * 6), 3, 5))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str(expected)


def test_too_few_folds_or_documents_are_refused(tmp_path, monkeypatch, capsys, load):
    folds = load("folds")
    (tmp_path / "a").write_text("x\t1\nx\t2\ny\t3\n")
    assert run_main(monkeypatch, folds, tmp_path / "a", "--folds", 1, "--output", tmp_path) == 2
    assert "--folds must be at least 2, but got 1." in capsys.readouterr().err
    (tmp_path / "cr").write_bytes(b"x\ta\rb\nx\tc\n")
    assert folds.read([tmp_path / "cr"]) == ["x\ta\rb", "x\tc"]  # only a line feed ends a line
    (tmp_path / "latin").write_bytes(b"x\t1\nx\t\xe9\n")
    assert run_main(monkeypatch, folds, tmp_path / "latin", "--folds", 2, "--output", tmp_path) == 2
    assert "latin, line 2: must be UTF-8, but is not" in capsys.readouterr().err
    (tmp_path / "bare").write_text("x\t1\nx\n")
    assert run_main(monkeypatch, folds, tmp_path / "bare", "--folds", 2, "--output", tmp_path) == 2
    assert "bare, line 2: must be a label, a tab and a text, but is 'x'." in capsys.readouterr().err
    assert run_main(monkeypatch, folds, tmp_path / "a", "--folds", 2, "--output", tmp_path) == 2
    assert "a document for each of the 2 folds, but 'y' has 1; use fewer folds." in capsys.readouterr().err


# ---- compare.py, plot_heads.py, plot_parameters.py ------------------------------------------------------------------


def write_result(folder, model, fold, test_set, accuracy, **settings):
    record = {
        "scores": {"accuracy": {"mean": accuracy}},
        "settings": {
            **{"model": model, "heads": "", "disagreement": "none", "seed": "1", "data_fold": str(fold)},
            **{"test_set": test_set, "data_dataset": "r8", "lr": "0.05", "seconds_train": str(accuracy), "warmup": "0"},
            **settings,
        },
    }
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(record))
    return path


def test_the_table_has_means_over_folds_the_best_by_validation_and_the_published_number(
    tmp_path, monkeypatch, capsys, load
):
    files = tmp_path / "results"
    files.mkdir()
    for fold, valid, test in ((1, 90.0, 91.0), (2, 94.0, 92.0), (3, 92.0, 96.0)):
        write_result(files, "lama", fold, "valid", valid)
        write_result(files, "lama", fold, "test", test)
    for test_set in ("valid", "test"):
        write_result(files, "lama_context", 1, test_set, 80.0, disagreement="emb")
        write_result(files, "lama", 1, test_set, 70.0, heads="5")
        write_result(files, "sentence_transformer", 1, test_set, 60.0, warmup="9")
        write_result(files, "lama", 1, test_set, 65.0, optimizer="adam", lr="0.001", warmup="100")
        write_result(files, "lama", 1, test_set, 64.0, word_dropout="0.3", hidden="0", decay="0.2")
    flags = ("--published", RECIPE / "published.tsv", "--output", tmp_path / "R.md")
    assert run_main(monkeypatch, load("compare"), *sorted(files.iterdir()), *flags) == 0
    rows = (tmp_path / "R.md").read_text().splitlines()[2:]
    assert sorted(rows) == [
        "| lama | 3 | 92.00 ± 2.00 | 93.00 ± 2.65 | 92.00 | 96.5 |",
        "| lama, 5 heads | 1 | 70.00 | 70.00 | 70.00 |  |",
        "| lama, OPTIMIZER=adam | 1 | 65.00 | 65.00 | 65.00 | 96.5 |",
        "| lama, WORD_DROPOUT=0.3, HIDDEN=0, DECAY=0.2 | 1 | 64.00 | 64.00 | 64.00 | 96.5 |",
        "| lama_context-emb | 1 | 80.00 | 80.00 | 80.00 | 83.1 |",
        "| sentence_transformer, WARMUP=9 | 1 | 60.00 | 60.00 | 60.00 | 90.1 |",
    ]
    kept = tmp_path / "runs.jsonl"
    assert run_main(monkeypatch, load("compare"), *sorted(files.iterdir()), *flags, "--keep", kept) == 0
    assert run_main(monkeypatch, load("compare"), kept, *flags) == 0
    assert (tmp_path / "R.md").read_text().splitlines()[2:] == rows
    other = write_result(files, "lama", 1, "test", 80.0, batch="16")
    assert run_main(monkeypatch, load("compare"), files / "0.json", other, *flags) == 2
    assert "differ in batch; compare those of one command." in capsys.readouterr().err
    assert run_main(monkeypatch, load("compare"), files / "0.json", *flags) == 2
    assert "lama, fold 1, seed 1 lacks test; run evaluate.sh again." in capsys.readouterr().err
    (files / "bad.json").write_text("{}")
    assert run_main(monkeypatch, load("compare"), files / "bad.json", *flags) == 2
    assert "bad.json must be written by examples/documents/evaluate.sh" in capsys.readouterr().err


@pytest.mark.parametrize("runs", ["runs.jsonl", "runs_news.jsonl", "runs_imdb.jsonl"])
def test_the_tables_of_results_are_what_their_runs_give(runs, load):
    compare = load("compare")
    table = compare.make_table(compare.read_results([RECIPE / runs]), {})
    rows = [line.removesuffix(" |  |") for line in table.splitlines()[2:] if line.startswith("| ")]
    assert rows
    shown = (RECIPE / "RESULTS.md").read_text(encoding="utf-8")
    assert [row for row in rows if row not in shown] == []


def test_the_published_numbers_are_those_of_the_paper(load):
    published = load("compare").read_published(RECIPE / "published.tsv")
    assert {name for name, _ in published} == {*MODELS, "lama_context-penal", "lama_context-emb"}
    assert [published["lama_context", dataset] for dataset in ("news", "r8", "imdb")] == ["92.3", "97.3", "90.0"]
    assert published["lama_encoder", "r8"] == "93.9"
    assert ("lama_encoder", "news") not in published


def test_the_curve_of_heads_is_drawn_with_a_table(tmp_path, monkeypatch, capsys, load):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    files = []
    for heads, runs in ((1, ((70.0, 69.0), (72.0,))), (15, ((80.0, 90.0, 88.0), (79.0, 91.0)))):
        for seed, accuracies in enumerate(runs):
            folder = tmp_path / f"{heads}-{seed}" / "results"
            folder.mkdir(parents=True)
            files.append(write_result(folder, "lama", 0, "valid", max(accuracies), heads=str(heads), seed=str(seed)))
            write_log(folder.parent, accuracies)
    plot_heads = load("plot_heads")
    assert plot_heads.collect(files)["lama"][15] == [[80.0, 90.0, 88.0], [79.0, 91.0]]
    flags = ("--table", tmp_path / "HEADS.md", "--output", tmp_path / "heads.svg")
    assert run_main(monkeypatch, plot_heads, *files, *flags) == 0
    assert (tmp_path / "HEADS.md").read_text().splitlines() == [
        "| heads | lama |",
        "|--:|--:|",
        "| 1 | 71.00 ± 1.41 |",
        "| 15 | 90.50 ± 0.71 |",
    ]
    assert "accuracy on validation documents" in (tmp_path / "heads.svg").read_text()
    write_log(files[0].parents[1], ())
    assert run_main(monkeypatch, plot_heads, *files, *flags) == 2
    assert "train.log must have a validation after every epoch, but has none; train again." in capsys.readouterr().err
    without = write_result(files[0].parent, "lama", 0, "valid", 90.0)
    assert run_main(monkeypatch, plot_heads, without, *flags) == 2
    assert "results must be of runs with HEADS, but one of lama is not" in capsys.readouterr().err


def test_accuracy_is_drawn_against_parameters(tmp_path, monkeypatch, capsys, load):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    files = tmp_path / "results"
    files.mkdir()
    for fold, parameters in ((1, 2_000_000), (2, 3_000_000)):
        write_result(files, "lama", fold, "test", 90.0, parameters=str(parameters))
        write_result(files, "lama", fold, "valid", 90.0, parameters="9")
    write_result(files, "lama", 1, "test", 80.0, parameters="1000", heads="5")
    write_result(files, "linear", 1, "test", 80.0)
    plot_parameters = load("plot_parameters")
    rows = plot_parameters.collect(load("results").read_results(sorted(files.iterdir())))
    assert {label: len(results) for label, results in rows.items()} == {"lama": 2, "lama, 5 heads": 1}
    flags = ("--output", tmp_path / "parameters.svg")
    assert run_main(monkeypatch, plot_parameters, *sorted(files.iterdir()), *flags) == 0
    assert capsys.readouterr().out.splitlines() == ["lama: 2,500,000 parameters", "lama, 5 heads: 1,000 parameters"]
    figure = (tmp_path / "parameters.svg").read_text()
    assert all(f"<!-- {name}" in figure for name in ("lama", "parameters, millions", "test accuracy, r8"))
    assert run_main(monkeypatch, plot_parameters, files / "1.json", *flags) == 2
    assert "must be of test documents and of networks, but none are; give" in capsys.readouterr().err


def write_log(folder, accuracies):
    lines = ["epoch 001 | loss 1.0 | num_updates 4"]
    for epoch, accuracy in enumerate(accuracies, start=1):
        lines.append(f"epoch {epoch:03} | valid on 'valid' subset | accuracy {accuracy} | num_updates {4 * epoch}")
    (folder / "train.log").write_text("\n".join(lines) + "\n")


# ---- parameters.py, speed.py --------------------------------------------------------------------------------------


def test_the_table_of_parameters_grows_by_1024_per_head_and_the_transformer_does_not(monkeypatch, capsys, load):
    assert run_main(monkeypatch, load("parameters"), "--words", 20, "--classes", 3) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [int(row[0]) for row in rows] == [2, 4, 8, 16, 32, 64]
    assert [int(row[2].replace(",", "")) for row in rows] == [1_024 * (m - 2) for m in (2, 4, 8, 16, 32, 64)]
    assert len({tuple(row[7:]) for row in rows}) == 1
    assert run_main(monkeypatch, load("parameters"), "--words", 4) == 2
    assert "--words must be at least 5 and --classes at least 2, but got 4 and 5." in capsys.readouterr().err


def test_speed_writes_seconds_per_epoch_and_a_figure(tmp_path, monkeypatch, capsys, load):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    speed = load("speed")
    monkeypatch.setattr(speed, "time_batches", lambda name, length, batch, repeats, device: length / 1000)
    assert run_main(monkeypatch, speed, "--output", tmp_path, "--lengths", 50, 100, "--documents", 65) == 0
    record = json.loads((tmp_path / "speed.json").read_text())
    assert record["seconds_per_epoch"]["lama_encoder"] == pytest.approx({"50": 0.15, "100": 0.3})  # three batches
    assert record["versions"]["torch"]
    assert "words of a document" in (tmp_path / "speed.svg").read_text()
    assert run_main(monkeypatch, speed, "--output", tmp_path, "--repeats", 0) == 2
    assert "--repeats must be at least 1, but got 0." in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run_main(monkeypatch, speed, "--output", tmp_path, "--device", "cuda") == 2
    assert "--device cuda needs a GPU that torch sees, but there is none" in capsys.readouterr().err


def test_speed_times_whole_updates_of_every_encoder(monkeypatch, load):
    speed, networks = load("speed"), load("networks")
    build, built = networks.build, []

    def keep(*arguments, **flags):
        model = build(*arguments, **flags)
        built.append((model, {name: parameter.detach().clone() for name, parameter in model.named_parameters()}))
        return model

    monkeypatch.setattr(networks, "build", keep)
    speed.WORDS, speed.WIDTH = 40, 16
    for name in speed.NAMES:
        assert speed.time_batches(name, 3, 2, 1, "cpu") > 0
        model, start = built[-1]
        assert [key for key, value in model.named_parameters() if torch.equal(value, start[key])] == [], name


# ---- commands -----------------------------------------------------------------------------------------------------


def run_script(folder, script, *arguments, **settings):
    """Runs a script with a fairseq-train and a prepare-text that only write down their arguments, call by call.

    Training warns; predictions are not made; accuracy is 90 plus the number of heads.
    """
    score = folder / "score.py"
    score.parent.mkdir(parents=True, exist_ok=True)
    score.write_text(
        "import json, pathlib, sys\nwords = sys.argv\n"
        "settings = dict(words[i + 1].split('=', 1) for i, word in enumerate(words) if word == '--record')\n"
        "result = {'scores': {'accuracy': {'mean': 90 + int(settings['heads'])}}, 'settings': settings}\n"
        "pathlib.Path(words[words.index('--output') + 1]).write_text(json.dumps(result))\n"
    )
    warns = (
        'for name in muse_plugin fairseq; do echo "12:00 | WARNING | $name.tasks | $name has something to say"; done\n'
        "heads=${*##*--pooling-heads }\n"
        "echo \"epoch 001 | valid on 'valid' subset | accuracy 9${heads%% *} | num_updates 4\""
    )
    # Everything else that Python is asked for is done.
    python = (
        f'case "$3" in prepare-text) shift 3; {WRITE_DOWN} ;; predict) ;; '
        f'score-labels) exec "{sys.executable}" "{score}" "$@" ;; *) exec "{sys.executable}" "$@" ;; esac'
    )
    programs = {"fairseq-train": f"{WRITE_DOWN}\n{warns}", "python": python}
    return run_written_down(folder, "documents", script, *arguments, programs=programs, **settings)


def make_data(folder, part="r8/data"):
    data = mark_prepared(folder / "work" / part)
    (data / "bin" / "word_vectors.txt").write_text("the" + " 1" * 100 + "\n")
    return data


def train(folder, *arguments, **settings):
    done = run_script(folder, "train", *arguments, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return [parse_call(words) for words in read_calls(folder)]


def test_adam_is_a_row_of_its_own(tmp_path):
    make_data(tmp_path)
    (args,) = train(tmp_path, OPTIMIZER="adam", MODELS="lama_context")
    assert (args.optimizer, args.lr, args.warmup_updates, args.weight_decay) == ("adam", [0.001], 100, 0)
    assert args.save_dir.endswith("r8/lama_context-adam-seed1/checkpoints")
    settings = (tmp_path / "work" / "r8" / "lama_context-adam-seed1" / "settings.txt").read_text().splitlines()
    assert {"optimizer=adam", "lr=0.001"} <= {*settings}


def test_word_dropout_and_another_classifier_are_rows_of_their_own(tmp_path):
    make_data(tmp_path)
    (args,) = train(tmp_path, WORD_DROPOUT="0.3", HIDDEN="0", MODELS="lama")
    assert (args.word_dropout, args.classifier_hidden_dim) == (0.3, 0)
    assert args.save_dir.endswith("r8/lama-dropped0.3-hidden0-seed1/checkpoints")
    settings = (tmp_path / "work" / "r8" / "lama-dropped0.3-hidden0-seed1" / "settings.txt").read_text().splitlines()
    assert {"word_dropout=0.3", "hidden=0"} <= {*settings}


@pytest.mark.parametrize(("given", "flag", "run"), [("", "drop", "lama-seed1"), ("keep", "keep", "lama-unknown-seed1")])
def test_rare_words_are_discarded_as_published_or_kept(tmp_path, given, flag, run):
    make_data(tmp_path)
    (args,) = train(tmp_path, MODELS="lama", **({"UNKNOWN_WORDS": given} if given else {}))
    assert str(args.unknown_words) == flag
    assert args.save_dir.endswith(f"r8/{run}/checkpoints")


def test_every_model_is_trained_as_published(tmp_path):
    data = make_data(tmp_path)
    commands = train(tmp_path, MODELS=" ".join(MODELS))
    assert [args.arch for args in commands] == [
        name if name.startswith("lama") else f"sentence_{name}_documents" for name in NAMES
    ]
    for args in commands:
        assert (args.optimizer, args.lr, args.batch_size) == ("sgd", [0.05], 32)
        assert (args.momentum, args.weight_decay, args.patience) == (0.9, 1e-4, 5)
        assert (args.word_dropout, args.classifier_hidden_dim) == (0, 512)
        assert (args.lr_scheduler, args.max_epoch, args.max_words) == ("fixed", 50, 512)
        assert not args.warmup_updates  # the rate is constant
        assert (args.best_checkpoint_metric, args.maximize_best_checkpoint_metric) == ("accuracy", True)
        assert (args.word_vectors, args.word_embed_dim) == (str(data / "bin" / "word_vectors.txt"), 100)
        assert not read_flag(args, "freeze_word_vectors")
        assert (read_flag(args, "classifier_hidden_dim"), read_flag(args, "classifier_dropout")) == (512, 0.4)
        assert (read_flag(args, "classifier_input_dropout"), read_flag(args, "embedding_dropout")) == (0, 0)
        assert str(args.disagreement) == "none"
    assert len({args.save_dir for args in commands}) == len(MODELS)


def test_heads_penalties_folds_and_seeds_have_runs_of_their_own(tmp_path):
    for fold in (1, 2, 3):
        make_data(tmp_path, f"r8/folds3/fold{fold}/data")
    settings = {"FOLDS": "3", "SEEDS": "1 2", "MODEL": "lama", "HEADS": "5", "DISAGREEMENT": "emb"}
    commands = train(tmp_path, "--max-epoch", "7", **settings)
    assert [args.save_dir.split("/work/")[1] for args in commands] == [
        f"r8/folds3/fold{fold}/lama-heads5-emb-seed{seed}/checkpoints" for fold in (1, 2, 3) for seed in (1, 2)
    ]
    for args in commands:
        assert (args.pooling_heads, str(args.disagreement), args.disagreement_weight) == (5, "emb", 0.2)
        assert args.max_epoch == 7


@pytest.mark.parametrize(("penalty", "suffix"), [("none", ""), ("emb", "-emb")])
def test_the_curve_of_heads_trains_tests_and_draws_every_number(tmp_path, penalty, suffix):
    data = make_data(tmp_path)
    (data / "settings.txt").write_text("dataset=r8\nfold=0\n")
    settings = {"ALL_HEADS": "2 3", "MODELS": "lama", "SEEDS": "1 2", "DISAGREEMENT": penalty}
    done = run_script(tmp_path, "heads", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    heads = [call[call.index("--pooling-heads") + 1] for call in read_calls(tmp_path)]
    assert heads == ["2", "2", "3", "3"]
    folder = tmp_path / "work" / "r8"
    rows = (folder / f"HEADS{suffix}.md").read_text().splitlines()
    assert rows == [f"| heads | lama{suffix} |", "|--:|--:|", "| 2 | 92.00 ± 0.00 |", "| 3 | 93.00 ± 0.00 |"]
    assert "accuracy on validation documents" in (folder / f"heads{suffix}.svg").read_text()
    assert len(list(folder.glob("HEADS*"))) == 1


def test_a_warning_of_ours_reaches_the_screen_and_one_of_fairseqs_the_log(tmp_path):
    make_data(tmp_path)
    done = run_script(tmp_path, "train", MODELS="lama")
    assert "muse_plugin has something to say" in done.stdout + done.stderr
    assert "fairseq has something to say" not in done.stdout + done.stderr
    log = (tmp_path / "work" / "r8" / "lama-seed1" / "train.log").read_text()
    assert "muse_plugin has something to say" in log
    assert "fairseq has something to say" in log


def prepare(folder, **settings):
    done = run_script(folder, "prepare", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return [parse_flags("prepare-text", *call) for call in read_calls(folder)]


def make_raw(folder, documents=40):
    raw = folder / "raw"
    raw.mkdir(parents=True)
    rows = [f"{'acq' if i % 2 else 'earn'}\tw{i} text\n" for i in range(documents)]
    (raw / "r8-train-all-terms.txt.gz").write_bytes(gzip.compress("".join(["Class\tExample\n", *rows]).encode()))
    (raw / "r8-test-all-terms.even.txt").write_text("".join(["Class\tExample\n", *rows[:6]]))
    return raw


def test_data_of_folds_are_made_with_vectors_of_their_own(tmp_path):
    calls = prepare(tmp_path, RAW_DIR=str(make_raw(tmp_path)), FOLDS="3", TRIAL="1")
    folder = tmp_path / "work" / "r8"
    assert [args.output for args in calls] == [folder / f"folds3/fold{k}/data/bin" for k in (1, 2, 3)]
    for k, args in enumerate(calls, start=1):
        own = folder / f"folds3/fold{k}/text"
        assert (args.train, args.valid, args.test) == (own / "train.txt", own / "valid.txt", [folder / "text/test.txt"])
        assert (args.word2vec, args.word2vec_min_count, args.threshold) == (16, 2, 2)
        assert len((own / "train.txt").read_text().splitlines()) == 20
        assert "source=even" in (folder / f"folds3/fold{k}/data/settings.txt").read_text().splitlines()
    assert len((folder / "text" / "test.txt").read_text().splitlines()) == 6


def test_folds_are_divided_again_when_the_documents_are_others(tmp_path):
    raw, folder = tmp_path / "raw", tmp_path / "work" / "imdb"
    raw.mkdir()
    for name in ("train", "test"):
        (raw / f"{name}.tsv").write_text("".join(f"{i % 2}\t1\t{i}\ttext {i}\n" for i in range(120)))
    settings = {"RAW_DIR": str(raw), "DATASET": "imdb", "FOLDS": "3"}
    prepare(tmp_path, **settings, TRIAL="1")
    for remade in ("text", "folds3/fold1/data", "folds3/fold2/data", "folds3/fold3/data"):
        assert_refused(run_script(tmp_path, "prepare", **settings), f"{folder / remade} was made with other settings")
        shutil.rmtree(folder / remade)
    prepare(tmp_path, **settings)
    for k in (1, 2, 3):
        parts = [folder / f"folds3/fold{k}/text/{part}.txt" for part in ("train", "valid")]
        assert [len(part.read_text().splitlines()) for part in parts] == [80, 40]


def test_reviews_are_tokenised_and_held_out_and_have_no_vectors_where_none_are_wanted(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("train", "test"):
        (raw / f"{name}.tsv").write_text("0\t1\t1\tBad.\n1\t9\t2\tGood!\n")
    (args,) = prepare(tmp_path, RAW_DIR=str(raw), DATASET="imdb", WORD2VEC="0")
    assert (args.tokenizer, args.lower_case, args.valid_from_train, args.seed) == ("moses", True, "0.1", 1)
    assert (args.word2vec, args.threshold, args.empty) == (None, 5, "skip")
    assert args.output == tmp_path / "work/imdb/data-no-vectors/bin"
    (words,) = [line for line in (args.output.parent / "settings.txt").read_text().splitlines() if "source" in line]
    assert words == "source=tables"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"DATASET": "yelp"}, "DATASET must be r8, imdb or news, but is 'yelp'."),
        ({"FOLDS": "0"}, "FOLDS must be a whole number of at least 1, but is '0'."),
        ({"WORD2VEC": "no"}, "WORD2VEC must be a whole number, but is 'no'."),
        ({"WORD2VEC": "50", "WORD_VECTORS": __file__}, "WORD2VEC trains vectors and WORD_VECTORS names a file of them"),
        ({"HEADS": "0"}, "HEADS must be a whole number of at least 1, but is '0'."),
        ({"DISAGREEMENT": "sub"}, "DISAGREEMENT must be none, penal or emb, but is 'sub'."),
        ({"HEADS": "5", "MODELS": "lama sentence_cnn"}, "HEADS and DISAGREEMENT need a model with heads"),
        ({"MODEL": "multi_scale_transformer"}, "MODEL must be one of lama_context lama lama_encoder"),
        ({}, "run prepare.sh with the same settings first."),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, settings, sentence):
    assert_refused(run_script(tmp_path, "train", **settings), sentence)
