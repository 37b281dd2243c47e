"""The tutorial's commands, one after the other as a reader gives them, on a handful of its sentences."""

import json
import re

import pytest
from support.helpers import REPOSITORY, recipe_environment, run_command

# What makes an afternoon a minute; all else is as printed.
TRIAL = {
    "| cut -f 1": "| sed -n 1,80p | cut -f 1",
    "| cut -f 2": "| sed -n 1,80p | cut -f 2",
    "echo 'Ich habe keine Zeit.' | muse-plugin translate --path muse": "muse-plugin translate --path muse <test.de >a",
    "echo 'Ich habe keine Zeit.' | python exported/run.py": "python exported/run.py <test.de >b",
    "sentencepiece:4000": "sentencepiece:150",
    "--max-epoch 4": "--max-epoch 3 --num-workers 0 --max-target-positions 40",
}


def test_every_command_of_the_tutorial_works(tmp_path):
    pytest.importorskip("onnxruntime")
    text = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    script = "\n".join(["set -euo pipefail", *blocks])
    for printed, short in TRIAL.items():
        assert printed in script
        script = script.replace(printed, short)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    environment = recipe_environment(PYTHONPATH=str(REPOSITORY))
    done = run_command(["bash", "-c", script], cwd=tmp_path, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]

    mine = tmp_path / "mine"
    for page in ("curves", "inside"):
        assert (mine / page / "report.html").is_file()
    scores = json.loads((mine / "scores.json").read_text())
    assert scores["significance"]
    assert scores["num_sentences"] == 80
    translations = (mine / "a").read_text()
    assert translations.count("\n") == 80
    assert translations.strip()
    assert (mine / "b").read_text() == translations
