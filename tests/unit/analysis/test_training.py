"""``muse-plugin analyze training``: logs as fairseq's own progress bars write them, and what is drawn of them."""

import json
import logging
import sys
from types import SimpleNamespace

import pytest
from fairseq.logging.progress_bar import JsonProgressBar, SimpleProgressBar
from support.helpers import REPOSITORY

from muse_plugin.analysis import analyze_training
from muse_plugin.analysis.analyze_training import name_runs
from muse_plugin.analysis.training_log import TrainingRow, read_run
from muse_plugin_command import cli

INNER = [
    {"loss": 9.5, "nll_loss": 9.25, "ppl": 608.87, "wps": 1e6, "num_updates": 2, "lr": 0.001, "gnorm": 2.5},
    {"loss": 8.5, "nll_loss": 8.25, "ppl": 304.44, "wps": 1e6, "num_updates": 4, "lr": 0.0005, "gnorm": 1.5},
]
EPOCH = {"loss": 9.0, "nll_loss": 8.75, "ppl": 430.54, "num_updates": 4, "lr": 0.0005, "gnorm": 2.0}
VALID = {"loss": 8.0, "nll_loss": 7.75, "ppl": 215.27, "bleu": 3.25, "num_updates": 4}


OWN = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
HYDRA = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


def write_log(path, kind, form=OWN, inner=INNER):
    """Writes what fairseq-train does, by fairseq's own progress bars."""
    handler = logging.FileHandler(path, mode="a")
    handler.setFormatter(logging.Formatter(form))
    logger = logging.getLogger("fairseq.logging.progress_bar")
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    bar_type = {"simple": SimpleProgressBar, "json": JsonProgressBar}[kind]
    try:
        logger.info("Start iterating over samples | {'loss': 3}")
        bar = bar_type(range(4), epoch=1, log_interval=2)
        for number, _ in enumerate(bar, start=1):
            if number % 2 == 0:
                bar.log(inner[number // 2 - 1], tag="train_inner", step=number)
        bar.print(EPOCH, tag="train", step=4)
        bar = bar_type(range(4), epoch=1, prefix="valid on 'valid' subset")
        bar.print(VALID, tag="valid", step=4)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
        handler.close()
    return path


@pytest.mark.parametrize(("recipe", "count"), [("iwslt14_de_en", 71), ("wmt14_en_fr", 35)])
def test_the_published_validation_of_a_recipe_is_a_run(tmp_path, recipe, count):
    path = REPOSITORY / "examples" / recipe / "published_validation.tsv"
    rows = read_run(path, "authors")
    assert {row.part for row in rows} == {"valid"}
    perplexities = {row.updates: row.value for row in rows if row.measure == "perplexity"}
    assert len(perplexities) == count
    if recipe == "iwslt14_de_en":
        assert [perplexities[updates] for updates in (281, 563, 846, 1129)] == [442.89, 201.65, 120.03, 68.68]
        assert min(perplexities.values()) == 4.66
    log, output = write_log(tmp_path / "own.log", "simple"), tmp_path / "out"
    words = ["analyze", "training", str(log), str(path), "--names", "own", "authors", "--output", str(output)]
    assert cli.main(words) == 0
    drawn = json.loads((output / "numbers.json").read_text())["results"]["training"]["rows"]
    assert {row[0] for row in drawn} == {"own", "authors"}


def expect(name, inner=INNER):
    titles = {"loss": "loss_bits", "nll_loss": "nll_loss_bits", "ppl": "perplexity", "bleu": "bleu",
              "lr": "learning_rate", "gnorm": "gradient_norm"}  # fmt: skip
    parts = [("train_inner", stats) for stats in inner] + [("train", EPOCH), ("valid", VALID)]
    return {
        TrainingRow(name, part, stats["num_updates"], titles[measure], value)
        for part, stats in parts for measure, value in stats.items() if measure in titles
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["simple", "json"])
@pytest.mark.parametrize("form", [OWN, "%(message)s", HYDRA, logging.BASIC_FORMAT])  # the second: a log file
def test_logs_of_fairseq_are_read(tmp_path, kind, form):
    rows = read_run(write_log(tmp_path / "train.log", kind, form), "run")
    assert len(rows) == len(set(rows))
    assert set(rows) == expect("run")
    curve = [(row.updates, row.value) for row in rows if (row.part, row.measure) == ("train_inner", "loss_bits")]
    assert curve == [(2, 9.5), (4, 8.5)]


def test_a_resumed_run_has_its_later_numbers(tmp_path):
    path = write_log(tmp_path / "train.log", "simple")
    later = [{**INNER[0], "loss": 7.0}, {**INNER[1], "num_updates": 6, "gnorm": float("nan")}]
    with path.open("a") as file:
        file.write('2026 | INFO | train_inner | {"epoch": 1, "los\n')  # cut short
    rows = read_run(write_log(path, "simple", inner=later), "run")
    losses = {row.updates: row.value for row in rows if (row.part, row.measure) == ("train_inner", "loss_bits")}
    assert losses == {2: 7.0, 4: 8.5, 6: 8.5}
    assert {row.updates for row in rows if (row.part, row.measure) == ("train_inner", "gradient_norm")} == {2, 4}


@pytest.mark.parametrize("updates", ["inf", "nan"])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("published.tsv", "# of a table\nupdates\tvalid_bleu\n10\t29\n{}\t30\n", 4),
        ("train.log", "epoch 1 | loss 3 | num_updates 1\nepoch 2 | loss 2 | num_updates {}\n", 2),
    ],
)
def test_updates_that_are_not_finite_are_named_with_their_line(tmp_path, name, text, line, updates):
    path = tmp_path / name
    path.write_text(text.format(updates))
    with pytest.raises(ValueError, match=f"number of updates must be finite, but line {line} of {path} has {updates};"):
        read_run(path, "run")


