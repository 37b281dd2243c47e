"""What tests of several rooms share: the figures that are drawn."""

import pytest


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn while a test runs."""
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    import matplotlib.figure

    figures = []

    class Figure(matplotlib.figure.Figure):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            figures.append(self)

    monkeypatch.setattr(matplotlib.figure, "Figure", Figure)
    return figures
