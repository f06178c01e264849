"""Waiting for what other processes do: on a condition, with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 240.0  # seconds; generous, as no test waits for it when all is well
_POLL = 0.1


def until(
    look: Callable[[], T | None], what: str | Callable[[], str], seconds: float = DEADLINE, pause: float = _POLL
) -> T:
    """The first true value of ``look``. Fails with ``what`` was waited for. ``pause``: seconds between two looks."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause)


def wait_until_stopped(pid: int) -> None:
    """Return once each thread of a process stands still after SIGSTOP: one that runs stops a moment later."""
    until(lambda: {"T"}.issuperset(_states(pid)), f"process {pid} stands still", pause=0.01)


def _states(pid: int) -> list[str]:
    """The states of a process's threads, as letters."""
    states = []
    for thread in Path("/proc", str(pid), "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states
