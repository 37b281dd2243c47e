"""Loads the Python files of examples/recipe, which are no package."""

import pytest
from support.helpers import REPOSITORY, load_program

TOOLS = REPOSITORY / "examples" / "recipe"


@pytest.fixture(scope="session")
def corpus():
    return load_program(TOOLS / "corpus.py")


@pytest.fixture(scope="session")
def download():
    return load_program(TOOLS / "download.py")


@pytest.fixture(scope="session")
def results_table():
    return load_program(TOOLS / "results_table.py")


@pytest.fixture(scope="session")
def scaling():
    return load_program(TOOLS / "scaling.py")
