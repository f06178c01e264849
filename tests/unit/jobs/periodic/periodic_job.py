"""A job with periodic savepoints around the state machine: it makes them, writes records and deletes files."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer, after_retention, merged
from emberkeep.jobs.periodic.machine import PeriodicSavepoints
from emberkeep.jobs.periodic.model import (
    DeleteFiles,
    Effect,
    Explain,
    JobFacts,
    MakeSavepoint,
    PeriodicSettings,
    WriteRetention,
)

BEGAN_MS = 1_700_000_000_000
QUERIES = frozenset({"query 1"})
HOUR = 3600.0


def settings(interval: float = HOUR, retained: int = 3, max_age: float = 0.0) -> PeriodicSettings:
    return PeriodicSettings(interval=interval, retained=retained, max_age=max_age)


def savepoint(
    number: int, created_ms: int = BEGAN_MS, *, periodic: bool = True, retired_ms: int = 0
) -> SavepointPointer:
    return SavepointPointer(
        path=f"/savepoints/{number}",
        manifest_sha256=f"{number:064x}",
        created_ms=created_ms,
        trigger_id=f"{number:032x}",
        periodic=periodic,
        retired_ms=retired_ms,
    )


@dataclass
class PeriodicJob:
    """``files``: paths of the savepoints that exist. ``pointers``: as the job store has them."""

    settings: PeriodicSettings = field(default_factory=settings)
    now: float = 1000.0
    ms: int = BEGAN_MS
    attempt: int = 1
    queries: frozenset[str] = QUERIES
    is_free: bool = True
    needed: set[str] = field(default_factory=set)
    pointers: JobPointers = field(default_factory=JobPointers)
    files: set[str] = field(default_factory=set)
    made_ms: list[int] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    number: int = 0
    spread: float = 0.0

    def __post_init__(self) -> None:
        self.machine = self.take_over()

    def take_over(self) -> PeriodicSavepoints:
        """Let another leader decide from now on, with what the job store has."""
        self.machine = PeriodicSavepoints(
            self.settings,
            self.pointers.savepoints,
            self.attempt,
            BEGAN_MS,
            spread=self.spread,
            now=self.now,
            ms=self.ms,
        )
        return self.machine

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.ms += round(seconds * 1000)

    def look(self, seconds: float = 0.0) -> list[Effect]:
        """Let time pass, and look at the job. Carry out nothing."""
        self.passes(seconds)
        facts = JobFacts(attempt=self.attempt, is_free=self.is_free, queries=self.queries)
        effects = self.machine.looked(facts, lambda path: path in self.needed, now=self.now, ms=self.ms)
        self.explained += [each.reason for each in effects if isinstance(each, Explain)]
        self.machine.check_invariants()
        return effects

    def works(self, seconds: float, step: float = 60.0) -> None:
        """Let time pass in steps, and carry out at once what is decided."""
        for _ in range(round(seconds / step)):
            for effect in self.look(step):
                self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case MakeSavepoint():
                self.make()
            case WriteRetention():
                self.write(effect)
            case DeleteFiles(doomed, _):
                self.files.discard(doomed.path)
                self.machine.deleted(doomed.path)

    def make(self, *, periodic: bool = True) -> SavepointPointer:
        """A savepoint that was asked for becomes complete."""
        self.number += 1
        made = savepoint(self.number, self.ms, periodic=periodic)
        self.files.add(made.path)
        self.pointers = merged(self.pointers, 1, (), (made,))
        if periodic:
            self.made_ms.append(self.ms)
            self.machine.made(made, now=self.now, ms=self.ms)
        return made

    def write(self, effect: WriteRetention) -> None:
        retired, gone = {each.path for each in effect.retired}, {each.path for each in effect.gone}
        self.pointers = after_retention(self.pointers, retired, gone, self.ms)
        self.machine.written(self.ms)

    def kept(self) -> list[str]:
        return [each.path for each in self.pointers.savepoints if not each.retired_ms]
