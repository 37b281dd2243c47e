"""Published scores are next to runs with the published settings, not next to trials and changed models."""

import importlib.util
import json
import subprocess
import sys

import pytest
from support.helpers import REPOSITORY, assert_refused, recipe_environment
from support.recipes import WRITE_DOWN, run_main, run_written_down

EXAMPLES = REPOSITORY / "examples"
SCORES = {
    ("multi30k", "transformer"): "41.02",
    ("iwslt14_de_en", "muse"): "36.3",
    ("iwslt15_en_vi", "muse_simple"): "30.7",
    ("wmt14_en_de", "muse"): "29.9",
    ("wmt14_en_de", "muse_simple"): "29.8",
    ("wmt14_en_fr", "transformer"): "42.9",
}


def load(monkeypatch, path):
    """A program of a recipe, with the modules next to it."""
    monkeypatch.syspath_prepend(str((EXAMPLES / path).parent))
    for name in ("results", "compare"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location(f"recipe_{path.replace('/', '_')}"[:-3], EXAMPLES / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("results", None)
    return module


def evaluate(folder, recipe, model, prepare_arguments=(), train_arguments=(), code=0, **settings):
    """Runs the three scripts with programs that do nothing; returns the output and the flags of the first score.

    Each score ends with ``code``.
    """
    arguments, work = folder / "arguments", folder / "work"
    python = (
        'case "$*" in\n*download.py*) exit 1 ;;\n'
        f'*"cli evaluate"*) test -e {arguments} || {WRITE_DOWN}; exit {code} ;;\n'
        f'*) exec {sys.executable} "$@" ;;\nesac'
    )

    def run(script, *words):
        programs = {"fairseq-train": "", "python": python}
        return run_written_down(folder, recipe, script, *words, programs=programs, MODEL=model, **settings)

    assert run("prepare", *prepare_arguments).returncode == 2  # its settings are kept, the download fails
    (data,) = (path.parent for path in work.glob("*/settings.txt"))
    (data / ".binarise.done").touch()
    trained = run("train", *train_arguments)
    assert trained.returncode == 0, trained.stderr
    (train,) = work.glob("*/.train.done")
    averaged = settings.get("AVERAGED", "3" if settings.get("PROFILE") == "cpu" else "10")
    lines = [f"averaged={averaged}"]
    if recipe == "wmt14_en_fr":
        lines = ["checkpoint=last"] if settings.get("CHECKPOINT") == "last" else []
    (train.parent / "evaluation.txt").write_text("\n".join([*lines, "flags="]) + "\n")
    tests = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", settings.get("SUBSET", "test"))
    for step in ("average", "model", "generate", *(f"generate-{name}" for name in tests)):
        (train.parent / f".{step}.done").touch()
    done = run("evaluate")
    assert done.returncode == code, done.stderr
    return done.stdout, arguments.read_text().splitlines()


@pytest.mark.parametrize(("code", "sets"), [(1, 3), (2, 1)])
def test_multi30k_ends_at_an_error_and_scores_all_sets_whatever_the_verdict(tmp_path, code, sets):
    printed, _ = evaluate(tmp_path, "multi30k", "muse", code=code)
    assert printed.count("published: ") == sets


@pytest.mark.parametrize(("recipe", "model"), SCORES)
def test_the_default_settings_are_the_published_ones(tmp_path, recipe, model):
    printed, flags = evaluate(tmp_path, recipe, model)
    assert f"published: {SCORES[recipe, model]}\n" in printed
    assert f"published={SCORES[recipe, model]}" in flags
    low, high = map(float, flags[flags.index("--expect") + 1 :][:2])
    assert low < float(SCORES[recipe, model]) < high
    assert ("compound_split_bleu" in flags) == (recipe == "wmt14_en_de")


def test_a_row_is_judged_by_its_own_published_score(tmp_path):
    row = "separate_depthconv_3"
    printed, flags = evaluate(tmp_path / "iwslt14", "iwslt14_de_en", "muse", ROW=row)
    assert f"iwslt14_de_en, {row}: published: 34.9\n" in printed
    assert "published=34.9" in flags
    assert f"row={row}" in flags
    assert flags[flags.index("--expect") + 1 :][:2] == ["34.3", "35.3"]
    for folder, recipe, model, settings in (
        ("multi30k", "multi30k", "muse", {"ROW": row}),  # published for IWSLT14
        ("usual", "iwslt14_de_en", "transformer_usual", {}),
    ):
        printed, flags = evaluate(tmp_path / folder, recipe, model, **settings)
        assert "nothing is published to compare with" in printed
        assert not [flag for flag in flags if flag.startswith("published=") or flag == "--expect"]


@pytest.mark.parametrize(
    ("recipe", "settings", "words", "changes"),
    [
        ("iwslt14_de_en", {"TRIAL": "1"}, {}, ["merges=300", "tokens_per_update=400", "trial=1", "updates=4"]),
        ("iwslt15_en_vi", {"UPDATES": "500", "SIMCUT": "1"}, {}, ["simcut=1", "updates=500"]),
        ("iwslt14_de_en", {"AVERAGED": "5", "MERGES": "8000"}, {}, ["averaged=5", "merges=8000"]),
        ("wmt14_en_fr", {}, {"train": ["--dropout", "0.2"]}, ["flags=--dropout 0.2"]),
        ("wmt14_en_fr", {}, {"prepare": ["--thresholdsrc", "2"]}, ["flags=--thresholdsrc 2"]),
        ("wmt14_en_de", {"JOINT": "0"}, {}, ["joint=0"]),
        ("multi30k", {"PROFILE": "cpu"}, {}, ["averaged=3", "profile=cpu", "tokens_per_update=1024", "updates=5000"]),
    ],
)
def test_another_setting_has_no_published_score_and_no_verdict(tmp_path, recipe, settings, words, changes):
    printed, flags = evaluate(tmp_path, recipe, "muse", words.get("prepare", ()), words.get("train", ()), **settings)
    assert f"not the published setting, so no score to compare with: {', '.join(changes)}\n" in printed
    assert not [flag for flag in flags if flag.startswith("published=") or flag == "--expect"]


def test_a_run_belongs_to_its_data(tmp_path):
    """Other data in the same folder neither continue nor judge it."""
    data = tmp_path / "work" / "data"
    data.mkdir(parents=True)
    (data / ".binarise.done").touch()

    def train(kept, **settings):
        (data / "settings.txt").write_text(f"{kept}\ntrial=0\nflags=\n")
        return run_written_down(tmp_path, "iwslt14_de_en", "train", programs={"fairseq-train": ""}, **settings)

    usual = tmp_path / "work" / "muse-seed1" / "settings.txt"
    assert train("merges=10000").returncode == 0
    assert "data=" not in usual.read_text()
    assert_refused(train("merges=8000\ndictionary=joined"), "> data=merges=8000;dictionary=joined")
    assert train("merges=8000\ndictionary=joined", SEED="2").returncode == 0
    own = usual.parent.with_name("muse-seed2") / "settings.txt"
    assert "data=merges=8000;dictionary=joined" in own.read_text().splitlines()
    assert train("merges=10000", SEED="2").returncode == 2


def test_settings_of_the_papers_text_are_judged_as_well(tmp_path):
    printed, flags = evaluate(tmp_path / "en_vi", "iwslt15_en_vi", "muse", SUBWORDS="none")
    assert "published: 31.3\n" in printed
    assert flags[flags.index("--post-process") + 1] == "none"
    printed, flags = evaluate(tmp_path / "en_fr", "wmt14_en_fr", "muse", CHECKPOINT="last", VALID="newstest")
    assert "published: 43.5\n" in printed
    assert "checkpoint=last" in flags


def test_the_validation_set_has_no_published_score(tmp_path):
    printed, flags = evaluate(tmp_path, "wmt14_en_de", "muse", SUBSET="valid")
    assert "29.9" not in printed
    assert not [flag for flag in flags if flag.startswith("published=") or flag == "--expect"]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ("data_trial=0\nflags=", True),
        ("data_trial=1\nflags=", False),
        ("data_trial=0 flags=--max-words 9\nflags=", False),
        ("data_trial=0\nflags=--pooling max", False),
    ],
)
def test_sentence_recipes_show_published_scores_unless_a_run_is_a_trial_or_changed(tmp_path, lines, shown):
    for name, text in (("results/a", "data_trial=0\nflags="), ("b", lines)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "settings.txt").write_text(f"model=x\n{text}\n")
    program = (
        f". {EXAMPLES}/recipe/recipe.sh; . {EXAMPLES}/recipe/sentence_recipe.sh; recipe=test\n"
        f"results=({tmp_path}/results/a/results/test.json {tmp_path}/b/results/test.json)\nshow_published 'MUSE 1.5'"
    )
    done = subprocess.run(
        ["bash", "-c", program], env=recipe_environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert ("published, with pretrained word vectors: MUSE 1.5" in done.stdout) == shown
    assert ("not the published setting" in done.stdout) != shown


def write_results(folder, *results):
    paths = []
    for number, (test_set, settings) in enumerate(results):
        record = {"scores": {"accuracy": {"mean": 50.0, "signature": "labels"}}, "settings": settings}
        record["settings"]["test_set"] = test_set
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps(record))
    return paths


