"""The table of results: seeds become one row, test sets columns, folders of the machine disappear."""

import json

import pytest
from support.helpers import REPOSITORY
from support.recipes import run_main


def make(folder, name, bleu, **settings):
    settings = {"model": "muse", "seed": 1, "test_set": "test_a", "published": 41.0, "seconds_train": 100, **settings}
    settings.setdefault(
        "train_command", "fairseq-train /home/me/work/en-de/bin --arch muse_tiny --save-dir /home/me/run/checkpoints"
    )
    record = {
        "scores": {"tokenized_bleu": {"mean": bleu, "signature": "nrefs:1|tok:none"}},
        "settings": settings,
        "versions": {"torch": "2.13.0"},
        "hardware": {"cores": 2},
        "git": {"commit": "abc", "dirty": False},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record))
    return path


def tabulate(results_table, files):
    return results_table.make_table([result for path in files for result in results_table.read_results(path)])


def test_seeds_are_averaged_and_settings_compared(tmp_path, results_table):
    files = [
        make(tmp_path, "a", 40.0, seed=1),
        make(tmp_path, "b", 42.0, seed=2),
        make(tmp_path, "c", 33.0, seed=1, test_set="test_b", published=33.4),
        make(tmp_path, "d", 38.5, model="transformer"),
    ]
    table = tabulate(results_table, files)
    lines = table.splitlines()
    assert lines[0] == "| model | seeds | test_a: tokenised BLEU | test_b: tokenised BLEU | training, s |"
    assert lines[2] == "| published |  | 41.0 | 33.4 |  |"
    assert lines[3] == "| muse | 1, 2 | 41.00 ± 1.41 | 33.00 | 100 |"
    assert lines[4] == "| transformer | 1 | 38.50 |  | 100 |"
    assert "- signature of tokenised BLEU: `nrefs:1|tok:none`" in table
    assert "fairseq-train RUN/en-de/bin --arch muse_tiny --save-dir RUN/run/checkpoints" in table
    assert "/home/me" not in table


@pytest.mark.parametrize(
    ("published", "shown"),
    [((36.3, 35.3, None), "36.3 / 35.3"), ((36.3, None, 36.3), "36.3"), ((None, 36.3, 36.3), "36.3")],
)
def test_every_published_score_of_a_test_set_is_shown(tmp_path, results_table, published, shown):
    models = zip(("muse", "transformer", "usual"), published, strict=True)
    files = [make(tmp_path, name, 40.0, model=name, published=score) for name, score in models]
    table = tabulate(results_table, files)
    assert table.splitlines()[2] == f"| published |  | {shown} |  |"


def test_seconds_of_an_epoch_have_a_column_where_some_run_knows_them(tmp_path, results_table):
    files = [
        make(tmp_path, "a", 40.0, seed=1, parameters=10, seconds_per_epoch=9.2),
        make(tmp_path, "b", 41.0, seed=2, parameters=12, seconds_per_epoch=10.4),
        make(tmp_path, "c", 38.0, model="transformer"),
    ]
    lines = tabulate(results_table, files).splitlines()
    assert lines[0].endswith("| training, s | an epoch, s |")
    assert lines[3] == "| muse | 1, 2 | 40.50 ± 0.71 | 100 | 10 |"
    assert lines[4] == "| transformer | 1 | 38.00 | 100 |  |"


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"attention": "distance", "rdrop": 0}, "attention", "distance"),
        ({"distance_alpha": "0"}, "distance alpha", "0"),
    ],
)
def test_a_setting_that_only_later_runs_have_tells_rows_apart(tmp_path, results_table, settings, name, value):
    """Also where it is zero and nothing else differs."""
    files = [make(tmp_path, "a", 40.0), make(tmp_path, "b", 42.0, **settings)]
    lines = tabulate(results_table, files).splitlines()
    assert lines[0].startswith(f"| {name} | seeds |")
    assert [line.split("|")[1].strip() for line in lines[3:5]] == ["", value]


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ("--num-workers 0", ""),
        ("--log-interval=5 --lr 0.1 --no-progress-bar", "--lr 0.1"),
        ("--num-workers 0 --lr 0.1 --log-format json", "--lr 0.1"),
        ("--no-progress-barrier", "--no-progress-barrier"),
    ],
)
def test_flags_without_effect_on_a_result_tell_no_rows_apart(tmp_path, results_table, flags, shown):
    files = [make(tmp_path, "a", 40.0, flags=shown), make(tmp_path, "b", 42.0, seed=2, flags=flags)]
    assert "| 1, 2 | 41.00 ± 1.41 | 100 |" in tabulate(results_table, files)


def with_lengths(path, *scores):
    record = json.loads(path.read_text())
    buckets = [
        {"label": label, "num_sentences": count, "score": score}
        for (label, count), score in zip((("1-10", 1200), (">10", 3)), scores, strict=False)
    ]
    record["length_buckets"] = {"unit": "words", "score": "accuracy", "buckets": buckets}
    path.write_text(json.dumps(record))
    return path