def test_a_number_that_is_too_large_is_passed_over(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(f'{{"epoch": 1, "loss": 3, "ppl": 1{"0" * 400}, "num_updates": 2}}\n')
    assert read_run(path, "run") == [TrainingRow("run", "train_inner", 2, "loss_bits", 3.0)]


def test_events_of_tensorboard_are_read(tmp_path, monkeypatch):
    for part in ("train_inner", "valid"):
        (tmp_path / "run" / part).mkdir(parents=True)
        (tmp_path / "run" / part / "events.out.tfevents.1.host").touch()

    class EventAccumulator:
        def __init__(self, folder, size_guidance):
            assert size_guidance == {"scalars": 0}  # all of them
            self.part, self.is_loaded = folder.rsplit("/", 1)[1], False

        def Reload(self):  # noqa: N802
            self.is_loaded = True

        def Tags(self):  # noqa: N802
            assert self.is_loaded
            return {"scalars": ["loss", "wps"]}

        def Scalars(self, tag):  # noqa: N802
            value = {"train_inner": 5.0, "valid": 4.0}[self.part]
            return [SimpleNamespace(step=step, value=value + step) for step in (1, 2)]

    module = SimpleNamespace(EventAccumulator=EventAccumulator, SCALARS="scalars")
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", module)
    for name in ("tensorboard", "tensorboard.backend", "tensorboard.backend.event_processing"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    rows = read_run(tmp_path / "run", "tb")
    assert rows == [
        TrainingRow("tb", part, step, "loss_bits", value + step)
        for part, value in (("train_inner", 5.0), ("valid", 4.0)) for step in (1, 2)
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", None)
    with pytest.raises(ImportError, match=r"needs the package tensorboard, which cannot be imported .*pip install"):
        read_run(tmp_path / "run", "tb")


def test_runs_are_named_by_what_differs(tmp_path):
    assert name_runs([tmp_path / "train.log"]) == ["train"]
    assert name_runs([tmp_path / "a" / "train.log", tmp_path / "b" / "train.log"]) == ["a", "b"]
    assert name_runs([tmp_path / "a.log", tmp_path / "b.log"]) == ["a.log", "b.log"]
    names = name_runs([tmp_path / "a" / "x" / "t.log", tmp_path / "b" / "y" / "t.log", tmp_path / "b" / "x" / "t.log"])
    assert names == ["a/x", "b/y", "b/x"]


def test_runs_are_drawn_in_one_plot(tmp_path, drawn, capsys):
    logs = [write_log(tmp_path / f"{name}.log", kind) for name, kind in (("a", "simple"), ("b", "json"))]
    words = ["analyze", "training", "--logs", *map(str, logs), "--names", "A", "B", "--output", str(tmp_path / "out")]
    assert cli.main(words) == 0
    assert "1 figure with its numbers written; open" in capsys.readouterr().out
    panels = {axes.get_ylabel(): axes for axes in drawn[0].axes if axes.axison}
    assert list(panels) == ["loss (bits)", "negative log-likelihood (bits)", "perplexity", "BLEU (0 to 100)",
                            "learning rate", "gradient norm"]  # fmt: skip
    assert {axes.get_xlabel() for axes in panels.values()} == {"updates"}
    lines = {line.get_label(): line for line in panels["loss (bits)"].lines}
    assert list(lines) == ["A: train", "A: valid", "B: train", "B: valid"]
    assert list(lines["A: train"].get_xdata()) == [2, 4]
    assert list(lines["B: train"].get_ydata()) == [9.5, 8.5]  # not the mean over the epoch
    assert list(lines["B: valid"].get_ydata()) == [8.0]
    assert panels["perplexity"].get_yscale() == "log"
    numbers = json.loads((tmp_path / "out" / "numbers.json").read_text())
    assert {TrainingRow(*row) for row in numbers["results"]["training"]["rows"]} == expect("A") | expect("B")


def test_means_over_epochs_are_drawn_where_there_is_no_more(tmp_path, drawn):
    rows = [TrainingRow("A", "train", updates, "loss_bits", value) for updates, value in ((4, 9.0), (8, 8.0))]
    analyze_training.draw(rows, tmp_path / "a.svg")
    (line,) = drawn[0].axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata()), line.get_label()) == ([4, 8], [9.0, 8.0], "A: train")


@pytest.mark.parametrize(
    ("logs", "names", "sentence"),
    [
        (["none.log"], [], "--logs must name logs of fairseq-train, but"),
        (["empty.log"], [], "has no numbers of a training; log with --log-format simple or json."),
        (["."], [], "has no numbers of a training"),
        (
            ["empty.log"],
            ["a", "b"],
            "--names must have a different name for each of --logs, but got 2 names (a, b) for 1",
        ),
        (["empty.log"] * 2, ["a", "a"], "but got 2 names (a, a) for 2 logs"),
        (["empty.log", "./empty.log"], [], "empty.log is given twice; name it once."),
        (["empty.log"] * 7, list("abcdefg"), "--logs must name at most 6 runs, which is how many colours"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path, capsys, logs, names, sentence):
    (tmp_path / "empty.log").write_text("epoch 001 | nothing\n")
    words = ["analyze", "training", "--logs", *(str(tmp_path / log) for log in logs), "--output", str(tmp_path / "out")]
    assert cli.main([*words, *(["--names", *names] if names else [])]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["a.log", "b.log", "--output", "out"],
        ["--output", "out", "a.log", "b.log"],
        ["--output", "out", "a.log", "--logs", "b.log"],
        ["--logs", "a.log", "b.log", "--output", "out"],
    ],
)
def test_logs_are_named_with_and_without_the_flag(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for name, kind in (("a", "simple"), ("b", "json")):
        write_log(tmp_path / f"{name}.log", kind)
    records = []
    monkeypatch.setattr(analyze_training, "write_results", lambda *arguments: records.append(arguments[-1]))
    assert cli.main(["analyze", "training", *words]) == 0
    assert records == [{"runs": [{"name": name, "log": name} for name in ("a.log", "b.log")]}]


def test_no_log_at_all_is_one_sentence(tmp_path, capsys):
    assert cli.main(["analyze", "training", "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "muse-plugin analyze: error: training needs at least one log of fairseq-train, but got none; name the files.\n"
    )
