"""What the README says in Python runs as it stands, in a folder with the model of the quickstart."""

import re

import pytest
from support.helpers import REPOSITORY
from support.translation_models import save_translation_model

SNIPPETS = re.findall(
    r"^```python\n(.*?)^```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_there_are_snippets_and_loading_takes_three_lines():
    assert len(SNIPPETS) >= 2
    (loading,) = [code for code in SNIPPETS if "from_pretrained" in code]
    assert len(loading.splitlines()) == 3


@pytest.mark.parametrize("code", SNIPPETS, ids=lambda code: code.splitlines()[0][:30])
def test_a_snippet_runs(code, tmp_path, monkeypatch, capsys):
    model = tmp_path / "runs" / "quickstart" / "model"
    model.mkdir(parents=True)
    save_translation_model(model)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()
