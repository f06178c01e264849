"""Queries that are held between two batches while a savepoint is planned, and the files that its copy needs."""

from __future__ import annotations

import time

from emberkeep.lifecycle.errors import ProcedureRefused
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping.batch_boundary import Note, runs, too_late
from emberkeep.spark.stopping.drain import log_state
from emberkeep.spark.stopping.limit import Limit
from emberkeep.spark.stopping.plan_gate import PlanGate, last_allowed
from emberkeep.spark.stopping.running_batch import RunningBatch

_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_PAUSE = 0.1


class QueryPauses:
    """Holds all queries of a driver between two batches, and then some of them before batches that Spark would delete.

    ``paused_at``: the last committed batch of each query, by its key, as of the newest pause; empty if the queries have
    ended since.
    """

    def __init__(self, queries: ScriptQueries, plans: PlanGate) -> None:
        self._queries = queries
        self._plans = plans
        self.paused_at: dict[str, int] = {}

    def pause(self, note: Note, limit: Limit) -> None:
        """Hold all queries between two batches until ``resume``.

        Raises ProcedureRefused if no query runs, or if a batch still runs when the limit is reached; SparkUnavailable.
        """
        running = [query for query in self._queries.all() if runs(query)]
        if not running:
            raise nothing_runs()
        if not self._plans.close(limit):
            raise too_late("a streaming query was still planning a batch")
        waiting = [(query, RunningBatch(query)) for query in running if query.reached is not None]
        paused_at: dict[str, int] = {}  # not the attribute: a pause that hangs may go on beside the next procedure
        while waiting:
            batches = ", ".join(str(batch) for _, batch in waiting)
            note(f"finishing {batches}")
            time.sleep(_PAUSE)
            waiting = [(query, batch) for query, batch in waiting if not _stands(query, paused_at)]
            if waiting and limit.is_over:
                raise too_late(f"{batches} did not end in time")
        self.paused_at = paused_at

    def resume(self) -> None:
        self._plans.open()

    def retain_batches(self) -> None:
        """Keep the files that the last committed batch of each query needs, until ``release_batches``.

        Call this while the queries are paused. Afterwards they may continue, but a query waits before a batch that
        would make Spark remove some of these files. Raises SparkUnavailable.
        """
        self._plans.retain(
            {
                str(query.handle.id): last_allowed(self.paused_at[query.key], _retained(query))
                for query in self._queries.recoverable()
                if query.key in self.paused_at
            }
        )

    def release_batches(self) -> str:
        """Undo ``retain_batches``. Return a sentence about the queries that had to wait; "" if none had to."""
        stood = self._plans.release()
        waited = [
            f"{query} waited {stood[str(query.handle.id)]:.0f} s"
            for query in self._queries.recoverable()
            if str(query.handle.id) in stood
        ]
        if not waited:
            return ""
        return (
            f"{', '.join(waited)} for the savepoint's copy, because Spark keeps the files of its last {_RETAINED} "
            "batches only: raise that setting to the number of batches that begin during a copy"
        )


def _stands(query: ScriptQuery, paused_at: dict[str, int]) -> bool:
    """True if the query has no planned batch left to run, or has ended. Record its last committed batch."""
    assert query.reached is not None  # noqa: S101
    has_ended = not runs(query)  # before the logs are read: its last batch may commit in between
    state = log_state(HadoopFiles(query.session), query.reached.rstrip("/"))
    paused_at[query.key] = state.committed
    return state.is_between_batches or has_ended


def _retained(query: ScriptQuery) -> int:
    """Return for how many batches Spark retains this query's files; the setting is fixed when the query starts."""
    execution = query.handle._jsq.streamingQuery
    configured = call("what a query keeps", lambda: execution().sparkSessionForStream().conf().get(_RETAINED))
    return int(str(configured))


def nothing_runs() -> ProcedureRefused:
    return ProcedureRefused(
        "the job runs no streaming query",
        hint="if the script has not started its first query yet, try again; to end a batch job or a pipeline, "
        "use 'emberkeep cancel'",
    )
