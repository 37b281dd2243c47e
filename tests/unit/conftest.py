"""What tests of several rooms share: a tiny model, its exported folder, and the figures that are drawn."""

import pytest
from support.translation_models import save_translation_model

from muse_plugin_command import cli


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory):
    return save_translation_model(tmp_path_factory.mktemp("translation"))


@pytest.fixture(scope="session")
def exported(checkpoint_folder, tmp_path_factory):
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra 'export'")
    folder = tmp_path_factory.mktemp("exported") / "folder"
    words = ["export", "--path", str(checkpoint_folder), "--output", str(folder), "--licence", "CC0"]
    assert cli.main(words) == 0
    return folder


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
