"""The clock port. Actors wait with asyncio (whose loop the simulator replaces) and read the time here."""

from __future__ import annotations

import time
from typing import Final, Protocol

MOST_MS: Final = 253_402_300_800_000  # Unix milliseconds: the year 10000, after every time that can be written as text

# Only Linux has a clock that includes the time that a machine was suspended.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return the seconds since the machine's boot.

    Time counts even if the machine is suspended or this process is stopped.
    """
    return time.clock_gettime(_BOOT_CLOCK)


def boot_ms() -> int:
    """Return ``since_boot`` in milliseconds: a time that processes of one machine share, and that nobody can set."""
    return int(since_boot() * 1000)


class Clock(Protocol):
    """Reads monotonic and wall-clock time.

    Pure domain packages read no clock: they get ``now`` as an argument.
    """

    def now_ms(self) -> int:
        """Return the wall-clock time in Unix milliseconds, for display and records, not for measuring durations."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never go back: for deadlines and durations."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
