"""The script that measures everything, as a trial."""

import subprocess

from helpers import REPOSITORY, recipe_environment

from muse_plugin.benchmark.records import read_record

NAMES = ("attention", "attention-windows", "conv", "generate", "loss", "train", "train-memory")


def test_the_script_measures_every_kind_and_writes_the_report(tmp_path):
    results, output = tmp_path / "results", tmp_path / "BENCHMARKS.md"
    environment = recipe_environment(TRIAL="1", THREADS="1", RESULTS_DIR=str(results), OUTPUT=str(output))
    script = str(REPOSITORY / "examples" / "benchmark" / "run.sh")
    run = subprocess.run(["bash", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    records = [read_record(results / f"cpu-{name}.json") for name in NAMES]
    assert [record.kind for record in records] == [name.split("-")[0] for name in NAMES]
    assert records[0].command.startswith("muse-plugin benchmark attention --lengths 10")
    text = output.read_text(encoding="utf-8")
    assert text.count("Not measured.") == 0
    assert "| dynamic convolution, forward and backward: at every size |" in text
    assert records[0].command in text
