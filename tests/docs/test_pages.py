"""README stays short, and every link and picture of the documents leads somewhere."""

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.helpers import REPOSITORY, run_command

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
PAGES = sorted(
    path for pattern in ("*.md", "docs/*.md", "examples/**/*.md", "tests/**/*.md") for path in REPOSITORY.glob(pattern)
)


def list_anchors(path):
    """Of the headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()) for heading in headings]
    return {word.strip().replace(" ", "-") for word in words}


def find_broken_links(path, text):
    broken = []
    for target in ("".join(groups) for groups in LINK.findall(FENCE.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (anchor and (page.is_dir() or anchor not in list_anchors(page))):
            broken.append(target)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_to_files_and_headings(path):
    assert find_broken_links(path, path.read_text(encoding="utf-8")) == []


def test_broken_links_are_found():
    text = "[a](README.md) [b](README.md#install) [c](no.md) [d](README.md#no)\n[e]: docs/no.md\n```\n[f](no)\n```\n"
    assert find_broken_links(REPOSITORY / "README.md", text) == ["no.md", "README.md#no", "docs/no.md"]


def test_readme_is_read_in_five_minutes():
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 130] == []


def test_readme_leads_to_every_page_and_every_page_says_what_it_is_for():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    pages = [path for path in PAGES if path.parent.name == "docs" and path.name != "index.md"]
    assert len(pages) >= 10
    for path in pages:
        assert f"docs/{path.name}" in readme
        title, empty, first = path.read_text(encoding="utf-8").splitlines()[:3]
        assert title.startswith("# ")
        assert not empty
        assert first.startswith("After this page"), Path(path).name


def build_site(root, site):
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
    return run_command(["bash", str(root / "scripts" / "docs.sh"), str(site)], cwd=site.parent, env=environment)


@pytest.mark.skipif(find_spec("furo") is None, reason="needs pip install '.[docs]'")
def test_site_has_every_page(tmp_path):
    done = build_site(REPOSITORY, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"open {tmp_path}/site/docs/index.html\n"
    for path in PAGES:
        assert (tmp_path / "site" / path.relative_to(REPOSITORY).with_suffix(".html")).is_file(), path


@pytest.mark.skipif(find_spec("furo") is None, reason="needs pip install '.[docs]'")
@pytest.mark.parametrize(("link", "code"), [("docs/index.md", 0), ("docs/no.md", 1)])
def test_site_ends_with_an_error_at_a_broken_link(tmp_path, link, code):
    root = tmp_path / "repository"
    for name in ("scripts/docs.sh", "scripts/environment.sh", "docs/conf.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    (root / "docs" / "index.md").write_text("# Pages\n\n```{toctree}\n../README\n```\n")
    (root / "README.md").write_text(f"# Title\n\n[page]({link})\n")
    done = build_site(root, tmp_path / "site")
    assert (done.returncode, link in done.stderr) == (code, code == 1), done.stderr
