import json
import re

import pytest

from muse_plugin.evaluation.recorded_settings import collect_settings


def test_values_are_json_where_they_are_json():
    pairs = ["seed=1", "lr=1e-3", "fp16=true", "kernels=[3, 15]", "command=train --lr 0.1 a=b", "empty=", 'name="x"']
    assert collect_settings(pairs, None) == {
        "seed": 1,
        "lr": 0.001,
        "fp16": True,
        "kernels": [3, 15],
        "command": "train --lr 0.1 a=b",
        "empty": "",
        "name": "x",
    }


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "[NaN]", "[" * 100000])
def test_values_that_json_cannot_write_stay_text(text):
    assert collect_settings([f"x={text}"], None) == {"x": text}


def test_repeated_key_keeps_every_value():
    assert collect_settings(["t=3", "t=5", "t=3", "u=1", "u=1"], None) == {"t": [3, 5], "u": 1}


def test_values_of_other_types_are_other_values():
    found = collect_settings(["x=1", "x=true", "x=1.0", "x=1"], None)["x"]
    assert [(type(value), value) for value in found] == [(int, 1), (bool, True), (float, 1.0)]
    pairs = ['y={"a": 1, "b": 2}', 'y={"b": 2, "a": 1}']
    assert collect_settings(pairs, None) == {"y": {"a": 1, "b": 2}}


def test_flags_win_over_the_file(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"seed": 1, "lr": 0.5}))
    assert collect_settings(["seed=2"], path) == {"seed": 2, "lr": 0.5}


@pytest.mark.parametrize("pair", ["seed", "=1", " =1"])
def test_pair_without_a_key_is_refused(pair):
    with pytest.raises(ValueError, match=f"--record must be KEY=VALUE, but got '{pair}'"):
        collect_settings([pair], None)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "must hold JSON, but reading"), ("[1]", "must hold a JSON object, but"), ('{"a": NaN}', "must hold JSON")],
)
def test_damaged_file_is_refused(tmp_path, text, words):
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"--record-file {re.escape(words)}"):
        collect_settings([], path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--record-file must name a file"):
        collect_settings([], tmp_path / "no.json")
