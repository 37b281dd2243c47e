"""The files that an analysis leaves: one report without anything from elsewhere, escaped, and numbers next to it."""

import csv
import io
import json
import math
import re
import sys
from typing import NamedTuple

import pytest

from muse_plugin.analysis import report
from muse_plugin.analysis.report import check_output, format_csv, format_report, write_results
from muse_plugin.analysis.result import Result


class Row(NamedTuple):
    word: str
    place: int
    weight: float


EVIL = '<script>alert("x")</script>, "y"\n&'
ROWS = [Row(EVIL, 1, 0.25), Row("b", 2, math.nan), Row("c", 3, -math.inf)]


def make_result(rows=ROWS, name="words"):
    return Result(
        name,
        f"Words {EVIL}",
        f"What is <b>seen</b> {EVIL}",
        rows,
        lambda rows, path: path.write_bytes(b"PNG" + name.encode()),
    )


def test_a_table_comes_back_from_its_csv():
    table = list(csv.reader(io.StringIO(format_csv(make_result()))))
    assert table == [["word", "place", "weight"], [EVIL, "1", "0.25"], ["b", "2", ""], ["c", "3", "-inf"]]


def test_the_report_is_one_file_without_scripts_and_everything_in_it_is_escaped(tmp_path):
    record = {"models": [{"name": EVIL}]}
    write_results(tmp_path / "out", f"Title {EVIL}", [make_result()], {"gates": f"none {EVIL}"}, record)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "<b>" not in page
    assert page.count("&lt;script&gt;") >= 7
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#words|words\.(?:png|svg|csv)")[^"]*"', page)
    assert "http" not in page
    assert "@import" not in page
    assert 'src="data:image/png;base64,UE5Hd29yZHM="' in page
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "numbers.json", "report.html", "words.csv", "words.png", "words.svg"
    ]  # fmt: skip


def test_numbers_are_json_that_everybody_reads(tmp_path):
    write_results(tmp_path, "Title", [make_result()], {"gates": "none"}, {"data": {"split": "valid"}})

    def refuse(constant):
        raise AssertionError(constant)

    numbers = json.loads((tmp_path / "numbers.json").read_text(), parse_constant=refuse)
    assert numbers["results"]["words"]["columns"] == ["word", "place", "weight"]
    assert numbers["results"]["words"]["rows"] == [[EVIL, 1, 0.25], ["b", 2, None], ["c", 3, "-inf"]]
    assert numbers["not_applicable"] == {"gates": "none"}
    assert numbers["data"] == {"split": "valid"}


def test_large_tables_are_in_their_csv_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_MOST_ROWS_IN_JSON", 2)
    monkeypatch.setattr(report, "_MOST_ROWS_IN_REPORT", 2)
    write_results(tmp_path, "Title", [make_result(), make_result(ROWS[:2], "few")], [], {})
    found = json.loads((tmp_path / "numbers.json").read_text())["results"]
    assert found["words"]["rows_are_in"] == "words.csv"
    assert "rows" not in found["words"]
    assert len(found["few"]["rows"]) == 2
    assert (tmp_path / "report.html").read_text().count("<table>") == 1


def test_the_table_of_the_report_has_blanks_where_there_is_no_number():
    page = format_report("Title", [make_result()], [], {}, {"words": b""})
    assert "<tr><td>b</td><td>2</td><td></td></tr>" in page


def test_output_is_checked_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"--output must name a folder, but .*file is a file; name another"):
        check_output(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match=r"--output must be in an existing folder, but .*/no does not exist"):
        check_output(tmp_path / "no" / "out")
    check_output(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="analyze needs matplotlib, which cannot be imported"):
        check_output(tmp_path)
