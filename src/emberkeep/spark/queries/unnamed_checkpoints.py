"""The checkpoints of unnamed queries that set no location: each is found by the query's position in the script.

A script may try again: it starts a query anew after its start or a batch has failed. Then the query keeps its position
and continues from its checkpoint. It is recognized by its plan, its sink and the function that was given to the sink.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from emberkeep.spark.files.state_locations import StateLocations
from emberkeep.spark.queries.checkpoint_store import CheckpointStore
from emberkeep.spark.queries.checkpoints import QueryIdentity, directory_of_unnamed, record_unnamed

_MOST = 1_000  # queries that may be started again
_PLAIN = (str, bytes, int, float, bool, type(None))
log = structlog.get_logger(__name__)

FUNCTION = "_emberkeep_function"
"""Attribute of a writer: what was given to ``foreachBatch`` or ``foreach``."""


@dataclass(eq=False)
class _Unnamed:
    """``function``: see ``_described``. ``handle``: the StreamingQuery of the newest run; None if none has started."""

    ordinal: int
    identity: QueryIdentity
    frame: Any
    function: Any
    location: str
    is_starting: bool = False
    handle: Any = None

    def is_again(self, writer: Any, identity: QueryIdentity) -> bool:
        """True if this query has failed, and ``writer`` starts it again."""
        if self.is_starting or self.identity != identity:
            return False
        try:
            return self._has_failed() and self.function == _described(writer) and self._reads_as(writer._df)
        except Exception as error:  # noqa: BLE001 - Spark does not answer, or objects of the script cannot be compared
            log.warning("cannot tell whether a query is started again", query=str(identity), reason=str(error)[:500])
            return False

    def has_ended_well(self) -> bool:
        """True if no start continues this query."""
        try:
            is_over = self.handle is not None and not self.handle._jsq.isActive()
            return not self.is_starting and is_over and not self._has_failed()
        except Exception:  # noqa: BLE001 - Spark does not answer
            return False

    def _has_failed(self) -> bool:
        return self.handle is None or self.handle.exception() is not None

    def _reads_as(self, frame: Any) -> bool:
        return self.frame is frame or bool(_plan(self.frame).sameResult(_plan(frame)))


class UnnamedCheckpoints:
    """Chooses the checkpoints. One per process; ``locate`` is called under a lock."""

    def __init__(self, locations: StateLocations) -> None:
        self._locations = locations
        self._ordinals = itertools.count()
        self._given: list[_Unnamed] = []

    @contextmanager
    def starting(self) -> Iterator[Start]:
        """Enclose the start of a query, whether it gets its checkpoint here or not."""
        start = Start()
        try:
            yield start
        finally:
            if start.query is not None:
                start.query.is_starting = False

    def locate(self, writer: Any, identity: QueryIdentity, root: str, start: Start) -> str:
        """Return the location of the query that ``writer`` is about to start. Raises CheckpointIdentityError."""
        self._given = [each for each in self._given if not each.has_ended_well()][-_MOST:]
        query = next((each for each in self._given if each.is_again(writer, identity)), None)
        if query is None:
            ordinal = next(self._ordinals)
            location = f"{root}/{directory_of_unnamed(ordinal, identity)}"
            query = _Unnamed(ordinal, identity, writer._df, _described(writer), location)
            self._given.append(query)
        start.begins(query)
        store = CheckpointStore(writer._spark, root, self._locations.for_spark(writer._spark, root))
        known = store.read()
        record = record_unnamed(known, query.ordinal, identity, root)
        if record is not known:
            store.write(record)
        return query.location

    def starts_again(self, location: str | None, start: Start) -> None:
        """Note that a query whose checkpoint may have been chosen here is started with the same writer."""
        for query in self._given:
            if query.location == location:
                start.begins(query)


@dataclass
class Start:
    """The start of one query. ``query``: None if its checkpoint is not chosen here."""

    query: _Unnamed | None = None

    def begins(self, query: _Unnamed) -> None:
        query.is_starting, self.query = True, query

    def succeeded(self, handle: Any) -> None:
        if self.query is not None:
            self.query.handle = handle


def _plan(frame: Any) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _described(writer: Any) -> Any:
    """Return the function of a writer in a form that is equal for a function that the script has defined again.

    The plain values that it takes from its module are part of the form: a loop may change them between two queries.
    """
    function = getattr(writer, FUNCTION, None)
    if not isinstance(function, types.FunctionType):
        return function
    code, names = function.__code__, function.__globals__
    values = {name: names[name] for name in code.co_names if name in names and isinstance(names[name], _PLAIN)}
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    return code, values, cells, function.__defaults__, function.__kwdefaults__
