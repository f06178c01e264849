"""Hook around the start of streaming queries: give each a durable checkpoint location, and record the running ones."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from emberkeep.jobs.progress.records import ReportKey
from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.files.state_locations import StateLocations
from emberkeep.spark.model import ObservedQuery, StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.queries.checkpoint_store import CheckpointStore
from emberkeep.spark.queries.checkpoints import (
    QueryIdentity,
    can_recover,
    directory_of_named,
    directory_of_unnamed,
    record_unnamed,
)
from emberkeep.spark.queries.committed_before import CommittedBefore
from emberkeep.spark.queries.progress import NOTHING_REPORTED, query_progress
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery, recorded_fields
from emberkeep.spark.queries.state_placement import StatePlacement

_LOCATION = "checkpointLocation"
_ROOT_SETTING = "spark.sql.streaming.checkpointLocation"
_FUNCTION = "_emberkeep_function"
_GIVEN = "_emberkeep_checkpoint"  # on a writer: (location that Spark was given, StartedQuery) of its last start


@dataclass(frozen=True)
class _Writer:
    """The query that a DataStreamWriter is about to start."""

    name: str | None
    identity: QueryIdentity
    own_location: str | None
    path: str  # the option of that name, "" if not given


class QueryStarts(Protocol):
    """Steps that QueryHook runs before, during and after the start of a query by the script."""

    def admitted(self) -> AbstractContextManager[None]:
        """Enclose all other steps: wait until queries may start. Raises SystemExit if queries may no longer start."""

    def restore(self, query: ScriptQuery) -> None:
        """Restore the query's checkpoint, if the job starts from a savepoint. Raises EmberkeepError."""

    def starting(self, query: ScriptQuery) -> AbstractContextManager[None]:
        """Enclose the start itself. Raises EmberkeepError."""

    def started(self, query: ScriptQuery) -> None:
        """React to a query that has started and was recorded. Raises EmberkeepError."""


