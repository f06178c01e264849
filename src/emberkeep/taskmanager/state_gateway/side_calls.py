"""Calls to durable stores that run beside the call of a request, so that both take the time of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")

_MOST = 32  # calls that run beside others at once, in one gateway
_THREAD_NAME = "emberkeep-state-gateway-side"  # in a driver, other names are taken for threads of the script


class SideCall(Generic[ResultT]):
    """A call that has begun, or that begins when its result is requested."""

    def __init__(self, work: Callable[[], ResultT], future: Future[ResultT] | None) -> None:
        """``future``: of the running call; None if it has not begun."""
        self._work = work
        self._future = future

    def result(self) -> ResultT:
        """Return what the call returns, or raise what it raises. Blocks until then."""
        return self._work() if self._future is None else self._future.result()


class SideCalls:
    """The side calls of one gateway. Any thread may call it.

    None of them waits for another one: if too many run, a further call begins when its result is requested, in the
    thread that requests it. So a store that hangs costs the requests to other stores only the time that side calls
    save.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._pool = ThreadPoolExecutor(most, _THREAD_NAME)
        self._free = threading.Semaphore(most)

    def begin(self, work: Callable[[], ResultT]) -> SideCall[ResultT]:
        """Begin a call in another thread, if one is free."""
        if not self._free.acquire(blocking=False):
            return SideCall(work, None)
        try:
            future = self._pool.submit(work)
        except RuntimeError:  # closed
            self._free.release()
            return SideCall(work, None)
        future.add_done_callback(lambda _: self._free.release())
        return SideCall(work, future)

    def close(self) -> None:
        """Begin no more calls in other threads. Idempotent."""
        self._pool.shutdown(wait=False)
