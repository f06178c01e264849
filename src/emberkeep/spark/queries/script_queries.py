"""The streaming queries that the script has started, with all that is needed to start each of them again.

A DataStreamWriter can be changed after it has started a query, and start another one. So its fields are noted at each
start and put back for the time of starting that query again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import key_of_named, key_of_unnamed
from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.exception_text import in_one_line
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity


@dataclass(eq=False)
class ScriptQuery:
    """``handle``: the script's StreamingQuery; its JVM side is exchanged when the query is started again. ``reached``:
    the checkpoint as Spark reaches it, None where the query cannot recover. ``fields``: of its writer, as
    (java.lang.reflect.Field, value). ``away``: ended by a procedure; the script does not see it. ``path``: the option
    of that name, "" where it is not given."""

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
    path: str = ""

    @property
    def session(self) -> Any:
        return self.writer._spark

    def __str__(self) -> str:
        return f"query {self.name!r}" if self.name else f"the unnamed query to {self.identity}"


@dataclass
class _Own(threading.local):
    """Per thread: what is started is no query of the script, or one that it has started before."""

    again: ScriptQuery | None = field(default=None)


class ScriptQueries:
    """One per process, used from many threads. Holds queries until ``progress`` was told that they have ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = _Own()
        self._known: list[ScriptQuery] = []
        self._unnamed = 0
        self._last_start = time.monotonic()

    @property
    def starting_again(self) -> ScriptQuery | None:
        """The query that this thread starts again, for the hook around the start."""
        return self._own.again

    def key_for(self, writer: Any, name: str | None, identity: QueryIdentity) -> str:
        """What a query is told by in savepoints: its name, else its place among the unnamed ones."""
        if name is not None:
            return key_of_named(name)
        with self._lock:
            for query in self._known:
                if query.writer is writer and query.identity == identity and not query.name:
                    return query.key  # the script starts it once more
            ordinal, self._unnamed = self._unnamed, self._unnamed + 1
        return key_of_unnamed(ordinal, identity.sink, identity.output_mode)

    def add(self, query: ScriptQuery) -> None:
        with self._lock:
            self._known = [known for known in self._known if known.key != query.key] + [query]
            self._last_start = time.monotonic()

    def quiet_seconds(self) -> float:
        """Since the script has started the last one."""
        with self._lock:
            return time.monotonic() - self._last_start

    def all(self) -> list[ScriptQuery]:
        """In the order of their starts; also such that have ended."""
        with self._lock:
            return list(self._known)

    def has_failed(self) -> bool:
        """Whether one of them has ended with an error. Raises what Py4J raises."""
        return any(query.handle.exception() is not None for query in self.all())

    def of_handle(self, handle: Any) -> ScriptQuery | None:
        with self._lock:
            return next((query for query in self._known if query.handle is handle), None)

    def handle_of(self, found: Any) -> Any:
        """The script's own handle of the query that Spark has given another one for; that one where it has none."""
        identity = str(found.id)
        return next((query.handle for query in self.all() if str(query.handle.id) == identity), found)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()

    def start_again(self, query: ScriptQuery, *, once: bool = False) -> Any:
        """Start a query by its recorded writer; returns the new StreamingQuery. ``once``: for one batch only, the one
        that is planned where one is."""
        writer = query.writer
        self._own.again = query
        try:
            with _as_recorded(query):
                if once:
                    trigger = writer._spark._jvm.org.apache.spark.sql.streaming.Trigger.Once()
                    writer._jwrite = writer._jwrite.trigger(trigger)
                return getattr(writer, query.method)(*query.positional, **query.named)
        finally:
            self._own.again = None


def check_not_failed(query: ScriptQuery, handle: Any) -> None:
    """Raises Fatal with what this run of the query has failed with."""
    failure = call("exception of a query", handle._jsq.exception)
    if failure.isDefined():
        line = in_one_line(str(failure.get().getMessage()))
        raise Fatal(f"{query} has failed: {line}", hint="the driver's log says why")


def recorded_fields(java: Any) -> list[tuple[Any, Any]]:
    """The present values of a writer's fields. Raises SparkInternalsMissing."""
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
            f"this Spark's DataStreamWriter cannot be recorded: {error}", hint="Emberkeep works with PySpark 4.3"
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