DOCUMENTS = {
    **{"model": "lama", "heads": "", "disagreement": "none", "warmup": 0, "seed": 1, "data_dataset": "r8"},
    **{"data_fold": 1, "data_folds": 3, "data_source": "whole", "data_trial": 0, "lr": 0.05, "epochs": 50, "flags": ""},
}
HEADER = "| r8 | runs | validation | test | test, of the best by validation |"


@pytest.mark.parametrize(
    ("changed", "header", "row", "below"),
    [
        ({}, f"{HEADER} published |", "| lama | 1 | 50.00 | 50.00 | 50.00 | 96.5 |", ""),
        (
            {"data_source": "even", "lr": 0.1},
            f"{HEADER} published, another setting |",
            "| lama, LR=0.1 | 1 | 50.00 | 50.00 | 50.00 | 96.5 |",
            "Not the published setting: data_source = even.",
        ),
        ({"data_trial": 1}, HEADER, "| lama | 1 | 50.00 | 50.00 | 50.00 |", "data_trial = 1."),
        ({"flags": "--pooling max"}, HEADER, "| lama | 1 | 50.00 | 50.00 | 50.00 |", "flags = --pooling max."),
    ],
)
def test_the_table_of_documents(tmp_path, monkeypatch, changed, header, row, below):
    compare = load(monkeypatch, "documents/compare.py")
    files = write_results(tmp_path, *((name, {**DOCUMENTS, **changed}) for name in ("valid", "test")))
    published = compare.read_published(EXAMPLES / "documents" / "published.tsv")
    lines = compare.make_table(compare.read_results(files), published).splitlines()
    assert [lines[0], lines[2]] == [header, row]
    assert below in "".join(lines[3:])
    assert bool(below) == bool(lines[3:])


