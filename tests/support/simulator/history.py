"""One history of everything that happened in a simulation, with a digest: same seed, same history."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.simulator.virtual_loop import VirtualLoop


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``routine`` ones (single messages) count for the digest but are rarely shown."""

    seconds: float
    process: str
    what: str
    routine: bool

    def __str__(self) -> str:
        return f"{self.seconds:10.4f}  {self.process:<26} {self.what}"


class History:
    """Events in order, violations of the properties, and counts of what has happened (for *sometimes* assertions)."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.on_step: list[Callable[[str, str], None]] = []  # process, what; see step

    def add(self, process: str, what: str, *, routine: bool = False) -> None:
        """Write down that something happened now."""
        self.events.append(Event(self._loop.time(), process, what, routine))

    def count(self, what: str) -> None:
        """Note that something interesting happened once more."""
        self.counts[what] += 1

    def step(self, process: str, what: str) -> None:
        """A process is about to do, or has just done, something that others or a disk can tell.

        Between two of its steps it changes nothing that outlives it; whoever listens may end it here.
        """
        for told in self.on_step:
            told(process, what)

    def violate(self, rule: str, what: str) -> None:
        """A property does not hold."""
        self.violations.append(f"{rule}: {what}")
        self.add("property", f"VIOLATED {rule}: {what}")

    def digest(self) -> str:
        """Hex digest of all events, routine ones included."""
        digest = hashlib.sha256()
        for event in self.events:
            digest.update(f"{event.seconds!r} {event.process} {event.what}\n".encode())
        return digest.hexdigest()

    def last(self, count: int, *, routine: bool = False) -> list[Event]:
        """The newest events, oldest first."""
        shown = self.events if routine else [event for event in self.events if not event.routine]
        return shown[-count:]
