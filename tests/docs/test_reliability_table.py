"""Each row of the table of faults names tests that exist."""

import re

from support.helpers import REPOSITORY

TABLE = REPOSITORY / "tests" / "reliability" / "README.md"


def test_every_named_test_exists():
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| fault ")]
    assert len(rows) >= 40
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named, row
        for file, name in named:
            (path,) = (REPOSITORY / "tests").rglob(file)
            assert f"def {name}(" in path.read_text(encoding="utf-8"), f"{file} has no {name}"


def test_every_file_of_these_tests_is_in_the_table():
    text = TABLE.read_text(encoding="utf-8")
    missing = [path.name for path in TABLE.parent.glob("test_*.py") if path.name not in text]
    assert missing == []
