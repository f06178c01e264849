"""The output of a process: a file that only its user can read, and its end for an error message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from emberkeep.base.files.hostile import open_to_read

_BYTES = 8192
_LINES = 12


def private_output(path: Path) -> BinaryIO:
    """Open an empty file for a process's output, which only this process's user can read. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def last_lines(path: Path) -> str:
    """Return the last 12 lines that are not blank, from at most 8 KiB; "" if the file cannot be read, or is a link or
    does not belong to the owner of its directory."""
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
            data = file.read(_BYTES)
    except OSError:
        return ""
    text = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(text[-_LINES:])
