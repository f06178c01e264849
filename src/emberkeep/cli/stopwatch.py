"""How long a command took."""

from __future__ import annotations

import time

from emberkeep.cli.wording import duration


class Stopwatch:
    """Runs from its making on."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __str__(self) -> str:
        """ "after 3.2s"."""
        return f"after {duration(int((time.monotonic() - self._began) * 1000))}"
