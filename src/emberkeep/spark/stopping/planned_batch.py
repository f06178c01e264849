"""Run the one micro-batch that is in a query's offset log but not in its commit log."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.errors import StepHangs
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery, check_not_failed
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX
from emberkeep.spark.stopping.limit import Limit

_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_PAUSE = 0.05
_INTERRUPT_SECONDS = 60.0  # a batch must end within this time after it is interrupted


class BatchFailed(Fatal):
    """The batch raised an exception, or did not end in time."""


def run_planned_batch(queries: ScriptQueries, query: ScriptQuery, limit: Limit, retained: int) -> dict[str, Any]:
    """Start the query for its planned batch only. Return Spark's progress report of the batch; empty if there is none.

    ``retained``: minimum number of entries that the logs keep. A batch still running when ``limit`` is reached is
    interrupted.

    Raises BatchFailed; StepHangs if the batch ignores its interruption and still runs; SparkUnavailable.
    """
    with _Retaining(query.session, retained):
        handle = queries.start_again(query, once=True)
    # Do not use awaitTermination: it raises the exception with which the query failed.
    thread = call("a planned batch", lambda: handle._jsq.streamingQuery().queryExecutionThread())
    while call("a planned batch", thread.isAlive):
        call("a planned batch", thread.join, int(_PAUSE * 1000))
        if limit.is_over:
            _interrupt(query, handle._jsq, thread)
            raise BatchFailed(
                f"{query}: its planned batch did not end in time",
                hint="raise execution.stop.savepoint-timeout",
            )
    try:
        check_not_failed(query, handle)
    except Fatal as error:
        raise BatchFailed(error.message, hint=error.hint) from error
    last = call("progress of a planned batch", handle._jsq.lastProgress)
    return {} if last is None else dict(json.loads(str(last.json())))


def _interrupt(query: ScriptQuery, java: Any, thread: Any) -> None:
    """Interrupt the query, and wait until its thread has ended. Raises StepHangs.

    Spark's own stop blocks until the batch's code ends, and that code may ignore the interruption. For this reason
    ``stop`` is called on a separate thread.
    """

    def stop() -> None:
        try:
            call("interrupting a planned batch", java.stop)
        except SparkUnavailable:
            return  # the loop below checks whether the query has ended

    threading.Thread(target=stop, name=f"{OWN_THREAD_PREFIX}-interrupt", daemon=True).start()
    until = time.monotonic() + _INTERRUPT_SECONDS
    while call("a planned batch", thread.isAlive):
        if time.monotonic() >= until:
            raise StepHangs(
                f"{query}: its planned batch did not end in time and ignores its interruption",
                hint="the next attempt runs it again",
            )
        time.sleep(_PAUSE)


class _Retaining:
    """Context in which queries that start keep at least ``retained`` log entries.

    This keeps the entries from before a drain. A query reads the setting when it starts.
    """

    def __init__(self, session: Any, retained: int) -> None:
        self._configuration = session.conf
        self._retained = retained
        self._before = ""

    def __enter__(self) -> None:
        self._before = str(self._configuration.get(_RETAIN))
        self._configuration.set(_RETAIN, str(max(int(self._before), self._retained)))

    def __exit__(self, *_: object) -> None:
        self._configuration.set(_RETAIN, self._before)
