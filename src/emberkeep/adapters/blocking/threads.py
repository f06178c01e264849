"""Threads for blocking work of an event loop, that take it from one queue and hand results over in batches.

With thousands of small BLOBs, waking somebody for each is what would take the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeAlias, TypeVar, cast

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
# Works on several items at once; returns what came of each, an error in the place of a result.
Work: TypeAlias = Callable[[Sequence[ItemT]], Sequence[ResultT | BaseException]]


class _Job(Generic[ItemT, ResultT]):
    """An item that a thread works on, and who waits for it on the event loop."""

    def __init__(self, work: Work[ItemT, ResultT], item: ItemT, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.item = item
        self.future: asyncio.Future[ResultT] = loop.create_future()
        self.outcome: ResultT | BaseException | None = None

    def tell(self) -> None:
        """On the event loop, afterwards."""
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(cast("ResultT", self.outcome))


class WorkThreads:
    """A bounded number of threads. They end when there is nothing to do and this is closed, or not used any more."""

    def __init__(self, threads: int, name: str, *, together: int = 1) -> None:
        """``together``: how many items of the same work a thread takes at once, when they have to wait."""
        self._threads = threads
        self._together = together
        self._pool = ThreadPoolExecutor(threads, name)
        self._lock = threading.Lock()  # guards what follows
        self._queue: deque[_Job[Any, Any]] = deque()
        self._working = 0  # threads
        self._finished: list[_Job[Any, Any]] = []

    def start(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Begin ``work`` as soon as a thread is free. Nobody but ``forget`` may cancel the future: shield it."""
        return self.start_together(lambda _: [work()], None)

    def start_together(self, work: Work[ItemT, ResultT], item: ItemT) -> asyncio.Future[ResultT]:
        """Like ``start``, for work that costs less when it is done for several items at once."""
        loop = asyncio.get_running_loop()
        job = _Job(work, item, loop)
        with self._lock:
            self._queue.append(job)
            if self._working < self._threads:
                self._working += 1
                self._pool.submit(self._work, loop)
        return job.future

    def forget(self, future: asyncio.Future[ResultT]) -> bool:
        """Whether the work had not begun; it never will, and ``future`` is cancelled."""
        with self._lock:
            waiting = next((job for job in self._queue if job.future is future), None)
            if waiting is None:
                return False
            self._queue.remove(waiting)
        future.cancel()
        return True

    def close(self) -> list[asyncio.Future[Any]]:
        """No more is begun; returns the futures of what was not. Idempotent."""
        with self._lock:
            queued = [job.future for job in self._queue]
            self._queue.clear()
        self._pool.shutdown(wait=False)
        return queued

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread: work until there is nothing to do."""
        while jobs := self._next():
            try:
                outcomes = jobs[0].work([job.item for job in jobs])
            except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait are told
                outcomes = [error] * len(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.outcome = outcome
            with self._lock:
                wake = not self._finished
                self._finished += jobs
            if wake:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                    loop.call_soon_threadsafe(self._hand_over)

    def _next(self) -> list[_Job[Any, Any]]:
        """What a thread is to do now; none: it is to end."""
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


async def ended(future: asyncio.Future[ResultT]) -> None:
    """Return when ``future`` is done, with whatever result, however often the caller is cancelled meanwhile.

    Raises CancelledError at the end if it was.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if not future.cancelled():
        future.exception()  # the one who asks for the result raises it
    if cancelled is not None:
        raise cancelled
