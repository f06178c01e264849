"""A place for many directories that are built, opened and removed again: in memory, where a sync costs nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory, and remove it with everything in it."""
    in_memory = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="emberkeep-crashes-", dir=_MEMORY if in_memory else None) as place:
        yield Path(place)
