"""What a release states: one version, a date, and a CHANGELOG that one reads in two minutes."""

import datetime
import re

import pytest
import yaml
from support.helpers import REPOSITORY

import muse_plugin

CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASES = re.findall(r"^## \[(.+?)\](?: - (\S+))?$(.*?)(?=^## |\Z)", CHANGELOG, flags=re.MULTILINE | re.DOTALL)


def test_citation_names_this_release_and_all_papers():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == muse_plugin.__version__
    assert [(citation["version"], citation["date-released"].isoformat())] == [RELEASES[1][:2]]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    urls = {paper["url"] for paper in citation["references"]}
    assert len(urls) == 5
    assert [url for url in urls if url not in readme] == []
    for work in (citation, *citation["references"]):
        assert all("name" in author or "family-names" in author for author in work["authors"])
    assert {type(paper["year"]) for paper in citation["references"]} == {int}


def test_the_newest_release_comes_after_what_is_unreleased():
    assert RELEASES[0][:2] == ("Unreleased", "")
    dates = [datetime.date.fromisoformat(date) for _, date, _ in RELEASES[1:]]
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize("release", RELEASES, ids=[version for version, *_ in RELEASES])
def test_a_release_is_at_most_fifteen_bullets_of_three_lines(release):
    bullets = re.findall(r"^- .*(?:\n  .*)*", release[2], flags=re.MULTILINE)
    assert len(bullets) <= 15
    assert {bullet for bullet in bullets if bullet.count("\n") > 2} == set()
