"""Threads that do an event loop's blocking work. They take it from one queue and return results in batches.

With thousands of small BLOBs, one wake-up of the loop for each would take most of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

from emberkeep.base.processes.threads import started_pool

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
# Works on several items at once. Returns one outcome for each: a result, or an error in its place.
Work: TypeAlias = Callable[[Sequence[ItemT]], Sequence[ResultT | BaseException]]


class _Job(Generic[ItemT, ResultT]):
    """An item that a thread works on, and the event loop's future that receives the result or error."""

    def __init__(self, work: Work[ItemT, ResultT], item: ItemT, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.item = item
        self.future: asyncio.Future[ResultT] = loop.create_future()
        self.outcome: ResultT | BaseException | None = None

    def tell(self) -> None:
        """Set the future's result or error. Called on the event loop once the work has ended."""
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(cast("ResultT", self.outcome))


class WorkThreads:
    """A bounded number of threads. They end when no work is left and the object is closed or no longer used."""

    def __init__(self, threads: int, name: str, *, together: int = 1) -> None:
        """``together`` is how many waiting items of the same work a thread takes at once. Raises Unavailable."""
        self._threads = threads
        self._together = together
        self._pool = started_pool(threads, name)
        self._lock = threading.Lock()  # guards what follows
        self._queue: deque[_Job[Any, Any]] = deque()
        self._working = 0  # threads
        self._finished: list[_Job[Any, Any]] = []

    def start(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Begin ``work`` as soon as a thread is free. Only ``forget`` may cancel the future: shield it."""
        return self.start_together(lambda _: [work()], None)

    def start_together(self, work: Work[ItemT, ResultT], item: ItemT) -> asyncio.Future[ResultT]:
        """Like ``start``, for work that costs less when done for several items at once."""
        loop = asyncio.get_running_loop()
        job = _Job(work, item, loop)
        with self._lock:
            self._queue.append(job)
            if self._working < self._threads:
                self._working += 1
                self._pool.submit(self._work, loop)
        return job.future

    def forget(self, future: asyncio.Future[ResultT]) -> bool:
        """Cancel ``future`` and its work if the work has not begun. Return True if they were cancelled."""
        with self._lock:
            waiting = next((job for job in self._queue if job.future is future), None)
            if waiting is None:
                return False
            self._queue.remove(waiting)
        future.cancel()
        return True

    def close(self) -> list[asyncio.Future[Any]]:
        """Begin no more work. Return the futures of waiting work, for the caller to complete. Idempotent."""
        with self._lock:
            queued = [job.future for job in self._queue]
            self._queue.clear()
        self._pool.shutdown(wait=False)
        return queued

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work in a thread until the queue is empty."""
        while jobs := self._next():
            try:
                outcomes = jobs[0].work([job.item for job in jobs])
            except BaseException as error:  # noqa: BLE001 - any error is passed to the waiting callers
                outcomes = [error] * len(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.outcome = outcome
            with self._lock:
                wake = not self._finished
                self._finished += jobs
            if wake:
                with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
                    loop.call_soon_threadsafe(self._hand_over)

    def _next(self) -> list[_Job[Any, Any]]:
        """Take a thread's next jobs from the queue. An empty list makes the thread end."""
        with self._lock:
            jobs: list[_Job[Any, Any]] = []
            while self._queue and len(jobs) < self._together and (not jobs or self._queue[0].work == jobs[0].work):
                jobs.append(self._queue.popleft())
            if not jobs:
                self._working -= 1
            return jobs

    def _hand_over(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        for job in finished:
            job.tell()


async def ended(future: asyncio.Future[ResultT], *, within: float | None = None) -> None:
    """Wait until ``future`` is done, whatever its outcome, even if the caller is cancelled in the meantime.

    ``within``: wait for at most this many seconds; ``future.done()`` says whether it has ended. Raises CancelledError
    at the end if the caller was cancelled.
    """
    cancelled: asyncio.CancelledError | None = None
    loop = future.get_loop()
    until = None if within is None else loop.time() + within
    while not future.done() and (until is None or loop.time() < until):
        # Cancelling the caller must not cancel the future itself. asyncio.wait would do, at three times the cost.
        waiter = loop.create_future()
        wake = partial(_wake, waiter)
        future.add_done_callback(wake)
        timer = None if until is None else loop.call_at(until, wake, future)
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancelled = error
        finally:
            future.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()
    if future.done() and not future.cancelled():
        future.exception()  # retrieved here; the caller of ``result`` raises it
    if cancelled is not None:
        raise cancelled


def _wake(waiter: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(None)
