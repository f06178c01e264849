"""One history of everything that happened in a simulation, with a digest: same seed, same history."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.simulator.virtual_loop import VirtualLoop


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``routine`` events (single messages) enter the digest but are shown only on request."""

    seconds: float
    process: str
    what: str
    routine: bool

    def __str__(self) -> str:
        return f"{self.seconds:10.4f}  {self.process:<26} {self.what}"


class History:
    """Events in order, violations of the properties, and counts of what happened (for *sometimes* assertions)."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.on_step: list[Callable[[str, str], None]] = []  # process, what; see step
        self.on_judged: list[Callable[[str, str], None]] = []  # rule, id of the job or ""; see judged

    def add(self, process: str, what: str, *, routine: bool = False) -> None:
        """Record an event at the current time."""
        self.events.append(Event(self._loop.time(), process, what, routine))

    def count(self, what: str) -> None:
        """Count one more occurrence of ``what``."""
        self.counts[what] += 1

    def step(self, process: str, what: str) -> None:
        """Record that a process is about to do, or has just done, something visible to other processes or on a disk.

        Between two of its steps a process changes nothing that outlives it. A listener may end the process here.
        """
        for told in self.on_step:
            told(process, what)

    def judged(self, rule: str, job_id: str = "") -> None:
        """Report that ``rule`` was applied to something that could have broken it. ``job_id``: "" if to no single job.

        For measuring what a run has shown: a rule that met no occasion has shown nothing.
        """
        for told in self.on_judged:
            told(rule, job_id)

    def violate(self, rule: str, what: str) -> None:
        """Record that a property does not hold."""
        self.violations.append(f"{rule}: {what}")
        self.add("property", f"VIOLATED {rule}: {what}")

    def digest(self) -> str:
        """Return a hex digest of all events, including routine ones."""
        digest = hashlib.sha256()
        for event in self.events:
            digest.update(f"{event.seconds!r} {event.process} {event.what}\n".encode())
        return digest.hexdigest()

    def last(self, count: int, *, routine: bool = False) -> list[Event]:
        """Return the newest ``count`` events, oldest first."""
        shown = self.events if routine else [event for event in self.events if not event.routine]
        return shown[-count:]
