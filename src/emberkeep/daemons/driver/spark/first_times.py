"""Reads from the Spark runtime when the application reached the milestones of the attempt's recovery trace."""

from __future__ import annotations

from collections.abc import Set

from emberkeep.jobmaster.ports import FirstTimes
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.model import FirstBatch

_OF_EXECUTORS = frozenset({Milestone.EXECUTOR_REGISTERED, Milestone.EXECUTORS_REGISTERED})
_OF_QUERIES = frozenset({Milestone.QUERY_STARTED, Milestone.QUERY_PLANNED, Milestone.BATCH_COMMITTED})


def first_times(runtime: DriverRuntime, milestones: Set[Milestone]) -> FirstTimes:
    """Return when these milestones were reached. Calls into the JVM for nothing else. Raises SparkUnavailable."""
    known = runtime.first_times()
    batch = known.batch() if milestones & _OF_QUERIES else FirstBatch()
    return FirstTimes(
        jvm_ms=known.jvm_ms() if Milestone.JVM_STARTED in milestones else None,
        context_ms=known.context_ms() if Milestone.CONTEXT_BEGUN in milestones else None,
        executors_ms=known.executors_ms() if milestones & _OF_EXECUTORS else (),
        stage_ms=known.stage_ms() if Milestone.STAGE_COMPLETED in milestones else None,
        query_ms=batch.query_ms,
        planned_ms=batch.planned_ms,
        committed_ms=batch.committed_ms,
    )
