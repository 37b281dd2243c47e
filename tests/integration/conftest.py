"""Data that trainings share."""

import pytest
from support.fairseq_commands import make_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Binarised sentences; those of the test set are no multiple of 8, of which fairseq alone would lose some."""
    return make_data(tmp_path_factory.mktemp("data"), {"train": 60, "valid": 11, "test": 13})
