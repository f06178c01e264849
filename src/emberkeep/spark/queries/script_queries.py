"""The streaming queries that the script has started, with everything needed to start each of them again.

After starting a query, the script can change the DataStreamWriter and start another query with it. So the writer's
fields are recorded at each start, and restored temporarily while that query is started again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from emberkeep.api.session import session_of_process
from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import key_of_named, key_of_unnamed
from emberkeep.spark.errors import SparkInternalsMissing, SparkUnavailable
from emberkeep.spark.exception_text import in_one_line
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity


@dataclass(eq=False)
class ScriptQuery:
    """A streaming query of the script.

    - ``handle``: the script's StreamingQuery; its JVM object is replaced when the query is started again.
    - ``reached``: location at which Spark reaches the checkpoint; None if the query cannot recover.
    - ``fields``: the writer's fields, as (java.lang.reflect.Field, value).
    - ``away``: a procedure has ended the query, and the script still sees it as running.
    - ``is_stopped``: the script has stopped the query while it was away.
    - ``path``: the writer's option ``path``; "" if not given.
    """

    writer: Any
    method: str  # "start" or "toTable"
    positional: tuple[Any, ...]
    named: dict[str, Any]
    key: str
    name: str  # "" for an unnamed one
    identity: QueryIdentity
    started: StartedQuery
    reached: str | None
    fields: list[tuple[Any, Any]]
    handle: Any = None
    away: bool = False
    is_stopped: bool = False
    path: str = ""

    @property
    def session(self) -> Any:
        return self.writer._spark

    def __str__(self) -> str:
        return f"query {self.name!r}" if self.name else f"the unnamed query to {self.identity}"


@dataclass
class _Own(threading.local):
    """Per thread: ``again`` is the query that this thread starts again; None if it starts a new query."""

    again: ScriptQuery | None = field(default=None)


class ScriptQueries:
    """The script's queries, running and ended, in the order of their last starts by the script.

    One per process, used from many threads. A query that the script starts again replaces the earlier one: that with
    the same key, or with the same checkpoint.
    """

    def __init__(self) -> None:
        # A signal handler of the script may interrupt the holder, and use queries. Each change below is one step: a
        # handler may see a replaced query beside its successor, but never misses one.
        self._lock = threading.RLock()
        self._own = _Own()
        self._known: list[ScriptQuery] = []
        self._again: Counter[str] = Counter()  # by query id: how many threads start the query again
        self._unnamed = itertools.count()  # the ordinals of unnamed queries
        self._keys: dict[tuple[str, str, str], str] = {}  # of unnamed queries: by checkpoint, sink and output mode
        self._last_start = time.monotonic()
        self.first_start_ms: int | None = None  # when the first query had started, in Unix milliseconds

    @property
    def starting_again(self) -> ScriptQuery | None:
        """The query that this thread is starting again, or None. The hook around the start reads it."""
        return self._own.again

    def key_for(self, writer: Any, name: str | None, identity: QueryIdentity, started: StartedQuery) -> str:
        """Return a query's key in savepoints: from its name, else from its position among the unnamed queries.

        ``started``: where the query's checkpoint is. An unnamed query with the same checkpoint keeps its position,
        although the script starts it with a new writer or in a new SparkContext.
        """
        if name is not None:
            return key_of_named(name)
        place = (_place(started), identity.sink, identity.output_mode)
        with self._lock:
            for query in self._known:
                if query.writer is writer and query.identity == identity and not query.name:
                    return query.key  # the script starts the same query again
            if place in self._keys:
                return self._keys[place]
            key = key_of_unnamed(next(self._unnamed), identity.sink, identity.output_mode)
            return self._keys.setdefault(place, key) if place[0] else key

    def add(self, query: ScriptQuery) -> None:
        """Add a query that has started. It replaces the one with its key, and the one with its checkpoint."""
        with self._lock:
            place = _place(query.started)
            replaced = [one for one in self._known if one.key == query.key or (place and _place(one.started) == place)]
            self._known.append(query)
            for one in replaced:
                if one in self._known:
                    self._known.remove(one)
            self.first_start_ms = self.first_start_ms or int(time.time() * 1000)
            self._last_start = time.monotonic()

    def quiet_seconds(self) -> float:
        """Return the seconds since the script's last start of a query."""
        with self._lock:
            return time.monotonic() - self._last_start

    def all(self) -> list[ScriptQuery]:
        """Return all queries, including ended ones, in the order of their starts."""
        with self._lock:
            return list(self._known)

    def recoverable(self) -> list[ScriptQuery]:
        """Return the queries that have a checkpoint."""
        return [query for query in self.all() if query.reached is not None]

    def session(self) -> Any:
        """Return the SparkSession of the query that was started first. Raises SparkUnavailable without a query."""
        queries = self.all()
        if not queries:
            raise SparkUnavailable("the script no longer has streaming queries")
        return queries[0].session

    def has_failed(self) -> bool:
        """True if a query has ended with an error. Raises what Py4J raises."""
        return any(query.handle.exception() is not None for query in self.all())

    def stop(self) -> None:
        """Stop the queries that run, of all sessions. Raises what PySpark raises.

        A session may run further queries: those of JVM code, and those that another with their key has replaced here.
        """
        known = self.all()
        for query in known:
            if query.handle._jsq.isActive():
                query.handle.stop()
        sessions = {id(session): session for session in (*(query.session for query in known), session_of_process())}
        for session in sessions.values():
            if session is not None:
                for running in session.streams.active:
                    running.stop()

    def of_handle(self, handle: Any) -> ScriptQuery | None:
        with self._lock:
            return next((query for query in self._known if query.handle is handle), None)

    def handle_of(self, found: Any) -> Any:
        """Return the script's own handle for the same query as ``found``; ``found`` itself if the script has none."""
        identity = str(found.id)
        return next((query.handle for query in self.all() if str(query.handle.id) == identity), found)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()

    def is_starting_again(self, query_id: str) -> bool:
        """True while any thread starts the query with this id again."""
        with self._lock:
            return self._again[query_id] > 0

    def start_again(self, query: ScriptQuery, *, once: bool = False) -> Any:
        """Start a query with its recorded writer; return the new StreamingQuery.

        ``once``: run one batch only; if a batch is planned, run that one.
        """
        writer = query.writer
        query_id = "" if query.handle is None else str(query.handle.id)
        self._own.again = query
        with self._lock:
            self._again[query_id] += 1
        try:
            with _as_recorded(query):
                if once:
                    trigger = writer._spark._jvm.org.apache.spark.sql.streaming.Trigger.Once()
                    writer._jwrite = writer._jwrite.trigger(trigger)
                return getattr(writer, query.method)(*query.positional, **query.named)
        finally:
            with self._lock:
                self._again[query_id] -= 1
            self._own.again = None


