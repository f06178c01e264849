"""This process runs out of descriptors for a while, as one with a low ``ulimit -n`` does."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Let this process open only ``free`` more files at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    held = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    try:
        while held[-1] <= highest:  # the numbers below are taken, too
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + free, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
