"""Words of which CONTRIBUTING.md names a plainer one do not come back."""

import re

import pytest
from support.helpers import REPOSITORY

FORBIDDEN = (
    "goes on|go on|going on|went on|anew|mend|mended|beside|likewise|shall|for want of|and its kin|of one make|rubble"
    "|no news|upon|whilst|amongst|heretofore|hereby|herein|thereof|stands at|stands first|stands in the"
    "|stand side by side|stands next to|stand next to|lies next to|lie next to"
)
WORD = re.compile(rf"(?<![\w-])(?:{FORBIDDEN})(?![\w-])", re.IGNORECASE)
ELSEWHERE = {"CONTRIBUTING.md", "test_english.py"}  # both have the list


@pytest.mark.parametrize("folder", ["", "muse_plugin", "muse_plugin_command", "docs", "examples", "scripts", "tests"])
def test_words_with_a_plainer_one_are_not_used(folder):
    found = (REPOSITORY / folder).glob("*") if not folder else (REPOSITORY / folder).rglob("*")
    paths = [path for path in found if path.suffix in (".md", ".py", ".sh") and path.name not in ELSEWHERE]
    assert paths
    used = {str(path.relative_to(REPOSITORY)): WORD.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: words for path, words in used.items() if words} == {}


def test_words_are_found():
    assert WORD.findall("It goes on beside the others,\nLikewise.") == ["goes on", "beside", "Likewise"]
    assert WORD.findall("recommended, test_beside, go on-line") == []


def test_contributing_names_each_word():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [word for word in FORBIDDEN.split("|") if word not in text] == []
