"""Threads for work with files, on this machine's disk or in a store that may never answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from emberkeep.adapters.blocking.threads import Work, WorkThreads, ended
from emberkeep.base.clock import since_boot
from emberkeep.base.errors import RetryLater

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class DiskThreads:
    """Threads for work that callers always wait for, even when they are cancelled."""

    def __init__(self, threads: int, name: str, *, together: int = 1) -> None:
        """``threads``, ``name`` and ``together`` are those of WorkThreads."""
        self._threads = WorkThreads(threads, name, together=together)

    def start(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Begin ``work``. Await the future with ``ended``, even if the caller is cancelled."""
        return self._threads.start(work)

    async def run(self, work: Callable[[], ResultT], undo: Callable[[ResultT], None] | None = None) -> ResultT:
        """Return the result of ``work``.

        A cancelled call returns only when ``work`` has ended, so that its result can be cleaned up: by ``undo`` or by
        the caller.
        """
        return await self._wait(self._threads.start(work), undo)

    async def run_together(
        self, work: Work[ItemT, ResultT], item: ItemT, undo: Callable[[ResultT], None] | None = None
    ) -> ResultT:
        """Like ``run``, for work that costs less when done for several items at once."""
        return await self._wait(self._threads.start_together(work, item), undo)

    async def _wait(self, future: asyncio.Future[ResultT], undo: Callable[[ResultT], None] | None) -> ResultT:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError):  # cancelled again: the first cancellation is raised below
                await ended(future)
            if undo is not None and future.exception() is None:
                result = future.result()
                with contextlib.suppress(asyncio.CancelledError):
                    await ended(self.start(lambda: undo(result)))
            raise


class EndSignal:
    """Tells work in a thread to end. The work checks the signal between two pieces."""

    def __init__(self) -> None:
        self.extra = 0.0  # additional seconds that the work may take for its bytes
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise RetryLater if the signal is set."""
        if self._event.is_set():
            raise RetryLater("this transfer was abandoned")


class StoreThreads:
    """Threads for calls of a store that may never answer. The time that a caller waits is bounded."""

    def __init__(self, threads: int, store: str, *, patience: float) -> None:
        """``store`` names the store in messages. ``patience`` is in seconds, for a call that transfers no bytes."""
        self._threads = WorkThreads(threads, "ha-store")
        self._store = store
        self._patience = patience

    async def run(self, work: Callable[[EndSignal], ResultT]) -> ResultT:
        """Return the result of ``work``.

        Raises RetryLater if it takes too long; the work ends at its next check, if ever.
        """
        abort = EndSignal()

        def checked() -> ResultT:
            abort.check()
            return work(abort)

        future = self._threads.start(checked)
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            while not future.done():
                await asyncio.wait([future], timeout=self._patience)
                if not future.done() and clock() - begun > self._patience + abort.extra:
                    raise RetryLater(
                        f"the HA store {self._store} does not answer", hint="check the store and the network path to it"
                    )
        except asyncio.CancelledError:
            abort.set()
            await asyncio.wait([future], timeout=self._patience)
            raise
        finally:
            abort.set()
            self._threads.forget(future)
            future.add_done_callback(_seen)
        return future.result()


def in_time_for(within: float, store: str) -> Callable[[], None]:
    """Return a check for a deletion: it raises RetryLater once ``within`` seconds from now have passed.

    ``store`` names the store in the error's message.
    """
    deadline = since_boot() + within

    def check() -> None:
        if since_boot() >= deadline:
            raise RetryLater(f"deletion in {store} was abandoned: it was decided more than {within:g} s ago")

    return check


def _seen(future: asyncio.Future[ResultT]) -> None:
    """Retrieve the error of a future without a waiter, so that asyncio does not log it as lost."""
    if not future.cancelled():
        future.exception()
