"""Read jobs, stages and executors from Spark's status store, which Spark fills from its own listener events."""

from __future__ import annotations

import json
import math
from typing import Any

from emberkeep.jobs.progress.work import STAGES_KEPT
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.work.decoding import Report

_MEDIAN_AND_SLOWEST = (0.5, 1.0)  # quantiles
_LAUNCH_TIME = "lt"  # the name of an index of Spark's tasks (TaskIndexNames.LAUNCH_TIME)
_EVENT_PATIENCE_MS = 2000
_FAILED_TASKS = 100  # of a stage, which are read
_EXECUTIONS = 20  # SQL executions, the newest ones, among which that of a stage is looked for


class StatusStore:
    """Spark's status store of one SparkContext. All methods raise SparkUnavailable.

    Whole lists cross from the JVM as JSON, in the form of Spark's REST API: a call for each number of each executor
    would take too long.
    """

    def __init__(self, context: Any) -> None:
        self.app_id = str(context.applicationId)
        self._context = context
        self._json: Any = None

    def is_of(self, context: Any) -> bool:
        """True if this is the status store of ``context``."""
        return self._context is context

    def active_jobs(self) -> list[Report]:
        def ask() -> Any:
            jvm = self._context._jvm
            statuses = jvm.java.util.ArrayList()
            statuses.add(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
            return self._decoded(self._store().jobsList(statuses))

        return list(call("active jobs", ask))

    def completed(self) -> tuple[int, int]:
        """Return how many jobs and stages the application has completed."""

        def ask() -> tuple[int, int]:
            summary = self._store().appSummary()
            return int(summary.numCompletedJobs()), int(summary.numCompletedStages())

        counts: tuple[int, int] = call("completed jobs", ask)
        return counts

    def executors(self) -> list[Report]:
        """Return the executors, active and dead, with what their tasks have done."""
        return list(call("executors", lambda: self._decoded(self._store().executorList(False))))

    def active_stages(self) -> tuple[int, list[Report]]:
        """Return how many stages are active, and the first STAGES_KEPT of them."""

        def ask() -> tuple[int, Any]:
            stages = self._store().activeStages()
            return int(stages.size()), self._decoded(stages.take(STAGES_KEPT))

        count, reports = call("active stages", ask)
        return count, list(reports)

    def stage(self, stage_id: int) -> Report | None:
        """Return the newest attempt of a stage; None if Spark has forgotten it."""
        from py4j.protocol import Py4JJavaError

        def ask() -> Report | None:
            try:
                report: Report = self._decoded(self._store().lastStageAttempt(stage_id))
            except Py4JJavaError:
                return None
            return report

        found: Report | None = call("stage", ask)
        return found

    def graph(self, stage_id: int) -> str:
        """Return the graph of a stage's RDDs, as the Spark UI draws it, in DOT; "" if this Spark has none of it."""
        from py4j.protocol import Py4JError, Py4JNetworkError

        def ask() -> str:
            try:
                graph = self._store().operationGraphForStage(stage_id)
                return str(self._context._jvm.org.apache.spark.ui.scope.RDDOperationGraph.makeDotFile(graph))
            except Py4JNetworkError:
                raise
            except (Py4JError, TypeError):  # it has forgotten the stage, or has no such method
                return ""

        return str(call("graph of a stage", ask))

    def execution(self, stage_id: int) -> str:
        """Return the description of the SQL execution of a stage: what the script called; "" if there is none."""
        from py4j.protocol import Py4JError, Py4JNetworkError

        def ask() -> str:
            try:
                session = self._context._jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
                if not session.isDefined():
                    return ""
                store = session.get().sharedState().statusStore()
                found = store.executionsList(max(0, store.executionsCount() - _EXECUTIONS), _EXECUTIONS)
                for index in reversed(range(found.size())):
                    execution = found.apply(index)
                    if execution.stages().contains(stage_id):
                        return str(execution.description() or "")
            except Py4JNetworkError:
                raise
            except (Py4JError, TypeError):  # it has forgotten the execution, or has no such method
                pass
            return ""

        return str(call("SQL execution of a stage", ask))

    def durations(self, stage_id: int, stage_attempt: int) -> tuple[int, int]:
        """Return how long the median and the slowest task of a stage ran that have succeeded, in milliseconds.

        0 while none has, and if Spark forgets tasks meanwhile (``spark.ui.retainedTasks``): it returns NaN then.
        Like the Spark UI, this takes the executors' run time: in Spark's distribution of durations, a task that runs
        counts with its time at its start, and a failed one counts, too.
        """

        def ask() -> tuple[int, int]:
            gateway = self._context._gateway
            quantiles = gateway.new_array(gateway.jvm.double, len(_MEDIAN_AND_SLOWEST))
            for index, quantile in enumerate(_MEDIAN_AND_SLOWEST):
                quantiles[index] = quantile
            found = self._store().taskSummary(stage_id, stage_attempt, quantiles)
            if not found.isDefined():
                return 0, 0
            times = found.get().executorRunTime()
            return _rounded(times.apply(0)), _rounded(times.apply(1))

        median_and_slowest: tuple[int, int] = call("durations of tasks", ask)
        return median_and_slowest

    def oldest_running(self, stage_id: int, stage_attempt: int) -> int:
        """Return when the longest-running task of a stage was launched, in Unix milliseconds; 0 if none runs.

        Spark's own order by run time is of no use: the run time of a task is 0 until it has ended.
        """
        from py4j.protocol import Py4JJavaError

        def ask() -> int:
            jvm = self._context._jvm
            statuses = jvm.java.util.ArrayList()
            statuses.add(jvm.org.apache.spark.status.api.v1.TaskStatus.RUNNING)
            by_launch = jvm.scala.Some(_LAUNCH_TIME)
            try:
                found = self._store().taskList(stage_id, stage_attempt, 0, 1, by_launch, True, statuses)
            except Py4JJavaError:  # it has forgotten the stage
                return 0
            return 0 if found.isEmpty() else int(found.head().launchTime().getTime())

        launched_ms: int = call("running tasks", ask)
        return launched_ms

    def failed_tasks(self, stage_id: int, stage_attempt: int) -> list[Report]:
        """Return the failed tasks of a stage, the newest ones if there are many."""
        from py4j.protocol import Py4JJavaError

        def ask() -> Any:
            jvm = self._context._jvm
            statuses = jvm.java.util.ArrayList()
            statuses.add(jvm.org.apache.spark.status.api.v1.TaskStatus.FAILED)
            by_launch = jvm.scala.Some(_LAUNCH_TIME)
            try:
                found = self._store().taskList(stage_id, stage_attempt, 0, _FAILED_TASKS, by_launch, False, statuses)
            except Py4JJavaError:  # it has forgotten the stage
                return []
            return self._decoded(found)

        return list(call("failed tasks", ask))

    def wait_for_events(self) -> None:
        """Wait until Spark has counted what has happened so far, for two seconds at most."""
        from py4j.protocol import Py4JJavaError

        def wait() -> None:
            try:
                self._context._jsc.sc().listenerBus().waitUntilEmpty(_EVENT_PATIENCE_MS)
            except Py4JJavaError:  # a timeout: the numbers are a little too low
                return

        call("listener events", wait)

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore()

    def _decoded(self, value: Any) -> Any:
        if self._json is None:
            jvm = self._context._jvm
            mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
            mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
            self._json = mapper
        return json.loads(self._json.writeValueAsString(value))


def _rounded(number: float) -> int:
    """Return the whole number, which is 0 only if the number is unknown."""
    return max(1, round(number)) if math.isfinite(number) else 0
