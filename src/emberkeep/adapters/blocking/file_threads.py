"""Threads for work with files, on this machine's disk or in a store that may not answer."""

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
    """For work that is waited for until it has ended."""

    def __init__(self, threads: int, name: str, *, together: int = 1) -> None:
        """See WorkThreads."""
        self._threads = WorkThreads(threads, name, together=together)

    def start(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Begin ``work``. The future is to be awaited by ``ended``, however the caller goes on."""
        return self._threads.start(work)

    async def run(self, work: Callable[[], ResultT], undo: Callable[[ResultT], None] | None = None) -> ResultT:
        """The result of ``work``. A caller that is cancelled goes on only when it has ended: what it has made can be
        cleaned up then, by ``undo`` or by the caller."""
        return await self._wait(self._threads.start(work), undo)

    async def run_together(
        self, work: Work[ItemT, ResultT], item: ItemT, undo: Callable[[ResultT], None] | None = None
    ) -> ResultT:
        """Like ``run``, for work that costs less when it is done for several items at once."""
        return await self._wait(self._threads.start_together(work, item), undo)

    async def _wait(self, future: asyncio.Future[ResultT], undo: Callable[[ResultT], None] | None) -> ResultT:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError):  # cancelled again: it is on its way already
                await ended(future)
            if undo is not None and future.exception() is None:
                result = future.result()
                with contextlib.suppress(asyncio.CancelledError):
                    await ended(self.start(lambda: undo(result)))
            raise


class Abort:
    """Ends work in a thread between two pieces of it."""

    def __init__(self) -> None:
        self.extra = 0.0  # seconds that it may take on top, for its bytes
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises RetryLater."""
        if self._event.is_set():
            raise RetryLater("this transfer was given up")


class StoreThreads:
    """Threads for calls of a store that may never answer. Nobody waits for it longer than a while."""

    def __init__(self, threads: int, store: str, *, patience: float) -> None:
        """``store``: for messages. ``patience``: seconds for a call without bytes."""
        self._threads = WorkThreads(threads, "ha-store")
        self._store = store
        self._patience = patience

    async def run(self, work: Callable[[Abort], ResultT]) -> ResultT:
        """The result of ``work``. Raises RetryLater when it takes too long: it ends at its next check, if ever."""
        abort = Abort()

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
                    raise RetryLater(f"the HA store {self._store} does not answer", hint="check it and the way to it")
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
    """What raises RetryLater once ``within`` seconds are over from now on. ``store``: for the message."""
    deadline = since_boot() + within

    def check() -> None:
        if since_boot() >= deadline:
            raise RetryLater(f"what was to be deleted in {store} is kept: {within:g} s are over since it was decided")

    return check


def _seen(future: asyncio.Future[ResultT]) -> None:
    """An error that nobody waits for any more is no error."""
    if not future.cancelled():
        future.exception()
