"""The part of an attempt's recovery trace that its driver sees."""

from __future__ import annotations

import msgspec

from emberkeep.jobmaster.ports import FirstTimes
from emberkeep.jobs.traces.recovery_trace import Milestone, TraceReport

_FROM_SPARK = frozenset(
    {
        Milestone.JVM_STARTED,
        Milestone.CONTEXT_BEGUN,
        Milestone.EXECUTOR_REGISTERED,
        Milestone.EXECUTORS_REGISTERED,
        Milestone.STAGE_COMPLETED,
        Milestone.QUERY_STARTED,
        Milestone.QUERY_PLANNED,
        Milestone.BATCH_COMMITTED,
    }
)


class DriverTrace:
    """Milestones that this driver has reached, and what JobManagers have added. Decides nothing, reads no clock.

    ``zero``: monotonic seconds from which the milestones are measured. The first time of each milestone counts.
    """

    def __init__(self, zero: float) -> None:
        self._zero = zero
        self._milestones: dict[str, float] = {}
        self._started_before: set[Milestone] = set()  # what this attempt found ready
        self._added = TraceReport()

    def missing(self) -> frozenset[Milestone]:
        """Return the milestones that Spark must be asked for."""
        return frozenset(each for each in _FROM_SPARK if each.value not in self._milestones) - self._started_before

    def note(self, milestone: Milestone, at: float) -> bool:
        """Note that a milestone was reached at ``at`` (monotonic seconds). Return True if that is new."""
        if milestone.value in self._milestones:
            return False
        self._milestones[milestone.value] = at - self._zero
        return True

    def see(self, times: FirstTimes, wanted: int, now: float, now_ms: int) -> bool:
        """Note what Spark reports. Return True if a milestone is new.

        ``wanted``: number of executors that the job wants. ``now`` and ``now_ms``: one moment in monotonic seconds and
        in Unix milliseconds, the unit of Spark's times.
        """
        executors = sorted(times.executors_ms)
        found = {
            Milestone.JVM_STARTED: times.jvm_ms,
            Milestone.CONTEXT_BEGUN: times.context_ms,
            Milestone.EXECUTOR_REGISTERED: executors[0] if executors else None,
            Milestone.EXECUTORS_REGISTERED: executors[wanted - 1] if 0 < wanted <= len(executors) else None,
            Milestone.STAGE_COMPLETED: times.stage_ms,
            Milestone.QUERY_STARTED: times.query_ms,
            Milestone.QUERY_PLANNED: times.planned_ms,
            Milestone.BATCH_COMMITTED: times.committed_ms,
        }
        reached = {each: now - (now_ms - at_ms) / 1000 for each, at_ms in found.items() if at_ms is not None}
        if reached.get(Milestone.JVM_STARTED, self._zero) < self._zero:
            self._started_before.add(Milestone.JVM_STARTED)
            del reached[Milestone.JVM_STARTED]
        noted = [self.note(milestone, at) for milestone, at in reached.items()]
        return any(noted)

    def add(self, told: TraceReport) -> None:
        """Add what the JobManager knows about this attempt, to repeat it to the next leader."""
        self._added = msgspec.structs.replace(told, milestones=self._added.milestones | told.milestones)

    def report(self, now: float) -> TraceReport:
        """Return the whole trace as known here."""
        milestones = self._added.milestones | self._milestones
        return msgspec.structs.replace(self._added, age=max(0.0, now - self._zero), milestones=milestones)
