"""BLEU against minutes of training, of the recipe multi30k."""

import re

import pytest
from support.helpers import assert_refused, load_program
from support.recipes import EXAMPLES, run_written_down

plot_curve = load_program(EXAMPLES / "multi30k" / "plot_curve.py")
Point = plot_curve.Point
# A fairseq-generate that translates as well as its checkpoint says.
GENERATE = """
while [ $# -gt 0 ]; do
  case "$1" in --path) path=$2 ;; --results-path) results=$2 ;; --gen-subset) subset=$2 ;; esac
  shift
done
mkdir -p "$results"
for line in 'S-0\ta' 'T-0\ta b c d e' "H-0\t-1\t$(cat "$path")" "D-0\t-1\t$(cat "$path")" 'P-0\t-1'; do
  printf "$line\\n"
done >"$results/generate-$subset.txt"
echo 'Generate valid with beam=5: BLEU4 = 1' >>"$results/generate-$subset.txt"
"""


def make_run(work, name, epochs, walls):
    run = work / name
    (run / "checkpoints").mkdir(parents=True)
    for epoch, words in epochs.items():
        (run / "checkpoints" / f"checkpoint{epoch}.pt").write_text(words)
    (run / "checkpoints" / "checkpoint_last.pt").write_text("none")
    lines = [f"d | INFO | train | epoch {epoch:03d} | loss 1 | train_wall {wall} | wall 9" for epoch, wall in walls]
    (run / "train.log").write_text("\n".join(lines) + "\n")
    (run / "settings.txt").write_text(f"model=muse\nseed={name[-1]}\n")
    (run / "times.tsv").write_text("train\t100\n")
    (run / "train-command.txt").write_text("fairseq-train")
    (run / ".train.done").touch()


def test_every_epoch_is_a_point_at_the_minutes_until_its_end(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    work = tmp_path / "work"
    # Epoch 2 of seed 1 was interrupted after it had been logged.
    make_run(work, "en-de-muse-seed1", {1: "x", 2: "a b c d x", 10: "a b c d e"}, [(1, 60), (2, 30), (2, 90), (10, 30)])
    make_run(work, "en-de-muse-seed2", {1: "a b c d x"}, [(1, 150)])
    for seed in "12":
        done = run_written_down(
            tmp_path, "multi30k", "curve", programs={"fairseq-generate": GENERATE}, MODEL="muse", SEED=seed
        )
        assert done.returncode == 0, done.stdout + done.stderr
    other = run_written_down(tmp_path, "multi30k", "curve", "--beam", "1", programs={}, MODEL="muse", SEED="1")
    assert_refused(other, "> generate_flags=--beam 1")
    rows = (work / "en-de-curve.md").read_text(encoding="utf-8").splitlines()
    assert rows[0].endswith("| minutes to 66.9 |")
    assert rows[2:] == ["| muse | 1 | 100.0 | 3.0 | 2.5 |", "| muse | 2 | 66.9 | 2.5 | 2.5 |"]
    figure = (work / "en-de-curve.svg").read_text(encoding="utf-8")
    assert len(re.findall("<!-- muse -->", figure)) == 1


def test_an_epoch_before_the_first_that_was_kept_may_have_been_as_good():
    curves = {("muse", "1"): [Point(9.0, 40.0, 8)], ("transformer", "1"): [Point(1.0, 30.0, 1), Point(2.0, 35.0, 2)]}
    rows = plot_curve.make_table(curves).splitlines()
    assert rows[2:] == ["| muse | 1 | 40.0 | 9.0 | at most 9.0 |", "| transformer | 1 | 35.0 | 2.0 | 2.0 |"]


def test_a_curve_needs_a_training(tmp_path):
    done = run_written_down(tmp_path, "multi30k", "curve", programs={}, MODEL="muse")
    assert_refused(done, "there is no finished training in")


def test_other_files_are_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "other.json").write_text('{"settings": {}}')
    words = [str(tmp_path / name) for name in ("other.json", "table.md", "figure.svg")]
    monkeypatch.setattr("sys.argv", ["plot_curve", words[0], "--table", words[1], "--output", words[2]])
    assert plot_curve.main() == 2
    assert "other.json must be written by curve.sh, but is not: KeyError" in capsys.readouterr().err
    assert not (tmp_path / "table.md").exists()
