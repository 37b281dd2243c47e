"""Data for trainings that something disturbs."""

import pytest
from support.fairseq_commands import make_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The binarised pairs of a translation task; the text is next to the folder."""
    return make_data(tmp_path_factory.mktemp("data"), {"train": 40, "valid": 8})