class QueryHook:
    """Patch of DataStreamWriter: each query that starts gets its checkpoint location and is recorded. One per process.

    Any thread may start a query; a lock serializes the choice of the checkpoint locations.
    """

    def __init__(
        self,
        checkpoint_root: str,
        locations: StateLocations,
        places: CheckpointPlaces,
        placement: StatePlacement | None,
        committed: CommittedBefore,
        notices: Notices,
        queries: ScriptQueries,
        starts: QueryStarts,
    ) -> None:
        """``placement`` reports to Spark which nodes hold state; None to skip that. ``queries`` records each start."""
        self._root = checkpoint_root
        self._locations = locations
        self._places = places
        self._placement = placement
        self._committed = committed
        self._notices = notices
        self._queries = queries
        self._starts = starts
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._next_ordinal = 0
        self._running: list[tuple[Any, StartedQuery]] = []

    def install(self) -> None:
        """Patch PySpark in this process. Raises SparkInternalsMissing if a method to patch is missing."""
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        kind: Any = DataStreamWriter
        for name in ("start", "toTable", "foreach", "foreachBatch"):
            if not hasattr(kind, name):
                raise SparkInternalsMissing(
                    f"this PySpark has no DataStreamWriter.{name}", hint="Emberkeep works with PySpark 4.3"
                )
        kind.start = self._around_start(kind.start)
        kind.toTable = self._around_start(kind.toTable)
        kind.foreach = _remember_function(kind.foreach)
        kind.foreachBatch = _remember_function(kind.foreachBatch)

    def progress(self, reported: Mapping[str, ReportKey] = NOTHING_REPORTED) -> list[ObservedQuery]:
        """Return the progress of each query that the script has started.

        A query that has ended is included once more, then left out. One that a procedure has ended stays, because it
        may be started again. ``reported``: see ``query_progress``. Raises SparkUnavailable.
        """
        with self._lock:
            running = list(self._running)
        reports = [(entry, query_progress(*entry, reported)) for entry in running]
        away = [query.handle for query in self._queries.all() if query.away]
        ended = [entry for entry, report in reports if not report.is_active and not _is_among(entry[0], away)]
        with self._lock:
            self._running = [entry for entry in self._running if entry not in ended]
        # A query that was started again has two entries with the same run.
        return list({report.run_id: report for _, report in reports}.values())

    def forget(self) -> None:
        """Forget all queries, because their SparkContext has stopped."""
        with self._lock:
            self._running.clear()
        self._queries.clear()

    def _around_start(self, original: Any) -> Any:
        parameters = inspect.signature(original)

        @functools.wraps(original)
        def start(writer: Any, *positional: Any, **named: Any) -> Any:
            if os.getpid() != self._pid:
                return original(writer, *positional, **named)
            bound = parameters.bind(writer, *positional, **named)
            again = self._queries.starting_again
            if again is not None:
                if again.reached is not None:
                    _set_location(writer, bound, again.reached)
                return self._started(original, writer, bound, again.started)
            described = _describe_call(writer, bound)
            if self._keeps_below_root(writer, described):
                self._places.wait_for_own()
            with self._starts.admitted():
                return self._start_new(original, writer, bound, described, (positional, named))

        return start

    def _start_new(
        self,
        original: Any,
        writer: Any,
        bound: inspect.BoundArguments,
        described: _Writer,
        call: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Any:
        with self._lock:
            started = self._decide(writer, described)
        query = ScriptQuery(
            writer=writer,
            method=original.__name__,
            positional=call[0],
            named=call[1],
            key=self._queries.key_for(writer, described.name, described.identity, started),
            name=described.name or "",
            identity=described.identity,
            started=started,
            reached=None,
            fields=recorded_fields(writer._jwrite),
            path=described.path,
        )
        if started.location is not None:
            query.reached = self._locations.for_spark(writer._spark, started.location)
            self._places.wait_for(writer._spark, started.location, query.reached)
            self._starts.restore(query)
            self._committed.check(writer._spark, started.location, query.reached)
        with self._starts.starting(query):
            if query.reached is not None and (started.by_default or query.reached != started.location):
                _set_location(writer, bound, query.reached)
                setattr(writer, _GIVEN, (query.reached, started))
            query.handle = self._started(original, writer, bound, started)
        self._queries.add(query)
        self._starts.started(query)
        return query.handle

    def _started(self, original: Any, writer: Any, bound: inspect.BoundArguments, started: StartedQuery) -> Any:
        with self._placement.watching(writer._spark) if self._placement is not None else nullcontext():
            query = original(*bound.args, **bound.kwargs)
        with self._lock:
            self._running.append((query, started))  # `progress` removes it after the query has ended
        return query

    def _keeps_below_root(self, writer: Any, described: _Writer) -> bool:
        """True if the query's checkpoint is below the job's own root."""
        if described.own_location is not None:
            return described.own_location.startswith(f"{self._root.rstrip('/')}/")
        return (
            can_recover(described.identity.sink, described.identity.output_mode)
            and writer._spark.conf.get(_ROOT_SETTING, None) is None
        )

    def _decide(self, writer: Any, described: _Writer) -> StartedQuery:
        """Choose the durable location of the checkpoint. Raises CheckpointIdentityError."""
        if described.own_location is not None:
            before: tuple[str, StartedQuery] | None = getattr(writer, _GIVEN, None)
            if before is not None and described.own_location == before[0]:  # the script reuses the writer
                return before[1]
            return StartedQuery(described.own_location)
        if not can_recover(described.identity.sink, described.identity.output_mode):
            return StartedQuery(None)
        configured = writer._spark.conf.get(_ROOT_SETTING, None)
        if configured is not None and described.name is not None:
            return StartedQuery(f"{configured.rstrip('/')}/{described.name}")  # Spark's own rule
        decided = StartedQuery(self._locate(writer, described, configured or self._root), by_default=True)
        what = f"streaming query {described.name!r}" if described.name else f"unnamed query to {described.identity}"
        self._notices.say(f"{what} has no checkpointLocation: its checkpoint is at {decided.location}")
        return decided

    def _locate(self, writer: Any, described: _Writer, root: str) -> str:
        root = root.rstrip("/")
        if described.name is not None:
            return f"{root}/{directory_of_named(described.name)}"
        store = CheckpointStore(writer._spark, root, self._locations.for_spark(writer._spark, root))
        ordinal = self._next_ordinal
        known = store.read()
        record = record_unnamed(known, ordinal, described.identity, root)
        if record is not known:
            store.write(record)
        self._next_ordinal += 1
        return f"{root}/{directory_of_unnamed(ordinal, described.identity)}"


def _is_among(handle: Any, handles: list[Any]) -> bool:
    return any(handle is each for each in handles)


def _set_location(writer: Any, call: inspect.BoundArguments, location: str) -> None:
    """Give Spark this checkpoint location, in place of the one in the writer or the call."""
    options = call.arguments.get("options", {})
    call.arguments["options"] = {key: value for key, value in options.items() if key.lower() != _LOCATION.lower()}
    writer._jwrite = writer._jwrite.option(_LOCATION, location)


def _describe_call(writer: Any, call: inspect.BoundArguments) -> _Writer:
    given = dict(call.arguments)
    arguments = given.pop("options", {}) | given
    return _describe(writer, given.get("path", given.get("tableName")), arguments)


def _describe(writer: Any, target: Any, arguments: Mapping[str, Any]) -> _Writer:
    """Return a description of the query. Arguments of the call override options set on the writer before."""
    given = {key.lower(): str(value) for key, value in arguments.items() if value is not None}
    source = given.get("format") or str(_field(writer._jwrite, "source"))
    mode = given.get("outputmode") or str(_field(writer._jwrite, "outputMode").toString())
    stored = _field(writer._jwrite, "extraOptions")

    def option(key: str) -> str | None:
        if key.lower() in given:
            return given[key.lower()]
        found = stored.get(key)
        return str(found.get()) if found.isDefined() else None

    if target is None:
        candidates = (option("path"), option("topic"), option("dbtable"), getattr(writer, _FUNCTION, None))
        target = next((candidate for candidate in candidates if candidate), "")
    identity = QueryIdentity(source, mode.lower(), str(target))
    return _Writer(option("queryName"), identity, option(_LOCATION), option("path") or "")


def _field(java: Any, name: str) -> Any:
    """Return a private field of a Scala object. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        field = java.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(java)
    except Py4JError as error:
        raise SparkInternalsMissing(
            f"this Spark's DataStreamWriter has no field {name}, so Emberkeep cannot choose the query's checkpoint",
            hint="set .option('checkpointLocation', …) on it, or use PySpark 4.3",
        ) from error


def _remember_function(original: Any) -> Any:
    """Wrap `foreach` or `foreachBatch` to record the function's name, which distinguishes such queries."""

    @functools.wraps(original)
    def with_function(writer: Any, function: Any) -> Any:
        result = original(writer, function)
        kind = function if hasattr(function, "__qualname__") else type(function)
        setattr(result, _FUNCTION, f"{kind.__module__}.{kind.__qualname__}")
        return result

    return with_function
