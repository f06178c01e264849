"""Streaming queries that Spark Connect sessions run in the driver's JVM: those of clients, and a pipeline's flows.

They are not started by the driver's Python, so the hook around the start does not see them. They are only watched: no
procedure stops them, and Emberkeep does not choose their checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from emberkeep.jobs.progress.records import ReportKey
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.model import ObservedQuery, StartedQuery
from emberkeep.spark.queries.progress import NOTHING_REPORTED, query_progress

log = structlog.get_logger(__name__)

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


@dataclass(frozen=True)
class _Handle:
    """What PySpark's StreamingQuery has for a query in the JVM."""

    _jsq: Any


class SessionQueries:
    """The queries of the current SparkContext's Connect sessions. Used by one thread."""

    def __init__(self) -> None:
        self._context: Any = None
        self._serves = False
        self._has_warned = False
        self._running: dict[str, _Handle] = {}  # by run id

    def progress(
        self, context: Any, known: Collection[str], reported: Mapping[str, ReportKey] = NOTHING_REPORTED
    ) -> list[ObservedQuery]:
        """Return the progress of each query; one that has ended is included once more. Raises SparkUnavailable.

        ``known``: run ids of queries that the script itself has started. ``reported``: see ``query_progress``.
        """
        if context is not self._context:
            plugins = call("configuration", lambda: context._jsc.sc().conf().get("spark.plugins", ""))
            self._context, self._serves, self._running = context, PLUGIN in str(plugins).split(","), {}
        if not self._serves:
            return []
        for run_id, handle in self._active(context).items():
            if run_id not in known:
                self._running.setdefault(run_id, handle)
        reports = [query_progress(handle, StartedQuery(None), reported) for handle in self._running.values()]
        for report in reports:
            if not report.is_active:
                del self._running[report.run_id]
        return reports

    def _active(self, context: Any) -> dict[str, _Handle]:
        """Return the queries that run now; none if Spark cannot list them.

        The rest of what is asked of Spark, such as its executors, matters more than these queries.
        """
        try:
            found: dict[str, _Handle] = call("queries of sessions", _active, context)
        except SparkUnavailable as error:
            if not self._has_warned:
                log.warning("cannot list the streaming queries of Spark Connect sessions", reason=error.message)
            self._has_warned = True
            return {}
        return found


def _active(context: Any) -> dict[str, _Handle]:
    sql = context._jvm.org.apache.spark.sql
    session = sql.classic.SparkSession.getDefaultSession()
    if not session.isDefined():
        return {}
    active = session.get().sharedState().activeStreamingQueries()  # py4j shows a Java map as a Python mapping
    executions = [active.get(key) for key in list(active)]
    wrapped = sql.execution.streaming.runtime.StreamingQueryWrapper  # as the queries of a script are
    return {str(each.runId()): _Handle(wrapped(each)) for each in executions if each is not None}  # None: just ended
