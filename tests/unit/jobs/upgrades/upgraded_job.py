"""The jobs of an upgrade around its state machine: they stop, start, commit batches, fail and end."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph, JobStatus
from emberkeep.jobs.upgrades.machine import UpgradeMachine
from emberkeep.jobs.upgrades.model import (
    AskStop,
    CancelJob,
    Effect,
    Facts,
    QueryFacts,
    StopFacts,
    StopState,
    SubmitJob,
    Upgrade,
    UpgradePhase,
    VersionFacts,
    WriteUpgrade,
)
from tests.support.contracts.job_store import upgrade

OLD, NEW, BACK = upgrade(1).jobs
SAVEPOINT = "/savepoints/1"
UNKNOWN = VersionFacts(is_known=False)
UNASKED = StopFacts(state=StopState.UNKNOWN)
RUNNING = VersionFacts(is_known=True, status=JobStatus.RUNNING, attempt=1)


def query(batch: int, *, has_rows: bool = True, waits: bool = False, location: str = "/c/1") -> QueryFacts:
    return QueryFacts(name="counts", location=location, batch=batch, has_rows=has_rows, waits=waits)


@dataclass
class UpgradedJob:
    """``stored``: the record as the job store has it. ``accepted``: graphs of the jobs that were submitted.

    ``ms``: of the leader's wall clock, which may be set; ``now``: of its monotonic clock.
    """

    stored: Upgrade = field(default_factory=lambda: upgrade(1))
    ms: int = 1000
    now: float = 7.0
    stop: StopFacts = UNASKED
    jobs: dict[JobId, VersionFacts] = field(default_factory=lambda: {OLD: RUNNING})
    accepted: list[JobGraph] = field(default_factory=list)
    asked: int = 0
    canceled: list[JobId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.take_over()

    def take_over(self) -> None:
        """Let the next leader continue from the record."""
        self.machine = UpgradeMachine(self.stored)

    @property
    def phase(self) -> UpgradePhase:
        return self.stored.phase

    def at(self) -> UpgradePhase:
        """Return the phase. A call, so that the type checker does not keep what it was."""
        return self.phase

    def look(self, seconds: float = 0.0) -> list[Effect]:
        self.ms += round(seconds * 1000)
        self.now += seconds
        known = {job_id: self.jobs.get(job_id, UNKNOWN) for job_id in (OLD, NEW, BACK)}
        facts = Facts(stop=self.stop, old=known[OLD], new=known[NEW], back=known[BACK])
        return self.machine.looked(facts, now=self.now, ms=self.ms)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case WriteUpgrade(record):
                self.stored = record
                self.machine.written()
            case AskStop():
                self.asked += 1
                self.stop = StopFacts(state=StopState.OPEN)
            case SubmitJob(graph):
                if graph.job_id not in self.jobs:
                    self.accepted.append(graph)
                    self.jobs[graph.job_id] = VersionFacts(is_known=True, status=JobStatus.CREATED)
                self.machine.submitted()
            case CancelJob(job_id):
                self.canceled.append(job_id)
                if not self.jobs[job_id].has_ended:
                    self.change(job_id, status=JobStatus.CANCELLING)
                self.machine.cancel_recorded()

    def step(self, seconds: float = 0.0) -> list[Effect]:
        """Look once, and carry out what is decided."""
        effects = self.look(seconds)
        for effect in effects:
            self.carry_out(effect)
        self.machine.check_invariants()
        return effects

    def steps(self) -> UpgradePhase:
        """Look until nothing more is decided."""
        while self.step():
            continue
        return self.phase

    def change(self, job_id: JobId, **changes: object) -> None:
        self.jobs[job_id] = msgspec.structs.replace(self.jobs.get(job_id, RUNNING), **changes)

    def end(self, job_id: JobId, status: JobStatus, cause: str = "") -> None:
        self.change(job_id, status=status, is_over=True, cause=cause, queries=())

    def stopped(self) -> None:
        """Complete the savepoint, and let the old job end."""
        self.stop = StopFacts(state=StopState.MADE, savepoint=SAVEPOINT)
        self.end(OLD, JobStatus.FINISHED)

    def runs(self, *queries: QueryFacts, attempt: int = 1) -> None:
        """Let the new job run with these queries."""
        self.change(NEW, status=JobStatus.RUNNING, attempt=attempt, queries=queries)


def watched() -> UpgradedJob:
    """Return an upgrade whose new job has just been accepted."""
    job = UpgradedJob()
    job.steps()
    job.stopped()
    assert job.steps() is UpgradePhase.WATCHING
    return job
