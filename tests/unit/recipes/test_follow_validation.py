"""A training on the way: its validation next to the authors', and one warning where it is clearly off."""

import subprocess
import sys

import pytest
from support.helpers import REPOSITORY
from support.recipes import run_written_down

EXAMPLES = REPOSITORY / "examples"
PROGRAM = EXAMPLES / "recipe" / "follow_validation.py"
TITLE = "iwslt14_de_en"


def validation(updates, perplexity):
    return (
        f"2026-11-24 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 9.366 | nll_loss 8.791 | "
        f"ppl {perplexity} | wps 100 | wpb 9 | bsz 3 | num_updates {updates}"
    )


def follow(*lines, recipe="iwslt14_de_en", flags=("--warn",)):
    command = [
        sys.executable,
        str(PROGRAM),
        str(EXAMPLES / recipe / "published_validation.tsv"),
        "--title",
        TITLE,
        *flags,
    ]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line.startswith(TITLE)]


def test_each_epoch_is_compared_with_the_authors():
    lines = [validation(281, 440), validation(563, 210.5), validation(704, 150), validation(99, 3000)]
    assert follow(*lines) == [
        f"{TITLE}: validation perplexity 440.00 after 281 updates; the authors' MUSE: 442.89, in the end 4.66",
        f"{TITLE}: validation perplexity 210.50 after 563 updates; the authors' MUSE: 201.65, in the end 4.66",
        f"{TITLE}: validation perplexity 150.00 after 704 updates; the authors' MUSE: 155.72, in the end 4.66",
        f"{TITLE}: validation perplexity 3000.00 after 99 updates; the authors' MUSE in the end: 4.66",
    ]


def test_of_wmt14_en_de_only_the_best_is_published():
    (line,) = follow(validation(5000, 6.0), recipe="wmt14_en_de")
    assert line == f"{TITLE}: validation perplexity 6.00 after 5,000 updates; the authors' MUSE in the end: 3.75"


@pytest.mark.parametrize(
    ("updates", "perplexity", "warns"),
    [
        # The authors': 442.89 after 281, 201.65 after 563, 24.07 after 1,695, 8.43 after 3,110, 4.66 after 19,803.
        (563, 400, False),  # behind by fewer than half of the updates
        (563, 500, True),
        (3110, 15, False),
        (3110, 40, True),
        (281, 600, False),
        (281, 900, True),  # nothing earlier to compare with: twice
        (19803, 5.2, False),
        (19803, 6.5, True),
        (19803, "nan", True),
        (50, 100000, False),  # before their first validation
    ],
)
def test_a_run_that_is_clearly_off_is_told_so_once(updates, perplexity, warns):
    lines = follow(validation(updates, perplexity), validation(updates, perplexity))
    assert len([line for line in lines if "warning: this run is clearly behind the authors'" in line]) == warns
    assert not [line for line in follow(validation(updates, perplexity), flags=()) if "warning" in line]


def test_progress_is_shown_and_the_rest_is_not():
    shown = [
        validation(281, 440),
        "x | INFO | train_inner | epoch 001: 1 / 2 loss=1",
        "x | INFO | train | epoch 001 | loss 2",
    ]
    command = [sys.executable, str(PROGRAM), str(EXAMPLES / "wmt14_en_fr/published_validation.tsv"), "--title", TITLE]
    text = (
        "\n".join([shown[0], "x | INFO | fairseq.trainer | NOTE", *shown[1:], "x | valid | epoch 1 | valid on"]) + "\n"
    )
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True)
    own = [line for line in done.stdout.splitlines() if not line.startswith(TITLE)]
    assert own == [*shown, "x | valid | epoch 1 | valid on"]


def test_a_damaged_table_is_refused(tmp_path):
    path = tmp_path / "published_validation.tsv"
    path.write_text("epoch\tupdates\n1\t2\n")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(path), "--title", "x"], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"follow_validation: error: {path}, line 1: must have epoch, updates, valid_loss, "
        "valid_nll_loss, valid_ppl, separated by tabs.\n"
    )


@pytest.mark.parametrize(
    ("recipe", "kept", "settings", "compared", "warned"),
    [
        ("iwslt14_de_en", "merges=10000", {}, True, True),
        ("iwslt14_de_en", "merges=10000", {"MODEL": "transformer"}, True, False),
        ("iwslt14_de_en", "merges=10000", {"ROW": "no_ffn"}, True, False),
        ("iwslt14_de_en", "merges=8000", {}, False, False),
        ("iwslt14_de_en", "merges=10000\ndictionary=joined", {}, False, False),
        ("wmt14_en_fr", "merges=40000", {}, True, True),
        ("wmt14_en_fr", "merges=40000\nvalid=newstest", {}, False, False),
        ("wmt14_en_de", "merges=32000\nkind=published", {}, True, False),
        ("iwslt15_en_vi", "merges=10000", {}, False, False),
    ],
)
def test_train_says_how_its_validation_compares(tmp_path, recipe, kept, settings, compared, warned):
    data = tmp_path / "work" / "data"
    data.mkdir(parents=True)
    (data / "settings.txt").write_text(f"{kept}\ntrial=0\nflags=\n")
    (data / ".binarise.done").touch()
    program = f'echo "{validation(20000, 99)}"'
    done = run_written_down(tmp_path, recipe, "train", programs={"fairseq-train": program}, **settings)
    assert done.returncode == 0, done.stderr
    assert "valid on 'valid' subset" in done.stdout
    assert (f"{recipe}: validation perplexity 99.00 after 20,000 updates" in done.stdout) == compared
    assert (f"{recipe}: warning: this run is clearly behind" in done.stdout) == warned
