"""Holding streaming queries between two batches: no batch is planned while they are to stand there.

A query is held in one of two ways. All of them stand while the gate is closed. Single ones stand before they would go
so far that Spark removed what a savepoint still copies of them: Spark keeps the logs and the state of the last
``spark.sql.streaming.minBatchesToRetain`` batches, on the driver and on executors, and what is older goes as newer
batches come. The number is fixed when a query starts. So the copy is safe for as long as the query stays within it,
whichever state store and file system it has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from emberkeep.spark.stopping.limit import Limit

_MARGIN = 2  # the entry before the copied batch is needed, too; and a state is one version ahead of its batch


def last_allowed(copied: int, retained: int) -> int:
    """The newest batch that may be planned while Spark, which keeps ``retained`` batches, is to keep all that the
    batch ``copied`` needs. At least that batch itself: a query that stands removes nothing."""
    return copied + max(0, retained - _MARGIN)


class PlanGate:
    """Used from many threads. Queries are told by the id that Spark gives them, which stays over restarts."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._passing = 0
        self._bounds: dict[str, int] = {}  # by query: the newest batch that may be planned
        self._stood: dict[str, float] = {}  # by query: seconds for which its bound has held it
        self._waiting: dict[str, float] = {}  # by query: since when its bound holds it

    @contextmanager
    def planning(self, query_id: str, batch: int) -> Iterator[None]:
        """Around the writing of a plan: begins when the gate is open, and the batch within what the query may do."""
        with self._changed:
            if self._is_beyond(query_id, batch):
                self._waiting[query_id] = time.monotonic()
                self._changed.notify_all()
            self._changed.wait_for(lambda: not self._closed and not self._is_beyond(query_id, batch))
            self._note_end(query_id)
            self._passing += 1
        try:
            yield
        finally:
            with self._changed:
                self._passing -= 1
                self._changed.notify_all()

    def close(self, limit: Limit) -> bool:
        """Returns when no plan is being written any more; False: one still is at the limit."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self._passing, limit.seconds_left)

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def retain(self, bounds: Mapping[str, int]) -> None:
        """By query, the newest batch that may be planned until ``release``; others go on freely."""
        with self._changed:
            self._bounds = dict(bounds)
            self._stood = {}

    def release(self) -> dict[str, float]:
        """Let all go on. Returns for how many seconds each was held, where it was."""
        with self._changed:
            self._bounds = {}
            for query_id in list(self._waiting):
                self._note_end(query_id)
            self._changed.notify_all()
            stood, self._stood = self._stood, {}
            return stood

    def wait_until_held(self, query_id: str, seconds: float) -> bool:
        """Whether its bound holds this query now, or does within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: query_id in self._waiting, seconds)

    def _is_beyond(self, query_id: str, batch: int) -> bool:
        bound = self._bounds.get(query_id)
        return bound is not None and batch > bound

    def _note_end(self, query_id: str) -> None:
        since = self._waiting.pop(query_id, None)
        if since is not None:
            self._stood[query_id] = self._stood.get(query_id, 0.0) + time.monotonic() - since
