"""The end of a log, for an error message."""

from __future__ import annotations

from pathlib import Path

_BYTES = 8192
_LINES = 12


def last_lines(path: Path) -> str:
    """Return the last 12 lines that are not blank, from at most 8 KiB; "" if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _BYTES))
            data = file.read(_BYTES)
    except OSError:
        return ""
    text = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(text[-_LINES:])
