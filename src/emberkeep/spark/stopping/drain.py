"""Letting everything in event-time state come out, by planned micro-batches; and going on as if it had not been asked.

A drain of a query that stands at committed batch N is a batch N + 1 in its offset log with the same offsets and the
highest watermark: Spark runs it as it would after a crash, without reading a row. Who finds it uncommitted after a
crash runs it, and nothing else. When the query is to read on afterwards, its logs get the watermark from before, or
every row would be late.

A planned batch that fails by an exception would fail again and again. It is given up: it keeps its number and gets the
watermark from before, so that Spark runs it as one in which nothing happens. Sinks that replace what they have under a
number get rid of what had come out; what skips numbers that it knows loses no row, as this one has read none. Only
where Spark's file sink has it already is it complete but for its commit, and stays planned.

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

DRAIN_BATCHES = 10  # at most, for timers that set timers
_TIMERS = ("withstate",)  # operators (flatMapGroups, applyInPandas, transform …WithState) whose functions set timers

Note = Callable[[str], None]


def log_state(files: HadoopFiles, location: str) -> LogState:
    """Where a checkpoint stands. Raises Fatal."""
    planned = _newest(files, location, "offsets")
    committed = _newest(files, location, "commits")
    drained = planned >= 0 and logs.is_drain(files.read_text(f"{location}/offsets/{planned}"))
    return LogState(planned, committed, drained)


def before_drain(files: HadoopFiles, location: str, state: LogState) -> int:
    """The newest batch that is no planned one of a drain. Raises Fatal where its entry is gone."""
    batch = state.planned
    while batch >= 0 and logs.is_drain(_entry(files, location, "offsets", batch)):
        batch -= 1
    return batch


class Drain:
    """Of the queries that were ended between two batches. ``may_commit``: returns when this attempt may write."""

    def __init__(self, queries: ScriptQueries, may_commit: Callable[[], None]) -> None:
        self._queries = queries
        self._may_commit = may_commit

    def settle(self, query: ScriptQuery, limit: Limit = NO_LIMIT) -> None:
        """What is left of a drain is finished, or given up, so that the query can read on. Raises Fatal, StepHangs."""
        if not log_state(HadoopFiles(query.session), _reached(query)).drained:
            return
        try:
            self.roll_forward(query, limit)
        except DrainGivenUp as error:
            log.warning("a drain is given up", query=str(query), reason=error.message)
        else:
            self.undo(query)

    def roll_forward(self, query: ScriptQuery, limit: Limit = NO_LIMIT) -> None:
        """Run the batch that is planned and not committed; return when it is. Raises DrainGivenUp where it was one of a
        drain and has failed; Fatal, StepHangs."""
        files = HadoopFiles(query.session)
        location = _reached(query)
        if log_state(files, location).is_between_batches:
            return
        self._run_planned(files, location, query, limit)
        state = log_state(files, location)
        if not state.is_between_batches:
            raise Fatal(f"{query}: batch {state.planned} was planned and has not run", hint=f"see {location}")

    def drain(self, query: ScriptQuery, note: Note, limit: Limit = NO_LIMIT) -> bool:
        """Until nothing comes out any more, or DRAIN_BATCHES. Returns whether all has come out: false where functions
        were still setting timers.

        Raises ProcedureRefused with nothing changed; Conflict (somebody else writes to this checkpoint); DrainGivenUp
        when a batch fails, or is not over at the limit; Fatal when it fails and stays planned; StepHangs.
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
        log.warning("timers go on setting timers", query=str(query), batches=DRAIN_BATCHES)
        return False

    def undo(self, query: ScriptQuery) -> None:
        """Give the logs of a drained query the watermark from before the drain. What came out stays. Idempotent."""
        files = HadoopFiles(query.session)
        location = _reached(query)
        state = log_state(files, location)
        if not state.drained:
            return
        if not state.is_between_batches:
            raise Fatal(f"{query}: its drain has not ended ({state})")
        self._read_on(files, location, query, state)

    def _read_on(self, files: HadoopFiles, location: str, query: ScriptQuery, state: LogState) -> None:
        """Give all batches of the drain, also one that is only planned, the watermark from before it."""
        first = before_drain(files, location, state)
        if first < 0:
            raise Fatal(f"{query}: nothing is left in {location} of before its drain", hint="restore a savepoint")
        watermark = logs.next_watermark(_entry(files, location, "commits", first))
        self._may_commit()
        for batch in range(first + 1, state.committed + 1):
            text = _entry(files, location, "commits", batch)
            files.add_log_entry(
                f"{location}/commits/{batch}", logs.with_next_watermark(text, watermark), overwrite=True
            )
        # The newest entry last: it is what says that this is still to be done.
        for batch in range(first + 1, state.planned + 1):
            text = _entry(files, location, "offsets", batch)
            files.add_log_entry(
                f"{location}/offsets/{batch}", logs.with_batch_watermark(text, watermark), overwrite=True
            )
        log.info("reads on after a drain", location=location, batch=state.committed, watermark_ms=watermark)

    def _plan(self, files: HadoopFiles, location: str, query: ScriptQuery, committed: int, limit: Limit) -> None:
        try:
            text = _entry(files, location, "offsets", committed)
            logs.next_watermark(_entry(files, location, "commits", committed))
            planned = logs.with_batch_watermark(text, MAX_WATERMARK_MS, int(time.time() * 1000))
        except SparkInternalsMissing as error:
            raise ProcedureRefused(f"{query} cannot be drained: {error.message}", hint=error.hint) from error
        self._may_commit()
        if limit.is_over:
            raise Fatal(f"{query} was not drained in time", hint="give it longer: execution.stop.savepoint-timeout")
        try:
            files.add_log_entry(f"{location}/offsets/{committed + 1}", planned)
        except Conflict as error:
            raise Conflict(f"{query}: somebody else has planned batch {committed + 1}: {error.message}") from error

    def _run_planned(
        self, files: HadoopFiles, location: str, query: ScriptQuery, limit: Limit = NO_LIMIT
    ) -> dict[str, Any]:
        """Spark's report of the batch, empty when there is none. Raises DrainGivenUp, Fatal, StepHangs."""
        try:
            return run_planned_batch(self._queries, query, limit, retained=DRAIN_BATCHES + 2)
        except BatchFailed as error:
            raise self._after_failure(files, location, query, error) from error

    def _after_failure(self, files: HadoopFiles, location: str, query: ScriptQuery, failure: Fatal) -> Fatal:
        """Give a drain's batch up where that can be done. Returns what is to be raised."""
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
            return Fatal(f"{failure.message}; and its drain could not be given up: {error}", hint=way_out)
        return DrainGivenUp(
            f"the drain is given up, as its batch {batch} has failed: {failure.message}", hint=failure.hint
        )


def _check(query: ScriptQuery, batch: int, state: LogState, progress: dict[str, Any]) -> None:
    """Raises Fatal when what has run is not what was planned."""
    rows = int(progress.get("numInputRows", 0))
    if state.committed != batch or not state.drained or int(progress.get("batchId", -1)) != batch or rows != 0:
        raise Fatal(
            f"{query}: the drain's batch {batch} did not run as planned ({state}, report of batch "
            f"{progress.get('batchId')}, {rows} rows read)",
            hint="Emberkeep works with PySpark 4.3",
        )


def _may_bring_more(progress: dict[str, Any]) -> bool:
    """Whether a function whose timers have fired may have set others."""
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
        raise Fatal(f"{location}/{log_name} has no entry of batch {batch}", hint="was it cleaned up?") from error


def _has_state(files: HadoopFiles, location: str) -> bool:
    return files.is_directory(f"{location}/state")


def _reached(query: ScriptQuery) -> str:
    assert query.reached is not None, "a query without a checkpoint is never drained"  # noqa: S101
    return query.reached.rstrip("/")
