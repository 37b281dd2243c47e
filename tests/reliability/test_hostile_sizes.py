"""Files that claim more than they hold, or hold what nobody expects: refused in one sentence, and soon.

``budget`` is what a file may cost before it is refused, whatever is in it.
"""

import contextlib
import io
import time
import zipfile

import pytest
import torch
from support.memory_limit import limited_memory

from muse_plugin.checkpoints.safe_loading import load_checkpoint

SHORT = 1000  # characters of a sentence


@contextlib.contextmanager
def budget():
    """At most 300 MiB more than this process has, and 10 seconds of a processor."""
    start = time.process_time()
    with limited_memory(300 << 20):
        yield
    assert time.process_time() - start < 10


class Call:
    """Pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


# ---- archives --------------------------------------------------------------------------------------------------------


def parts_of(state):
    """The parts of an archive of torch, by name."""
    file = io.BytesIO()
    torch.save(state, file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("double", ["archive/data.pkl", "archive/DATA.PKL", "archive/data/0", "archive/Data/0"])
def test_two_parts_of_one_name_are_refused_also_when_their_case_differs(tmp_path, double):
    harmless = parts_of({"model": {"w": torch.zeros(2)}})
    bomb = parts_of({"model": {"w": torch.zeros(2)}, "x": Call(bytearray, 1 << 31)})
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr(double, bomb["archive/data.pkl"] if "data.pkl" in double.lower() else b"\0" * 8)
        for name, content in harmless.items():
            archive.writestr(name, content)
    with budget(), pytest.raises(ValueError, match=rf"more than one part named {double.lower()}"):
        load_checkpoint(tmp_path / "a.pt")

