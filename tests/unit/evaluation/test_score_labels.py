"""Scores of labels, tags and numbers are those of the libraries and of counting by hand, and bad files are named."""

import json

import pytest

from muse_plugin.evaluation.label_scores import (
    compare_decisions,
    score_entities,
    score_labels,
    score_numbers,
    score_ranking,
)
from muse_plugin_command import cli


def write(path, kind, predicted, gold, lengths=None):
    lengths = lengths or [3] * len(predicted)
    lines = [json.dumps({kind: a, "target": b, "length": n}) for a, b, n in zip(predicted, gold, lengths, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_label_is_no_reason_to_warn(recwarn):
    assert score_labels(["a", "a"], ["a", "a"])["confusion"] == [[2]]
    assert recwarn.list == []


def write_answers(folder, answers):
    """Predictions and groups out of (group, probability of yes, right label) of each answer."""
    rows = [
        {"label": "yes" if p > 0.5 else "no", "probabilities": {"no": 1 - p, "yes": p}, "target": label, "length": 2}
        for _, p, label in answers
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "groups").write_text("".join(f"{group}\n" for group, _, _ in answers))
    return ["score-labels", str(folder / "p.jsonl"), "--positive", "yes", "--group", str(folder / "groups")]


# Ranks of right answers: 2 and 3 of 3 in "a", 1 of 2 in "b"; "c" has none. Groups need not be together.
ANSWERS = [
    ("a", 0.9, "no"),
    ("b", 0.8, "yes"),
    ("a", 0.7, "yes"),
    ("a", 0.2, "yes"),
    ("c", 0.9, "no"),
    ("b", 0.1, "no"),
]


def test_labels_are_scored_as_counted_by_hand():
    # a: predicted 3 times, right twice, both twice; b: predicted once, right twice, both once; c is only predicted.
    result = score_labels(["a", "a", "b", "a", "c"], ["a", "a", "b", "b", "d"])
    assert result["scores"]["accuracy"] == pytest.approx(60.0)
    f1 = {"a": 80.0, "b": 200 / 3, "c": 0.0, "d": 0.0}
    assert {label: row["f1"] for label, row in result["per_class"].items()} == pytest.approx(f1)
    assert result["scores"]["macro_f1"] == pytest.approx(sum(f1.values()) / 4)
    assert result["labels"] == ["a", "b", "c", "d"]
    assert result["confusion"] == [[2, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_entities_count_only_where_stretch_and_type_agree():
    gold = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O"]]
    predicted = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X"]]  # one of three right; the second is too long
    scores = score_entities(predicted, gold)["scores"]
    assert scores == pytest.approx({"entity_f1": 100 / 3, "entity_precision": 100 / 3, "entity_recall": 100 / 3})


def test_numbers_are_scored_over_all_of_them():
    scores = score_numbers([[1.0], [2.0], [4.0]], [[1.0], [3.0], [5.0]])["scores"]
    assert scores["mse"] == pytest.approx(2 / 3)
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(0.9819805)
    for same in (1.0, 0.1):  # whose deviation rounding makes more than 0
        scores = score_numbers([[same]] * 3, [[1.0], [3.0], [4.0]])["scores"]
        assert scores["pearson"] == scores["spearman"] == 0.0


def test_the_positive_label_has_its_own_measures():
    # yes: predicted 3 times, right 4 times, both twice
    predicted, gold = ["yes", "yes", "yes", "no", "no"], ["yes", "yes", "no", "yes", "yes"]
    scores = score_labels(predicted, gold, positive="yes")["scores"]
    assert list(scores) == ["accuracy", "macro_f1", "f1", "precision", "recall"]
    assert scores == pytest.approx(
        {"accuracy": 40.0, "macro_f1": 400 / 14, "f1": 400 / 7, "precision": 200 / 3, "recall": 50.0}
    )
    with pytest.raises(ValueError, match="right at least once, but got 'maybe'; choose one of no, yes"):
        score_labels(predicted, gold, positive="maybe")


def test_answers_are_ranked_as_counted_by_hand():
    groups, probabilities, labels = zip(*ANSWERS, strict=True)
    result = score_ranking(probabilities, [label == "yes" for label in labels], groups)
    # a: (1/2 + 2/3) / 2 = 7/12 and 1/2; b: 1 and 1
    assert result["scores"] == pytest.approx({"map": 100 * (7 / 12 + 1) / 2, "mrr": 75.0})
    assert result["ranking"] == {"groups": 2, "answers": 5, "left_out": 1}


def test_of_equal_probabilities_the_wrong_answers_come_first():
    for right in ([True, False, False], [False, False, True]):
        scores = score_ranking([0.5, 0.5, 0.5], right, ["q"] * 3)["scores"]
        assert scores == pytest.approx({"map": 100 / 3, "mrr": 100 / 3})


def test_ranking_without_any_right_answer_is_refused():
    with pytest.raises(ValueError, match="needs a group with a right answer, but none of 2 groups has one; check"):
        score_ranking([0.1, 0.2], [False, False], ["a", "b"])


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


def test_command_ranks_the_answers_to_each_question(tmp_path, capsys):
    command = [*write_answers(tmp_path, ANSWERS), "--length-buckets", "5", "--output", str(tmp_path / "r.json")]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    # predicted yes: 4, of which 2 are right; right: 3
    for line in ("accuracy = 50.00", "f1 = 57.14", "precision = 50.00", "recall = 66.67", "map = 79.17", "mrr = 75.00"):
        assert line in printed
    assert "map and mrr over 2 groups with 5 answers; 1 groups without a right answer left out" in printed
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["scores"]["map"] == {
        "mean": pytest.approx(79.166667),
        "signature": "ranking|groups:with a right answer|ties:wrong first",
    }
    assert record["scores"]["f1"]["signature"] == "labels"
    assert record["ranking"] == {"groups": 2, "answers": 5, "left_out": 1}


def test_what_cannot_be_ranked_is_refused(tmp_path, capsys):
    command = write_answers(tmp_path, ANSWERS)
    assert cli.main([*command[:2], *command[4:]]) == 2
    assert "--group ranks by the probability of one label, but got --group" in capsys.readouterr().err
    (tmp_path / "groups").write_text("a\nb\n")
    assert cli.main(command) == 2
    assert "--group must have a line for each prediction, but" in (error := capsys.readouterr().err)
    assert "groups has 2 lines and" in error
    (tmp_path / "groups").write_text("a\n")
    for row in ({}, {"probabilities": {"no": 1.0}}, {"probabilities": {"yes": 2}}, {"probabilities": {"yes": True}}):
        (tmp_path / "p.jsonl").write_text(json.dumps({"label": "no", "target": "yes", "length": 1, **row}) + "\n")
        assert cli.main(command) == 2
        assert "needs the probability of 'yes' for every prediction, but line 1 of" in capsys.readouterr().err
    tags = write(tmp_path / "t.jsonl", "tags", [["O"]], [["O"]])
    assert cli.main(["score-labels", str(tags), "--positive", "O"]) == 2
    assert "--positive is for labels, but" in capsys.readouterr().err


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
        ('{"numbers": [NaN], "target": [1.0], "length": 1}', "NaN"),
        ('{"numbers": [1.0], "target": [Infinity], "length": 1}', "Infinity"),
        ('{"label": "a", "target": "a", "length": 1e999}', "1e999"),
        ('{"label": "a", "target": "a", "length": -5}', "-5"),
        ('{"tags": [], "target": [], "length": 0}', "tags"),
        ('{"numbers": [1.0, 2.0], "target": [1.0, 2.0], "length": 1}', "2.0"),
        pytest.param(f'{{"numbers": [1{"0" * 400}], "target": [1.0], "length": 1}}', "numbers", id="large"),
        pytest.param(f'{{"numbers": [1.0], "target": [1{"0" * 400}], "length": 1}}', "numbers", id="large target"),
    ],
)
def test_a_bad_line_is_named(tmp_path, capsys, line, shown):
    path = tmp_path / "p.jsonl"
    good = {
        "tags": '{"tags": ["O"], "target": ["O"], "length": 1}',
        "numbers": '{"numbers": [1.0], "target": [2.0], "length": 1}',
        "label": '{"label": "a", "target": "b", "length": 3}',
    }
    first = next((text for kind, text in good.items() if f'"{kind}"' in line), good["label"])
    path.write_text(f"{first}\n{line}\n")
    assert cli.main(["score-labels", str(path)]) == 2
    error = capsys.readouterr().err
    assert "every line must hold a prediction and its target" in error
    assert f"line 2 of {path}" in error
    assert shown in error


def test_entities_need_tags_of_entities(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "tags", [["O"], ["B-X", "N"]], [["O"], ["B-X", "I-X"]])
    assert cli.main(["score-labels", str(path), "--entities"]) == 2
    error = f"--entities needs tags O, B-X and I-X, but line 2 of {path} has 'N'; drop the flag"
    assert error in capsys.readouterr().err


def test_no_entities_at_all_are_no_matches_without_a_warning(tmp_path, capsys, recwarn):
    path = write(tmp_path / "p.jsonl", "tags", [["O"]], [["O"]])
    assert cli.main(["score-labels", str(path), "--entities"]) == 0
    assert "entity_f1 = 0.00" in capsys.readouterr().out
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_labels_are_counted_in_whole_numbers_also_where_none_is_right(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "label", ["a", "a"], ["b", "b"])
    assert cli.main(["score-labels", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "2 times" in printed
    assert ".0 times" not in printed


def test_settings_need_a_file_to_be_recorded_in(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "label", ["a"], ["a"])
    assert cli.main(["score-labels", str(path), "--record", "seed=1"]) == 2
    assert "--record works only together with --output" in capsys.readouterr().err
    assert cli.main(["score-labels", str(path), "--output", str(tmp_path / "no" / "x.json")]) == 2
    assert "--output must be in an existing folder" in capsys.readouterr().err


def test_predictions_are_not_replaced_by_their_scores(tmp_path, capsys):
    path = write(tmp_path / "p.jsonl", "label", ["a"], ["a"])
    before = path.read_bytes()
    assert cli.main(["score-labels", str(path), "--output", str(path)]) == 2
    assert "--output must not replace what is read" in capsys.readouterr().err
    assert path.read_bytes() == before


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
