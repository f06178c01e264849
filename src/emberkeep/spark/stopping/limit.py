"""For how long something may go on."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """How long something may be waited for. ``at``: of ``time.monotonic()``; None: as long as it takes."""

    at: float | None = None

    @property
    def is_over(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    @property
    def seconds_left(self) -> float | None:
        """None: without a bound."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())


NO_LIMIT = Limit()
