"""Feed flights as files from a process of its own, as a real source would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def feeding(directory: Path, files: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Publish all flights into ``directory`` over ``seconds``. Leaving the context ends the feed."""
    command = [sys.executable, str(ROOT / "examples/flights/feed.py"), "--output", str(directory)]
    feed = subprocess.Popen(
        [*command, "--files", str(files), "--duration", str(seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield feed
    finally:
        feed.terminate()
        feed.wait()
