"""The clock port. Actors wait with asyncio (whose loop the simulator replaces) and read wall time here."""

from __future__ import annotations

import time
from typing import Protocol

# Only Linux tells the time that a machine has slept.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds since the machine's boot, its sleep included: they pass also while this process is stopped."""
    return time.clock_gettime(_BOOT_CLOCK)


class Clock(Protocol):
    """Two readings; neither is ever taken inside a pure domain package, which gets ``now`` as an argument."""

    def now_ms(self) -> int:
        """Wall clock in Unix milliseconds: for people and records, never for measuring."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back: for deadlines and durations."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
