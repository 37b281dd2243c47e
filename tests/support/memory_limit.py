"""A limit on memory, so that a file which would fill it fails a test instead of the machine."""

import contextlib
import sys
import time
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def limited_memory(more: int = 100 << 20) -> Iterator[None]:
    """Lets this process take at most so many bytes beyond those that it has; allocations fail then.

    Args:
        more: bytes of addresses, which counts what is reserved, used or not.
    """
    if sys.platform != "linux":
        pytest.skip("limits the memory of a process by what Linux says of it")
    import resource

    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def budget() -> Iterator[None]:
    """At most 300 MiB more than this process has, and 10 seconds of a processor."""
    start = time.process_time()
    with limited_memory(300 << 20):
        yield
    assert time.process_time() - start < 10
