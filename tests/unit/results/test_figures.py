"""Writing of figures: fonts for characters that matplotlib's own lacks."""

import logging
import warnings

import pytest

from muse_plugin.results import figures
from muse_plugin.results.figures import list_families, open_figure

pytest.importorskip("matplotlib", reason="needs the extra 'figures'")

ONLY_STIX_HAS_IT = "\ue000"  # of the fonts that matplotlib brings
NO_FONT_HAS_IT = "\U000f1234"


def draw(path, text):
    with open_figure(path, 1, 1) as figure:
        figure.text(0, 0, text)


def test_characters_without_a_glyph_are_warned_of_once(tmp_path, caplog, recwarn, monkeypatch):
    monkeypatch.setattr(figures, "_FALLBACKS", ())
    with caplog.at_level(logging.WARNING):
        draw(tmp_path / "a.png", f"a{ONLY_STIX_HAS_IT}b{NO_FONT_HAS_IT}{NO_FONT_HAS_IT}")
    (record,) = caplog.records
    assert record.getMessage() == (
        f"a.png shows boxes in place of 2 characters, such as {ONLY_STIX_HAS_IT}, which no installed font has; install "
        "one that does, such as Noto Sans CJK for Chinese, Japanese and Korean."
    )
    assert not recwarn.list


def test_another_installed_font_has_what_the_first_lacks(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(figures, "_FALLBACKS", ("No Such Font", "STIXNonUnicode"))
    assert list_families("DejaVu Sans") == ["DejaVu Sans", "STIXNonUnicode"]
    with caplog.at_level(logging.WARNING):
        draw(tmp_path / "a.png", f"a{ONLY_STIX_HAS_IT}")
    assert not caplog.records


class Complaining(pytest.importorskip("matplotlib.artist", reason="needs the extra 'figures'").Artist):
    def draw(self, renderer):
        warnings.warn("of another kind", UserWarning, stacklevel=1)


def test_other_warnings_of_drawing_are_not_lost(tmp_path, recwarn):
    with open_figure(tmp_path / "a.png", 1, 1) as figure:
        figure.set_layout_engine("none")
        figure.add_artist(Complaining())
    assert {str(warning.message) for warning in recwarn.list} == {"of another kind"}
