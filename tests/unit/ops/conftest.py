"""Fixtures for tests of operations."""

import importlib.util

import pytest
import torch


@pytest.fixture
def triton_on_cpu():
    """Triton's interpreter, which ``tests/conftest.py`` turns on where there is no GPU."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip('needs Triton: pip install -e ".[triton]"')
    if torch.cuda.is_available():
        pytest.skip("kernels are compiled where there is a GPU; see tests/gpu")