def _place(started: StartedQuery) -> str:
    """Return the checkpoint of a query in one form; "" if it has none. No two queries run with one at a time."""
    return (started.location or "").rstrip("/")


def check_not_failed(query: ScriptQuery, handle: Any) -> None:
    """Raise Fatal if the query has failed; the error contains the first line of the query's exception.

    ``handle``: the StreamingQuery of the run to check.
    """
    failure = call("exception of a query", handle._jsq.exception)
    if failure.isDefined():
        line = in_one_line(str(failure.get().getMessage()))
        raise Fatal(f"{query} has failed: {line}", hint="see the driver's log")


def recorded_fields(java: Any) -> list[tuple[Any, Any]]:
    """Return the values of a writer's fields that can be set. Raises SparkInternalsMissing."""
    from py4j.protocol import Py4JError

    try:
        found = []
        for each in java.getClass().getDeclaredFields():
            modifiers = int(each.getModifiers())
            if modifiers & (_STATIC | _FINAL):
                continue
            each.setAccessible(True)
            found.append((each, each.get(java)))
    except (Py4JError, TypeError) as error:
        raise SparkInternalsMissing(
            f"cannot record the settings of this Spark's DataStreamWriter: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error
    return found


_STATIC, _FINAL = 0x8, 0x10  # java.lang.reflect.Modifier


@contextmanager
def _as_recorded(query: ScriptQuery) -> Iterator[None]:
    java = query.writer._jwrite
    present = recorded_fields(java)
    try:
        for each, value in query.fields:
            each.set(java, value)
        yield
    finally:
        for each, value in present:
            each.set(java, value)
        query.writer._jwrite = java
