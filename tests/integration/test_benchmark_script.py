"""The script that measures everything, as a trial."""

import subprocess
from pathlib import Path

import pytest
from support.helpers import REPOSITORY, recipe_environment

from muse_plugin.benchmark.records import read_record

SCRIPT = Path("examples", "benchmark", "run.sh")
NAMES = ("attention", "attention-windows", "conv", "generate", "loss", "train", "train-memory")


def test_the_script_measures_every_kind_and_writes_the_report(tmp_path):
    results = tmp_path / "results"
    output = results / "BENCHMARKS.md"
    environment = recipe_environment(TRIAL="1", THREADS="1", RESULTS_DIR=str(results))
    script = str(REPOSITORY / SCRIPT)
    run = subprocess.run(["bash", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    records = [read_record(results / f"cpu-{name}.json") for name in NAMES]
    assert [record.kind for record in records] == [name.split("-")[0] for name in NAMES]
    assert records[0].command.startswith("muse-plugin benchmark attention --threads 1 --lengths 10")
    text = output.read_text(encoding="utf-8")
    assert text.count("Not measured.") == 0
    assert "| dynamic convolution, forward and backward: at every size |" in text
    assert records[0].command in text


@pytest.mark.parametrize(
    ("trial", "results", "output"),
    [("1", "runs/benchmark-trial", "runs/benchmark-trial/BENCHMARKS.md"), ("0", "examples/benchmark", "BENCHMARKS.md")],
)
def test_a_trial_leaves_the_results_of_the_repository_alone(tmp_path, trial, results, output):
    script, programs = tmp_path / SCRIPT, tmp_path / "programs"
    for path in (SCRIPT, "scripts/environment.sh"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text((REPOSITORY / path).read_text())
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/words\n')
    (programs / "python").chmod(0o755)
    environment = recipe_environment(programs, TRIAL=trial)
    run = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    words = (tmp_path / "words").read_text().splitlines()
    written = [Path(words[i + 1]) for i, word in enumerate(words) if word == "--json"]
    assert len(written) >= len(NAMES)
    assert {path.parent for path in written} == {tmp_path / results}
    assert words[words.index("--output") + 1] == str(tmp_path / output)
