"""Loads the Python files of examples/recipe, which are no package."""

import importlib.util

import pytest
from support.helpers import REPOSITORY


def load(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", REPOSITORY / "examples" / "recipe" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def corpus():
    return load("corpus")


@pytest.fixture(scope="session")
def download():
    return load("download")


@pytest.fixture(scope="session")
def tabulate():
    return load("tabulate")


@pytest.fixture(scope="session")
def scaling():
    return load("scaling")
