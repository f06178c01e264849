"""When a SparkContext, its executors and its streaming queries reached their first milestones, as recorded by Spark.

All times are Unix milliseconds of the driver's machine. None: not yet reached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from emberkeep.spark.executors.blocks import DRIVER
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.model import FirstBatch
from emberkeep.spark.queries.script_queries import ScriptQueries

_BEFORE_TASKS = ("latestOffset", "walCommit", "getBatch", "queryPlanning")  # steps of a batch before its tasks run


class FirstTimes:
    """Reads the times of one SparkContext. All methods raise SparkUnavailable."""

    def __init__(self, context: Any, queries: ScriptQueries) -> None:
        self._context = context
        self._queries = queries

    def jvm_ms(self) -> int:
        """Return when the JVM was started."""
        management = self._context._jvm.java.lang.management.ManagementFactory
        return int(call("start of the JVM", lambda: management.getRuntimeMXBean().getStartTime()))

    def context_ms(self) -> int:
        """Return when the JVM began to make the SparkContext."""
        return int(call("start of the SparkContext", lambda: self._context._jsc.sc().startTime()))

    def executors_ms(self) -> tuple[int, ...]:
        """Return when each executor that is active now has registered."""

        def ask() -> tuple[int, ...]:
            listed = self._context._jsc.sc().statusStore().executorList(True)
            executors = (listed.apply(index) for index in range(listed.size()))
            return tuple(int(each.addTime().getTime()) for each in executors if each.id() != DRIVER)

        times: tuple[int, ...] = call("registrations of executors", ask)
        return times

    def stage_ms(self) -> int | None:
        """Return when the application's first stage was completed."""
        from py4j.protocol import Py4JJavaError

        def ask() -> int | None:
            try:
                completed = self._context._jsc.sc().statusStore().lastStageAttempt(0).completionTime()
            except Py4JJavaError:
                return None  # no stage has been submitted, or Spark has forgotten the first one
            return int(completed.get().getTime()) if completed.isDefined() else None

        time_ms: int | None = call("first stage", ask)
        return time_ms

    def batch(self) -> FirstBatch:
        """Return when the first query was started, and when the first batch of any query was planned and committed."""
        found = [times for query in self._queries.all() if (times := _first_batch(query.handle)) is not None]
        planned_ms, committed_ms = min(found, key=lambda times: times[1], default=(None, None))
        return FirstBatch(self._queries.first_start_ms, planned_ms, committed_ms)


def _first_batch(handle: Any) -> tuple[int, int] | None:
    """Return when the first micro-batch of a query was planned and committed."""

    def ask() -> tuple[int, int] | None:
        reports = handle._jsq.recentProgress()
        decoded = (json.loads(reports[index].json()) for index in range(len(reports)))
        return next((times for report in decoded if (times := batch_times(report)) is not None), None)

    times: tuple[int, int] | None = call("first micro-batch", ask)
    return times


def batch_times(report: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return when the batch of a progress report was planned and committed; None if no batch ran."""
    lasted = report.get("durationMs", {})
    if "addBatch" not in lasted:
        return None
    begun_ms = round(datetime.fromisoformat(str(report["timestamp"])).timestamp() * 1000)
    planned_ms = begun_ms + sum(int(lasted.get(step, 0)) for step in _BEFORE_TASKS)
    return planned_ms, max(planned_ms, begun_ms + int(report.get("batchDuration", 0)))
