"""Scores of labels, tags and numbers are those of the libraries and of counting by hand, and bad files are named."""

import json

import pytest

from muse_plugin import cli
from muse_plugin.evaluation.label_scores import compare_decisions, score_entities, score_labels, score_numbers


def write(path, kind, said, true, lengths=None):
    lengths = lengths or [3] * len(said)
    lines = [json.dumps({kind: a, "target": b, "length": n}) for a, b, n in zip(said, true, lengths, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_labels_are_scored_as_counted_by_hand():
    # a: said 3 times, true twice, both twice; b: said once, true twice, both once; c is only said.
    result = score_labels(["a", "a", "b", "a", "c"], ["a", "a", "b", "b", "d"])
    assert result["scores"]["accuracy"] == pytest.approx(60.0)
    f1 = {"a": 80.0, "b": 200 / 3, "c": 0.0, "d": 0.0}
    assert {label: row["f1"] for label, row in result["per_class"].items()} == pytest.approx(f1)
    assert result["scores"]["macro_f1"] == pytest.approx(sum(f1.values()) / 4)
    assert result["labels"] == ["a", "b", "c", "d"]
    assert result["confusion"] == [[2, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_entities_count_only_where_stretch_and_type_agree():
    true = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O"]]
    said = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X"]]  # one of three right; the second is too long
    scores = score_entities(said, true)["scores"]
    assert scores == pytest.approx({"entity_f1": 100 / 3, "entity_precision": 100 / 3, "entity_recall": 100 / 3})


def test_numbers_are_scored_over_all_of_them():
    scores = score_numbers([[1.0], [2.0], [4.0]], [[1.0], [3.0], [5.0]])["scores"]
    assert scores["mse"] == pytest.approx(2 / 3)
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(0.9819805)
    assert score_numbers([[1.0], [1.0]], [[1.0], [3.0]])["scores"]["pearson"] == 0.0


def test_mcnemar_counts_decisions_of_which_one_is_right():
    assert compare_decisions([True] * 8 + [False], [False] * 8 + [True])["p_value"] == pytest.approx(20 / 512)
    assert compare_decisions([True, False], [True, False]) == {"only_this": 0, "only_other": 0, "p_value": 1.0}


def test_command_prints_scores_by_length_and_writes_settings(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "label", ["a", "b", "b"], ["a", "b", "a"], [2, 9, 9])
    other = write(tmp_path / "o.jsonl", "label", ["b", "b", "b"], ["a", "b", "a"], [2, 9, 9])
    command = ["score-labels", str(path), "--length-buckets", "5", "--versus", str(other), "--record", "seed=3"]
    assert cli.main([*command, "--output", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    assert "accuracy = 66.67" in printed
    assert "1-5 words: 100.00 (1 sentences)" in printed
    assert ">5 words: 50.00 (2 sentences)" in printed
    assert "right alone 1 against 0 times, p = 1.0000" in printed
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["settings"] == {"seed": 3}
    assert record["scores"]["accuracy"]["mean"] == pytest.approx(66.666667)
    assert {"versions", "hardware", "git", "per_class", "significance", "length_buckets"} <= set(record)


def test_tags_are_scored_word_by_word_and_as_entities(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "tags", [["B-X", "O"], ["O"]], [["B-X", "O"], ["B-X"]])
    assert cli.main(["score-labels", str(path), "--entities"]) == 0
    printed = capsys.readouterr().out
    assert "entity_f1 = 66.67" in printed
    assert "accuracy = 66.67" in printed


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("no json", "no json"),
        ('{"label": "a", "length": 3}', "label"),
        ('{"tags": ["O"], "target": ["O", "O"], "length": 2}', "tags"),
        ('{"label": null, "target": "a", "length": 0}', "null"),
        ('{"numbers": [true], "target": [1.0], "length": 1}', "numbers"),
    ],
)
def test_a_bad_line_is_named(tmp_path, capsys, line, shown):
    path = tmp_path / "p.jsonl"
    path.write_text('{"label": "a", "target": "b", "length": 3}\n' + line + "\n")
    assert cli.main(["score-labels", str(path)]) == 2
    error = capsys.readouterr().err
    assert "every line must hold a prediction and its target" in error
    assert f"line 2 of {path}" in error
    assert shown in error


def test_other_sentences_and_entities_of_labels_are_refused(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "label", ["a"], ["a"])
    other = write(tmp_path / "o.jsonl", "label", ["a"], ["b"])
    assert cli.main(["score-labels", str(path), "--versus", str(other)]) == 2
    assert "--versus needs predictions for the same sentences" in capsys.readouterr().err
    assert cli.main(["score-labels", str(path), "--entities"]) == 2
    assert "--entities is for tags" in capsys.readouterr().err
    numbers = write(tmp_path / "n.jsonl", "numbers", [[1.0]], [[2.0]])
    assert cli.main(["score-labels", str(numbers), "--versus", str(numbers)]) == 2
    assert "--versus compares labels or tags" in capsys.readouterr().err
