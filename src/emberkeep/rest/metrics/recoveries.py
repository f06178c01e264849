"""Metrics of recovery traces: how long attempts take to reach each milestone, and how their processes were started."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.traces.recovery_trace import Milestone, RecoveryCause, RecoveryTrace
from emberkeep.slots.model import ProcessStart

_SECONDS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_CAUSES = {RecoveryCause.SUBMISSION: "submission", RecoveryCause.MOVED: "move"}  # all others: failure

_Counted = dict[tuple[JobId, int], frozenset[Milestone]]


class RecoveryMetrics:
    """Counts each milestone of each attempt once, by comparing successive views of all jobs.

    What an attempt had begun under an earlier leader does not count: that leader has counted it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "emberkeep_recovery_seconds",
            "Time to a milestone of an attempt's start, from the submission or the loss of the previous attempt.",
            ["milestone", "cause"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._starts = Counter(
            "emberkeep_driver_starts_total",
            "Processes of drivers by how task managers got them: started cold, or taken from hot standbys.",
            ["start"],
            registry=registry,
        )
        for start in ProcessStart:
            self._starts.labels(start.value)
        self._counted: _Counted = {}

    def observe(self, jobs: Sequence[JobView], started_ms: int) -> None:
        """Count what is new in the traces. ``started_ms``: when this JobManager became the leader."""
        counted: _Counted = {}
        for job in jobs:
            for trace in job.traces:
                key = (job.job_id, trace.attempt)
                counted[key] = self._count(trace, self._counted.get(key, frozenset()), started_ms)
        self._counted = counted

    def _count(self, trace: RecoveryTrace, before: frozenset[Milestone], started_ms: int) -> frozenset[Milestone]:
        if not trace.is_complete_from_the_beginning or trace.cause is None or trace.began_ms < started_ms:
            return before
        new = [reached for reached in trace.milestones if reached.milestone not in before]
        cause = _CAUSES.get(trace.cause, "failure")
        for reached in new:
            self._seconds.labels(reached.milestone.value, cause).observe(reached.seconds)
            if reached.milestone is Milestone.PROCESS_STARTED and trace.start is not None:
                self._starts.labels(trace.start.value).inc()
        return before.union(reached.milestone for reached in new)
