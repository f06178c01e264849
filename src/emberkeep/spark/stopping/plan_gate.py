"""Hold streaming queries between two batches by delaying the plan of the next batch.

There are two ways to hold a query. A closed gate holds all queries. A bound holds one query before a batch that would
make Spark remove files that a savepoint is still copying: Spark retains the logs and the state of the last
``spark.sql.streaming.minBatchesToRetain`` batches, on the driver and on executors, and removes older ones as newer
batches run. That number is fixed when a query starts. So the copy is safe as long as the query stays within its bound,
with any state store and any file system.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from emberkeep.spark.stopping.limit import Limit

_MARGIN = 2  # the log entry before the copied batch is needed too, and a state's version is its batch plus one


def last_allowed(copied: int, retained: int) -> int:
    """Return the newest batch that a query may plan while the files of batch ``copied`` are being copied.

    Up to that batch, Spark removes none of these files. ``retained``: number of batches whose files Spark retains. The
    result is never less than ``copied``: that batch is planned already, and Spark removes nothing without a newer plan.
    """
    return copied + max(0, retained - _MARGIN)


class PlanGate:
    """Gate before the plan of each batch; any thread may use it.

    Queries are identified by Spark's query id, which survives restarts.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._passing = 0
        self._bounds: dict[str, int] = {}  # by query: the newest batch that may be planned
        self._stood: dict[str, float] = {}  # by query: total seconds for which its bound has held it
        self._waiting: dict[str, float] = {}  # by held query: time.monotonic() at which its bound began to hold it

    @contextmanager
    def planning(self, query_id: str, batch: int) -> Iterator[None]:
        """Enclose the write of a batch's plan: wait until the gate is open and the batch within the query's bound."""
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
        """Close the gate. Return True once no plan is being written; False if the limit is reached before that."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self._passing, limit.seconds_left)

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def retain(self, bounds: Mapping[str, int]) -> None:
        """Set for some queries the newest batch that may be planned until ``release``; other queries have no bound."""
        with self._changed:
            self._bounds = dict(bounds)
            self._stood = {}

    def release(self) -> dict[str, float]:
        """Remove all bounds. Return for how many seconds each held query was held."""
        with self._changed:
            self._bounds = {}
            for query_id in list(self._waiting):
                self._note_end(query_id)
            self._changed.notify_all()
            stood, self._stood = self._stood, {}
            return stood

    def _is_beyond(self, query_id: str, batch: int) -> bool:
        bound = self._bounds.get(query_id)
        return bound is not None and batch > bound

    def _note_end(self, query_id: str) -> None:
        since = self._waiting.pop(query_id, None)
        if since is not None:
            self._stood[query_id] = self._stood.get(query_id, 0.0) + time.monotonic() - since
