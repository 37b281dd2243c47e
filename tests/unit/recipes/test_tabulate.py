"""The table of results: seeds become one row, test sets columns, folders of the machine disappear."""

import json

import pytest


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


def test_seeds_are_averaged_and_settings_compared(tmp_path, tabulate):
    files = [
        make(tmp_path, "a", 40.0, seed=1),
        make(tmp_path, "b", 42.0, seed=2),
        make(tmp_path, "c", 33.0, seed=1, test_set="test_b", published=33.4),
        make(tmp_path, "d", 38.5, model="transformer"),
    ]
    table = tabulate.make_table([tabulate.read_result(path) for path in files])
    lines = table.splitlines()
    assert lines[0] == "| model | seeds | test_a: tokenised BLEU | test_b: tokenised BLEU | training, s |"
    assert lines[2] == "| published |  | 41.0 | 33.4 |  |"
    assert lines[3] == "| muse | 1, 2 | 41.00 ± 1.41 | 33.00 | 100 |"
    assert lines[4] == "| transformer | 1 | 38.50 |  | 100 |"
    assert "- signature of tokenised BLEU: `nrefs:1|tok:none`" in table
    assert "fairseq-train RUN/en-de/bin --arch muse_tiny --save-dir RUN/run/checkpoints" in table
    assert "/home/me" not in table


def test_a_setting_that_only_later_runs_have_tells_rows_apart(tmp_path, tabulate):
    files = [make(tmp_path, "a", 40.0), make(tmp_path, "b", 42.0, attention="distance", rdrop=0)]
    lines = tabulate.make_table([tabulate.read_result(path) for path in files]).splitlines()
    assert lines[0].startswith("| attention | seeds |")
    assert [line.split("|")[1].strip() for line in lines[3:5]] == ["", "distance"]


def test_another_file_is_refused(tmp_path, tabulate):
    path = tmp_path / "x.json"
    path.write_text('{"scores": {}}')
    with pytest.raises(ValueError, match=r"x.json must be written by 'muse-plugin evaluate --output', but is not"):
        tabulate.read_result(path)
