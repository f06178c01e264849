"""Time limits for the steps of a procedure, such as a savepoint or a drain."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """The time at which a wait ends. ``at``: in ``time.monotonic()`` seconds; None to wait without a limit."""

    at: float | None = None

    @property
    def is_over(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the limit, at least 0.0; None without a limit."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())


NO_LIMIT = Limit()
