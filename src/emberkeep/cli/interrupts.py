"""Count Ctrl-C, SIGTERM and SIGHUP, so that a first signal can cancel a job and a second one kill it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def to_catch(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals without a SIGHUP that this process ignores, as under ``nohup``.

    A handler would undo that, here and in the processes that this one starts.
    """
    hangup_ends = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [number for number in numbers if number is not signal.SIGHUP or hangup_ends]


class Interrupts:
    """The number of signals received so far. It never decreases."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Condition()

    @property
    def count(self) -> int:
        return self._count

    async def wait_for(self, count: int) -> None:
        """Return once ``count`` signals have arrived in total."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Within this context, count signals instead of ending the process. Needs a running event loop."""
        loop = asyncio.get_running_loop()
        pending: set[asyncio.Task[None]] = set()

        def caught() -> None:
            self._count += 1
            task = loop.create_task(self._tell())
            pending.add(task)
            task.add_done_callback(pending.discard)

        counted = to_catch(_SIGNALS)
        for number in counted:
            loop.add_signal_handler(number, caught)
        try:
            yield
        finally:
            for number in counted:
                loop.remove_signal_handler(number)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. SIGTERM and SIGHUP cancel it, as asyncio lets Ctrl-C do."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"  # noqa: S101
    caught = to_catch((signal.SIGTERM, signal.SIGHUP))
    for number in caught:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await work
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