def test_the_published_setting_of_documents_is_what_the_recipe_does(tmp_path, monkeypatch):
    load(monkeypatch, "documents/compare.py")
    published = importlib.import_module("results").PUBLISHED
    sys.modules.pop("results")
    python = f'case "$*" in *download.py*) exit 1 ;; *) exec {sys.executable} "$@" ;; esac'
    programs = {"fairseq-train": "", "python": python}
    data = tmp_path / "r8/folds3/fold1/data"
    (data / "bin").mkdir(parents=True)
    for done in (
        tmp_path / "r8/text/.download.done",
        tmp_path / "r8/text/.convert.done",
        tmp_path / "r8/folds3/.divide.done",
    ):
        done.parent.mkdir(exist_ok=True)
        done.touch()
    for script in ("prepare", "train"):
        for fold in (1, 2, 3):
            folder = data.parent.parent / f"fold{fold}" / "data"
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "bin" / "word_vectors.txt").write_text("the" + " 1" * 100 + "\n")
            (folder / ".text.done").touch()
        done = run_written_down(tmp_path, "documents", script, programs=programs, WORK_DIR=str(tmp_path), FOLDS="3")
        assert done.returncode == 0, done.stderr
    lines = (data.parent / "lama_context-seed1" / "settings.txt").read_text().splitlines()
    recorded = dict(line.split("=", 1) for line in lines)
    assert {name: recorded[name] for name in published} == published


@pytest.mark.parametrize("changed", [{}, {"data_trial": 1}, {"data_trial": "0 flags=--x"}, {"flags": "--max-epoch 2"}])
def test_the_tables_of_mtl16_and_head_wise_match(tmp_path, monkeypatch, changed):
    for recipe, settings in (
        ("mtl16", {"model": "sentence_bigru", "data_domain": "MR", "data_test": "official"}),
        (
            "head_wise_match",
            {
                **{"encoder": "bert", "match": "element", "aggregation": "max", "levels": "all", "hierarchy": 1},
                "data_dataset": "snli",
            },
        ),
    ):
        compare = load(monkeypatch, f"{recipe}/compare.py")
        (path,) = write_results(tmp_path, ("test", {**settings, "seed": 1, "data_trial": 0, "flags": "", **changed}))
        published = compare.read_published(EXAMPLES / recipe / "published.tsv")
        runs = compare.read_runs(path) if recipe == "mtl16" else compare.read_results([path])
        report = compare.make_report(runs, published)
        number = "75.73" if recipe == "mtl16" else "88.1"
        assert (number in report) == ("paper" in report) == ("Paper: " in report) == (not changed)
        assert ("another setting" in report) == (recipe == "mtl16" and not changed)
        assert report.splitlines()[2].count("|") == report.splitlines()[0].count("|")


def test_trials_of_mirrored_summation_are_not_judged(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    plot = load(monkeypatch, "mirrored_summation/plot.py")
    for profile in ("cpu", "trial"):
        for number, model in enumerate(plot.MODELS):
            settings = {"profile": profile, "sentences": "1/1/1", "length": 20, "vector": 6, "width": 20}
            record = {
                "scores": {"mse": {"mean": 1 - number / 10}},
                "settings": {**settings, "model": model, "terms": 4},
            }
            (tmp_path / f"{number}.json").write_text(json.dumps(record))
        assert run_main(monkeypatch, plot, *sorted(tmp_path.glob("*.json"))) == 0
        printed = capsys.readouterr().out
        assert ("published order" in printed) == (profile == "cpu")
        assert ("nothing to judge: these are trials" in printed) == (profile == "trial")
