"""Drain streaming queries: run planned micro-batches that emit all rows held back by event-time state.

To drain a query whose last committed batch is N, plan a batch N + 1 in its offset log with the same offsets and the
highest watermark. Spark runs it as it would after a crash, without reading a row. A driver that finds such a batch
uncommitted after a crash runs that batch and nothing else. If the query must continue after its drain, its logs get
the watermark from before the drain again. Otherwise every row would be late.

A planned batch that raises an exception would raise it again and again, so its drain is abandoned. The batch keeps its
number and gets the watermark from before the drain, so that Spark runs it as an empty batch. Sinks that replace their
output by batch number thereby discard what the failed batch had emitted. Sinks that skip batch numbers they have seen
before lose no row, as this batch read none. One case differs: if the log of Spark's file sink already has the batch,
then only the commit is missing, and the batch stays planned.

Source: Flink FLIP-34 (MAX_WATERMARK before the savepoint of a drained job).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal
from emberkeep.lifecycle.errors import ProcedureRefused
from emberkeep.lifecycle.manifest import MAX_WATERMARK_MS
from emberkeep.spark.errors import DrainGivenUp, SparkInternalsMissing
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries import checkpoint_logs as logs
from emberkeep.spark.queries.checkpoint_logs import LogState
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping.file_sink import newest_batch, output_directory
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.planned_batch import BatchFailed, run_planned_batch

log = structlog.get_logger(__name__)

DRAIN_BATCHES = 10  # maximum number of planned batches of one drain: timers may set further timers endlessly
_TIMERS = ("withstate",)  # operators (flatMapGroups, applyInPandas, transform …WithState) whose functions set timers

Note = Callable[[str], None]


def log_state(files: HadoopFiles, location: str) -> LogState:
    """Return the newest planned and committed batches of a checkpoint. Raises Fatal."""
    planned = _newest(files, location, "offsets")
    committed = _newest(files, location, "commits")
    drained = planned >= 0 and logs.is_drain(files.read_text(f"{location}/offsets/{planned}"))
    return LogState(planned, committed, drained)


def before_drain(files: HadoopFiles, location: str, state: LogState) -> int:
    """Return the newest batch that is not part of a drain, or -1. Raises Fatal if a log entry is missing."""
    batch = state.planned
    while batch >= 0 and logs.is_drain(_entry(files, location, "offsets", batch)):
        batch -= 1
    return batch


class QueryDrains:
    """Drains of queries that have ended between two batches. ``may_commit``: returns once this attempt may write."""

    def __init__(self, queries: ScriptQueries, may_commit: Callable[[], None]) -> None:
        self._queries = queries
        self._may_commit = may_commit

    def settle(self, query: ScriptQuery, limit: Limit = NO_LIMIT) -> None:
        """Finish or abandon a begun drain, then undo it, so that the query can continue. Raises Fatal, StepHangs."""
        if not log_state(HadoopFiles(query.session), _reached(query)).drained:
            return
        try:
            self.roll_forward(query, limit)
        except DrainGivenUp as error:
            log.warning("a drain is abandoned", query=str(query), reason=error.message)
        else:
            self.undo(query)

    def roll_forward(self, query: ScriptQuery, limit: Limit = NO_LIMIT) -> None:
        """Run the batch that is planned but not committed, and return once it is committed.

        Raises DrainGivenUp if the batch belongs to a drain and fails; Fatal, StepHangs.
        """
        files = HadoopFiles(query.session)
        location = _reached(query)
        if log_state(files, location).is_between_batches:
            return
        self._run_planned(files, location, query, limit)
        state = log_state(files, location)
        if not state.is_between_batches:
            raise Fatal(f"{query}: batch {state.planned} was planned and has not run", hint=f"see {location}")

    def drain(self, query: ScriptQuery, note: Note, limit: Limit = NO_LIMIT) -> bool:
        """Run planned batches until no more rows are emitted, but at most DRAIN_BATCHES of them.

        Return True if all rows were emitted, False if functions were still setting timers.

        Raises:
        - ProcedureRefused if the query cannot be drained; the next batch is not planned.
        - Conflict if another writer has planned the batch.
        - DrainGivenUp if a batch failed, or was still running when the limit was reached, and its drain was abandoned.
        - Fatal if such a drain could not be abandoned, so that its batch stays planned, or if the limit was reached
          before a batch was planned.
        - StepHangs if a batch ignores its interruption.
        """
        files = HadoopFiles(query.session)
        location = _reached(query)
        self.roll_forward(query, limit)
        state = log_state(files, location)
        if state.committed < 0 or not _has_state(files, location):
            return True
        first = before_drain(files, location, state)
        while state.committed - first < DRAIN_BATCHES:
            batch = state.committed + 1
            note(f"draining {query}: batch {batch}")
            self._plan(files, location, query, state.committed, limit)
            progress = self._run_planned(files, location, query, limit)
            state = log_state(files, location)
            _check(query, batch, state, progress)
            if not _may_bring_more(progress):
                return True
        log.warning("timers are still setting timers; the drain ends", query=str(query), batches=DRAIN_BATCHES)
        return False

    def undo(self, query: ScriptQuery) -> None:
        """Give the logs of a drained query the watermark from before the drain. Emitted rows stay. Idempotent."""
        files = HadoopFiles(query.session)
        location = _reached(query)
        state = log_state(files, location)
        if not state.drained:
            return
        if not state.is_between_batches:
            raise Fatal(f"{query}: its drain has not ended ({state})")
        self._read_on(files, location, query, state)

    def _read_on(self, files: HadoopFiles, location: str, query: ScriptQuery, state: LogState) -> None:
        """Give all batches of the drain, including one that is only planned, the watermark from before the drain."""
        first = before_drain(files, location, state)
        if first < 0:
            raise Fatal(f"{query}: {location} has no batch left from before the drain", hint="restore a savepoint")
        watermark = logs.next_watermark(_entry(files, location, "commits", first))
        self._may_commit()
        for batch in range(first + 1, state.committed + 1):
            text = _entry(files, location, "commits", batch)
            files.add_log_entry(
                f"{location}/commits/{batch}", logs.with_next_watermark(text, watermark), overwrite=True
            )
        # Write the newest entry last: as long as it has the drain's watermark, this is repeated after a crash.
        for batch in range(first + 1, state.planned + 1):
            text = _entry(files, location, "offsets", batch)
            files.add_log_entry(
                f"{location}/offsets/{batch}", logs.with_batch_watermark(text, watermark), overwrite=True
            )
        log.info("the query reads on after a drain", location=location, batch=state.committed, watermark_ms=watermark)

    def _plan(self, files: HadoopFiles, location: str, query: ScriptQuery, committed: int, limit: Limit) -> None:
        try:
            text = _entry(files, location, "offsets", committed)
            logs.next_watermark(_entry(files, location, "commits", committed))
            planned = logs.with_batch_watermark(text, MAX_WATERMARK_MS, int(time.time() * 1000))
        except SparkInternalsMissing as error:
            raise ProcedureRefused(f"{query} cannot be drained: {error.message}", hint=error.hint) from error
        self._may_commit()
        if limit.is_over:
            raise Fatal(f"{query} was not drained in time", hint="raise execution.stop.savepoint-timeout")
        try:
            files.add_log_entry(f"{location}/offsets/{committed + 1}", planned)
        except Conflict as error:
            raise Conflict(f"{query}: another process has planned batch {committed + 1}: {error.message}") from error

    def _run_planned(
        self, files: HadoopFiles, location: str, query: ScriptQuery, limit: Limit = NO_LIMIT
    ) -> dict[str, Any]:
        """Run the planned batch; return Spark's report of the batch, or {}. Raises DrainGivenUp, Fatal, StepHangs."""
        try:
            return run_planned_batch(self._queries, query, limit, retained=DRAIN_BATCHES + 2)
        except BatchFailed as error:
            raise self._after_failure(files, location, query, error) from error

    def _after_failure(self, files: HadoopFiles, location: str, query: ScriptQuery, failure: Fatal) -> Fatal:
        """Abandon a drain whose planned batch failed, unless the output has that batch. Return the error to raise."""
        state = log_state(files, location)
        if not state.drained or state.is_between_batches:
            return failure
        batch = state.planned
        way_out = (
            f"start corrected code with the checkpointLocation {query.started.location}: batch {batch}, which was "
            "planned, runs first"
        )
        try:
            output = output_directory(query)
            if output is not None and newest_batch(files, output) >= batch:
                return Fatal(f"{failure.message}; its output already has batch {batch} of the drain", hint=way_out)
            self._read_on(files, location, query, state)
        except EmberkeepError as error:
            return Fatal(f"{failure.message}; its drain cannot be abandoned: {error}", hint=way_out)
        return DrainGivenUp(
            f"the drain is abandoned because its batch {batch} failed: {failure.message}", hint=failure.hint
        )


