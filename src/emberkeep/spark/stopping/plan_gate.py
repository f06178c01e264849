"""Hold streaming queries between two batches, or end them there, at the plan of the next batch.

There are two ways to hold a query. A closed gate holds all queries. A bound holds one query before a batch that would
make Spark remove files that a savepoint is still copying: Spark retains the logs and the state of the last
``spark.sql.streaming.minBatchesToRetain`` batches, on the driver and on executors, and removes older ones as newer
batches run. That number is fixed when a query starts. So the copy is safe as long as the query stays within its bound,
with any state store and any file system.

A query that is being ended plans no further batch: its plan is refused, with an error that Spark takes for its own
interruption. Nothing is written then. If its state were set to TERMINATED at any other time, Spark could have planned a
batch that it then does not run, and that batch would have to run in a query of its own. So the state is set at one of
three moments: when the query's running batch has committed, when its plan is refused, or at once if it has no planned
batch.
"""

from __future__ import annotations

import logging  # noqa: TID251 - for the loggers of py4j
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from emberkeep.spark.stopping.limit import Limit

_MARGIN = 2  # the log entry before the copied batch is needed too, and a state's version is its batch plus one


def last_allowed(copied: int, retained: int) -> int:
    """Return the newest batch that a query may plan while the files of batch ``copied`` are being copied.

    Up to that batch, Spark removes none of these files. ``retained``: number of batches whose files Spark retains. The
    result is never less than ``copied``: that batch is planned already, and Spark removes nothing without a newer plan.
    """
    return copied + max(0, retained - _MARGIN)


class PlanRefused(Exception):
    """Refusal of the plan of a query that is being ended."""

    def __init__(self) -> None:
        # Spark recognizes an interruption in Python by this text.
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the plan gate, because the query is being "
            "ended: java.lang.InterruptedException"
        )


def leave_refusals_out_of_logs() -> None:
    """Keep refused plans out of the script's logs: py4j logs each exception of a callback as an error."""
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], PlanRefused)


class PlanGate:
    """Gate before the plan of each batch; any thread may use it.

    Queries are identified by Spark's query id, which survives restarts.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._passing: Counter[str] = Counter()  # by query: plans that are being written
        self._bounds: dict[str, int] = {}  # by query: the newest batch that may be planned
        self._stood: dict[str, float] = {}  # by query: total seconds for which its bound has held it
        self._waiting: dict[str, float] = {}  # by held query: time.monotonic() at which its bound began to hold it
        self._planned: dict[str, int] = {}  # by query: the batch that was last planned, as far as known
        self._committed: dict[str, int] = {}  # by query: the batch that was last committed, as far as known
        self._endings: dict[str, Callable[[], None]] = {}  # by query that is being ended: sets its state

    @contextmanager
    def planning(self, query_id: str, batch: int) -> Iterator[None]:
        """Enclose the write of a batch's plan: wait until the gate is open and the batch within the query's bound.

        Raises PlanRefused if the query is being ended.
        """
        with self._changed:
            if self._is_beyond(query_id, batch):
                self._waiting[query_id] = time.monotonic()
                self._changed.notify_all()
            self._changed.wait_for(lambda: query_id in self._endings or self._is_open_for(query_id, batch))
            self._note_end(query_id)
            end = self._endings.get(query_id)
            if end is None:
                self._passing[query_id] += 1
        if end is not None:
            end()
            raise PlanRefused
        try:
            yield
            with self._changed:
                self._planned[query_id] = batch
        finally:
            with self._changed:
                self._passing -= Counter((query_id,))
                self._changed.notify_all()

    def committed(self, query_id: str, batch: int) -> None:
        """Note that a query has committed a batch. If the query is being ended, it ends now."""
        with self._changed:
            self._committed[query_id] = batch
            end = self._endings.get(query_id)
        if end is not None:
            end()

    def end(self, query_id: str, end: Callable[[], None], limit: Limit) -> bool | None:
        """Refuse further plans of a query, and call ``end`` once it has no planned batch left.

        Return True if ``end`` was called, because no batch was planned; False if it will be called, by the query's own
        thread; None if it is not known whether a batch is planned: then the caller must find out. Without knowledge
        ``end`` is called after a commit or at a refused plan. ``limit``: for a plan that is being written.
        """
        with self._changed:
            self._endings[query_id] = end
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._passing[query_id], limit.seconds_left)
            planned, committed = self._planned.get(query_id), self._committed.get(query_id)
            if planned is None and committed is None:
                return None
            runs = self._passing[query_id] > 0 or (planned is not None and (committed is None or planned > committed))
        if runs:
            return False
        end()
        return True

    def let_continue(self, query_id: str) -> None:
        """Undo ``end``: the query may plan batches again."""
        with self._changed:
            self._endings.pop(query_id, None)

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

    def _is_open_for(self, query_id: str, batch: int) -> bool:
        return not self._closed and not self._is_beyond(query_id, batch)

    def _is_beyond(self, query_id: str, batch: int) -> bool:
        bound = self._bounds.get(query_id)
        return bound is not None and batch > bound

    def _note_end(self, query_id: str) -> None:
        since = self._waiting.pop(query_id, None)
        if since is not None:
            self._stood[query_id] = self._stood.get(query_id, 0.0) + time.monotonic() - since
