import sys

import pytest

from muse_plugin.evaluation.length_plot import draw_length_plot
from muse_plugin.results.figures import import_matplotlib

LABELS = ["1-15", "16-30", "31-45", ">45"]
COUNTS = [3200, 1100, 12, 0]
SCORES = [(35.8, 36.0), (33.4, 33.0), (32.1, 31.0), (None, None)]
OTHERS = [(35.0, 34.8), (32.7, 32.9), (31.7, 29.7), (None, None)]


def describe(**columns):
    """Scores by source length as ``muse-plugin evaluate`` has them."""
    columns = {"low": [1, 16, 31, 46], "high": [15, 30, 45, None], "num_sentences": COUNTS, **columns}
    buckets = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"unit": "words", "score": "tokenized_bleu", "buckets": buckets}


def draw(path, names=("MUSE", "Transformer"), scores=SCORES):
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    draw_length_plot(path, describe(scores=scores, versus_scores=OTHERS), names)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
def test_ending_chooses_the_format_and_the_same_data_give_the_same_file(tmp_path, ending, start):
    content = draw(tmp_path / f"a.{ending}")
    assert content.startswith(start)
    assert content == draw(tmp_path / f"b.{ending}")
    assert {path.name for path in tmp_path.iterdir()} == {f"a.{ending}", f"b.{ending}"}


def test_figure_has_a_line_for_each_system_and_all_counts(tmp_path, drawn):
    draw(tmp_path / "a.png")
    (figure,) = drawn
    upper, lower = figure.axes
    lines = [container.lines[0] for container in upper.containers]
    assert [line.get_ydata().tolist() for line in lines] == [
        pytest.approx([35.9, 33.2, 31.55]),
        pytest.approx([34.9, 32.8, 30.7]),
    ]
    labels = [text.get_text() for text in upper.get_legend().get_texts()]
    assert labels == ["MUSE (mean ± sd of 2)", "Transformer (mean ± sd of 2)"]
    assert [bar.get_height() for bar in lower.patches] == COUNTS
    assert [text.get_text() for text in lower.texts] == ["3,200", "1,100", "12", "0"]
    assert [tick.get_text() for tick in lower.get_xticklabels()] == LABELS
    assert lower.get_xlabel() == "source length in words"
    assert upper.get_ylabel() == "tokenised BLEU"


def test_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--plot must end in \.png, \.pdf, \.svg, but got .*a\.jpg"):
        draw_length_plot(tmp_path / "a.jpg", describe(scores=SCORES), ["MUSE"])


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"--plot needs matplotlib.*pip install matplotlib.*extra 'figures'"):
        import_matplotlib()


def test_names_are_no_formulas_and_none_is_left_out(tmp_path, drawn):
    draw(tmp_path / "a.png", [r"US$\a$", "_ours"])
    labels = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert labels == [r"US\$\a\$ (mean ± sd of 2)", " _ours (mean ± sd of 2)"]
