"""One thread for the work of a supervisor, which says so if that work hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import structlog

HANGING_SECONDS: Final = 10.0  # without an end of any work

_log = structlog.get_logger(__name__)
_ArgumentTs = TypeVarTuple("_ArgumentTs")
_ResultT = TypeVar("_ResultT")


class WatchedThread:
    """Does one piece of work after the other. Belongs to one event loop. ``directory``: named if the work hangs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "process-supervisor")
        self._waiting = 0  # pieces that have not ended
        self._goes_since = 0.0  # loop time: of the newest end, or when work came for the idle thread
        self._hangs = False
        self._is_closed = False

    async def run(self, work: Callable[[*_ArgumentTs], _ResultT], *arguments: *_ArgumentTs) -> _ResultT:
        """Return the result of ``work``. If the caller is cancelled, work that has begun goes on."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, work, *arguments)
        if not self._waiting:
            self._goes_since = loop.time()
        self._waiting += 1
        future.add_done_callback(self._ended)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=HANGING_SECONDS)
                if not future.done() and loop.time() - self._goes_since >= HANGING_SECONDS:
                    self._say_hanging()
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    async def close(self, patience: float) -> None:
        """Take no more work, and wait ``patience`` seconds at most for that which has been taken. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        last = asyncio.get_running_loop().run_in_executor(self._thread, int)
        self._thread.shutdown(wait=False)
        await asyncio.wait({last}, timeout=patience)

    def _ended(self, future: asyncio.Future[_ResultT]) -> None:
        self._waiting -= 1
        self._goes_since = future.get_loop().time()
        if not future.cancelled():
            future.exception()  # seen: the caller may have been cancelled
            if self._hangs:
                self._hangs = False
                _log.warning("the supervisor of processes goes on")

    def _say_hanging(self) -> None:
        if not self._hangs:
            self._hangs = True
            _log.error(
                "the supervisor of processes hangs: it starts none, and sees none end",
                directory=str(self._directory),
                seconds=HANGING_SECONDS,
                hint="check the disk of the task manager's working directory",
            )