def _check(query: ScriptQuery, batch: int, state: LogState, progress: dict[str, Any]) -> None:
    """Raise Fatal if the batch that ran is not the planned one."""
    rows = int(progress.get("numInputRows", 0))
    if state.committed != batch or not state.drained or int(progress.get("batchId", -1)) != batch or rows != 0:
        raise Fatal(
            f"{query}: the drain's batch {batch} did not run as planned ({state}, report of batch "
            f"{progress.get('batchId')}, {rows} rows read)",
            hint="Emberkeep works with PySpark 4.3",
        )


def _may_bring_more(progress: dict[str, Any]) -> bool:
    """True if a function whose timers have fired may have set further timers."""
    return any(
        any(word in str(operator.get("operatorName", "")).lower() for word in _TIMERS)
        and (int(operator.get("numRowsUpdated", 0)) > 0 or int(operator.get("numRowsRemoved", 0)) > 0)
        for operator in progress.get("stateOperators", ())
    )


def _newest(files: HadoopFiles, location: str, log_name: str) -> int:
    return max(files.numbered(f"{location}/{log_name}"), default=-1)


def _entry(files: HadoopFiles, location: str, log_name: str, batch: int) -> str:
    try:
        return files.read_text(f"{location}/{log_name}/{batch}")
    except Absent as error:
        raise Fatal(
            f"{location}/{log_name} has no entry for batch {batch}",
            hint="check whether files of the checkpoint were deleted; if so, restore a savepoint",
        ) from error


def _has_state(files: HadoopFiles, location: str) -> bool:
    return files.is_directory(f"{location}/state")


def _reached(query: ScriptQuery) -> str:
    assert query.reached is not None, "a query without a checkpoint is never drained"  # noqa: S101
    return query.reached.rstrip("/")
