"""What tests of several levels need."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a driver."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()
