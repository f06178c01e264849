"""Measure how long a command takes."""

from __future__ import annotations

import time

from emberkeep.cli.wording import duration


class Stopwatch:
    """The time since the stopwatch was created."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __str__(self) -> str:
        """Return that time as "after 3.2s"."""
        return f"after {duration(int((time.monotonic() - self._began) * 1000))}"
