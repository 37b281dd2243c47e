"""The script that measures encoding once and matching many times, as a trial."""

import json
import os
import subprocess

from support.helpers import REPOSITORY
from support.warm_python import find_python

TINY = "--encoder-embed-dim 16 --encoder-layers 2 --encoder-attention-heads 4 --encoder-ffn-embed-dim 16 "
TINY += "--word-embed-dim 16 --match-dim 8"


def test_encoding_all_pairs_and_search_are_measured_each_in_its_process(tmp_path):
    script = str(REPOSITORY / "examples" / "head_wise_match" / "throughput.py")
    words = ["--arch", "head_wise_match_transformer", "--arch-flags", TINY, "--vocabulary", "50", "--words", "3"]
    words += ["--sentences", "20", "--sizes", "10", "--corpus-rows", "100", "--queries", "2", "--top", "3", "--cpu"]
    words += ["--first-stages", "cosine", "--work", str(tmp_path), "--json", str(tmp_path / "t.json")]
    before = set(tmp_path.iterdir())
    run = subprocess.run(
        [find_python(), script, *words, "--markdown", str(tmp_path / "t.md")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    table = (tmp_path / "t.md").read_text()
    assert table in run.stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["encode", "20 sentences", "32"],
        ["all pairs", "10 x 10", "32"],
        ["search", "2 queries in 100, first stage cosine", "32"],
    ]
    for row in rows:
        assert float(row[4].replace(",", "")) > 0
        assert float(row[5].replace(",", "")) > 50  # MiB; a process with PyTorch has more
    record = json.loads((tmp_path / "t.json").read_text())
    assert record["settings"]["words"] == 3
    assert record["run"]["versions"]["torch"]
    # Data, model and corpus are gone.
    assert set(tmp_path.iterdir()) - before == {tmp_path / "t.json", tmp_path / "t.md"}
