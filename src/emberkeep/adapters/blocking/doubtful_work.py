"""Work on files of others: a job names a path, and the mount below it may never answer.

Each piece of work has a thread of its own, which a process does not wait for when it ends. A key, such as a job, has a
bounded number of pieces at a time, so that what hangs takes no more threads than that for each key.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from emberkeep.adapters.blocking.shares import WorkShares
from emberkeep.base.errors import RetryLater, Unavailable
from emberkeep.base.processes.threads import start_thread

ResultT = TypeVar("ResultT")


class Pulse:
    """Shows that a piece of work goes on, and tells the work to end. Any thread may use it."""

    def __init__(self) -> None:
        self.beats = 0
        self._abandoned = threading.Event()

    def beat(self) -> None:
        """Call this at each step of the work. Raises RetryLater once nobody waits for the work any longer."""
        if self._abandoned.is_set():
            raise RetryLater("this work was abandoned")
        self.beats += 1

    def abandon(self) -> None:
        self._abandoned.set()


class DoubtfulWork:
    """Runs work that may hang. Belongs to one event loop.

    ``most``: pieces at a time, and ``per_key``: those of one key. ``patience``: seconds to wait for a thread, and for
    the work itself.
    """

    def __init__(self, most: int, *, patience: float, per_key: int = 1) -> None:
        self._patience = patience
        self._shares = WorkShares(most, per_key, patience)
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, key: Hashable, what: str, work: Callable[[], ResultT]) -> ResultT:
        """Return the result of ``work``. ``what`` names the files in errors.

        Raises what ``work`` raises, TimeoutError if it takes too long, RetryLater if no thread is free in time. Work
        that has begun goes on if it takes too long, and if the caller is cancelled.
        """
        task = await self._begun(key, what, work)
        await asyncio.wait({task}, timeout=self._patience)
        if not task.done():
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), what)
        return task.result()

    async def run_steps(self, key: Hashable, what: str, work: Callable[[Pulse], ResultT]) -> ResultT:
        """Return the result of work of any length. ``what`` names the files in errors.

        Raises what ``work`` raises, Unavailable if it stops beating, RetryLater if no thread is free in time. Then, and
        if the caller is cancelled, the work ends at its next beat, if ever.
        """
        pulse = Pulse()
        try:
            task = await self._begun(key, what, lambda: work(pulse))
            while not task.done():
                beats = pulse.beats
                await asyncio.wait({task}, timeout=self._patience)
                if not task.done() and pulse.beats == beats:
                    raise Unavailable(
                        f"{what} has not answered for {self._patience:g} seconds",
                        hint="check that storage, and that its file system is mounted",
                    )
            return task.result()
        finally:
            pulse.abandon()  # without effect on work that has ended

    async def _begun(self, key: Hashable, what: str, work: Callable[[], ResultT]) -> asyncio.Task[ResultT]:
        """Return the task of work that has begun, or has ended because no thread was free."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(key, what, work, begun), name=f"work on {what}")
        self._running.add(task)
        task.add_done_callback(self._ended)
        waited: set[asyncio.Future[Any]] = {begun, task}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not begun.done():
                task.cancel()
            raise
        return task

    async def _run(self, key: Hashable, what: str, work: Callable[[], ResultT], begun: asyncio.Future[None]) -> ResultT:
        async with self._shares.part(key, what):
            begun.set_result(None)
            return await _in_own_thread(work)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: there may be nobody who waits


async def _in_own_thread(work: Callable[[], ResultT]) -> ResultT:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def tell(results: list[ResultT], error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(results[0])
        else:
            future.set_exception(error)

    def run() -> None:
        results: list[ResultT] = []
        failure: BaseException | None = None
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - any error is passed to the waiting caller
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(tell, results, failure)

    start_thread(run, "doubtful-work")
    return await future