def test_scores_by_length_are_a_table_of_their_own(tmp_path, results_table):
    files = [
        with_lengths(make(tmp_path, "a", 40.0, seed=1), 70.0, 50.0),
        with_lengths(make(tmp_path, "b", 42.0, seed=2), 72.0, 60.0),
        with_lengths(make(tmp_path, "c", 38.5, model="transformer"), 65.0, None),
        make(tmp_path, "d", 38.5, model="never_measured"),
        make(tmp_path, "e", 38.5, model="by_evaluate"),
        make(tmp_path, "f", 38.5, model="by_evaluate_with_lengths"),
    ]
    for number, lengths in ((4, None), (5, {"unit": "word", "buckets": [{"low": 1, "scores": [30.0]}]})):
        record = json.loads(files[number].read_text())
        files[number].write_text(json.dumps({**record, "length_buckets": lengths}))
    lines = tabulate(results_table, files).splitlines()
    start = next(i for i, line in enumerate(lines) if "so many" in line)
    assert lines[start - 1] == ""
    assert lines[start : start + 5] == [
        "| model | test_a: accuracy of texts of so many words | 1-10 (1,200) | >10 (3) |",
        "|---|---|--:|--:|",
        "| muse | 2 seeds | 71.00 ± 1.41 | 55.00 ± 7.07 |",
        "| transformer | 1 seed | 65.00 |  |",
        "",
    ]


def test_other_bounds_are_refused(tmp_path, results_table):
    files = [with_lengths(make(tmp_path, "a", 40.0), 70.0, 50.0), with_lengths(make(tmp_path, "b", 42.0, seed=2), 72.0)]
    with pytest.raises(ValueError, match=r"of the same lengths .* but got 1-10 and 1-10, >10; evaluate again alike"):
        tabulate(results_table, files)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("x.json", '{"scores": {}}', "is not: KeyError"),
        ("x.json", '{"scores": {"bleu": {"mean": "many", "signature": "s"}}, "settings": {}}', "is not: ValueError"),
        ("x.json", '{"scores": {"bleu": {"mean": 40.0}}, "settings": {}}', "is not: KeyError"),
        ("x.jsonl", "", "is empty"),
    ],
)
def test_another_file_is_refused(tmp_path, results_table, name, text, fault):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"{name} must be written by 'muse-plugin evaluate --output', but {fault}"):
        results_table.read_results(path)


def test_a_run_that_is_there_twice_is_refused(tmp_path, results_table):
    path = make(tmp_path, "a", 40.0)
    with pytest.raises(ValueError, match=r"^a run with seed 1 on test_a is there twice; give it once\.$"):
        tabulate(results_table, [path, path])


def test_a_table_that_cannot_be_written_is_named(tmp_path, results_table, monkeypatch, capsys):
    path = make(tmp_path, "a", 40.0)
    for flag, name in (("--output", "R.md"), ("--keep", "R.jsonl")):
        assert run_main(monkeypatch, results_table, path, flag, tmp_path / "nowhere" / name) == 2
        assert "results_table: error: [Errno 2]" in capsys.readouterr().err


def test_kept_runs_give_the_same_table_and_stand_next_to_later_ones(tmp_path, results_table, monkeypatch, capsys):
    def run(*words):
        return run_main(monkeypatch, results_table, *words), capsys.readouterr()

    files = [
        with_lengths(make(tmp_path, "a", 40.0, seed=1), 70.0, 50.0),
        with_lengths(make(tmp_path, "b", 42.0, seed=2), 72.0, 60.0),
        make(tmp_path, "c", 38.5, model="transformer"),
    ]
    kept = tmp_path / "runs.jsonl"
    code, expected = run(*files, "--keep", kept)
    assert code == 0
    assert "/home/me" not in kept.read_text()
    assert run(kept) == (0, expected)
    code, printed = run(kept, make(tmp_path, "d", 39.5, model="transformer", seed=2))
    assert "| transformer | 1, 2 | 39.00 ± 0.71 | 100 |" in printed.out
    kept.write_text(kept.read_text() + "[]\n")
    code, printed = run(kept)
    assert code == 2
    assert "runs.jsonl, line 4 must be written by 'muse-plugin evaluate --output', but is not" in printed.err
    with pytest.raises(SystemExit):
        run(*files, "--keep", tmp_path / "runs.json")
    assert "--keep must end with .jsonl, but is" in capsys.readouterr().err


def test_results_of_multi30k_are_those_of_its_kept_runs(results_table):
    folder = REPOSITORY / "examples" / "multi30k"
    text = (folder / "RESULTS.md").read_text(encoding="utf-8")
    runs = {}
    for result in results_table.read_results(folder / "runs.jsonl"):
        score = result.record["scores"]["tokenized_bleu"]["mean"]
        runs.setdefault((result.group, result.seed), []).append(f"{score:.2f}")
    assert len(runs) >= 3
    for scores in runs.values():
        assert len(scores) == 3
        assert " | ".join(scores) in text or " / ".join(scores) in text
