"""Fixtures for all tests. What cannot run here is skipped inside a fixture, never at import."""

import importlib.util
import logging
import os
import random
import signal

import numpy
import pytest
import torch

# The matrices here are tiny: more threads only wait for each other. Processes that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
# A shell ignores Ctrl-C for what it starts in the background, and processes that tests start inherit that as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Without a GPU, Triton's kernels run in its interpreter; Triton asks for this when it is first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="cuda: only tests that can put their tensors there, and there")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--device") != "cpu":
        others = [item for item in items if "device" not in item.fixturenames]
        items[:] = [item for item in items if "device" in item.fixturenames]
        config.hook.pytest_deselected(items=others)


@pytest.fixture(autouse=True)
def seed():
    """Gives every test the same random numbers; learning tests choose their own seeds on top."""
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    return 1


LOGGERS = ("fairseq", "muse_plugin", "muse_plugin.tasks")


@pytest.fixture(scope="session", autouse=True)
def first_log_levels():
    """The levels of loggers before any command has silenced them, also one in a fixture that many tests share."""
    return {name: logging.getLogger(name).level for name in LOGGERS}


@pytest.fixture(autouse=True)
def log_levels(first_log_levels):
    """Gives back the levels of loggers that commands silence, so that no test depends on those before it."""

    def restore():
        for name, level in first_log_levels.items():
            logging.getLogger(name).setLevel(level)
        # Where importing fairseq has left DEBUG for the whole process, each server would log its selector.
        logging.getLogger("asyncio").setLevel(logging.INFO)

    restore()
    yield
    restore()


@pytest.fixture
def device(request):
    """The device asked for by ``--device``."""
    name = request.config.getoption("--device")
    if name.startswith("cuda") and not torch.cuda.is_available():
        pytest.fail(f"--device {name} needs a GPU that torch can use")
    return torch.device(name)


@pytest.fixture
def on_device(device, monkeypatch):
    """New tensors are on the device asked for by ``--device``; convolutions there are as exact as on a CPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.set_default_device(device)
    yield
    torch.set_default_device(None)


@pytest.fixture
def cuda():
    """A GPU, for tests that make no sense without."""
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    return torch.device("cuda")


@pytest.fixture
def triton(cuda):
    """Triton, together with the GPU that it needs."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton")
    return cuda


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory):
    """A tiny translation model that was never trained, with its text pipeline: to read, or to copy."""
    from support.translation_models import save_translation_model

    return save_translation_model(tmp_path_factory.mktemp("translation"))


@pytest.fixture(scope="session")
def exported(checkpoint_folder, tmp_path_factory):
    """The same as an exported folder."""
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra 'export'")
    from muse_plugin_command import cli

    folder = tmp_path_factory.mktemp("exported") / "folder"
    words = ["export", "--path", str(checkpoint_folder), "--output", str(folder), "--licence", "CC0"]
    assert cli.main(words) == 0
    return folder
