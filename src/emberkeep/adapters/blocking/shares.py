"""Divide a shared resource by key, so that keys whose work hangs do not starve the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable

from emberkeep.adapters.blocking.division import Division
from emberkeep.base.errors import RetryLater


class WorkShares:
    """Parts of a shared resource. Belongs to one event loop. Waiting takes no thread, and an unused key no memory.

    ``Division`` decides who gets a part. A waiting key is one that may not take a part now, and the requests of one
    key are served in the order in which they came.
    """

    def __init__(self, total: int, per_key: int, patience: float) -> None:
        """One key gets at most ``per_key`` of the ``total`` parts. ``patience``: seconds to wait for a part."""
        self._division = Division(total, per_key)
        self._patience = patience
        self._free = total
        self._held: dict[Hashable, int] = {}  # parts of each key that has any
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def part(self, key: Hashable, what: str) -> AsyncIterator[None]:
        """Hold one part for ``key``. Raises RetryLater, naming ``what``, if no part becomes free in time."""
        if self._division.may_take(self._held.get(key, 0), self._free):
            self._take(key)
        else:
            await self._wait(key, what)
        try:
            yield
        finally:
            self._give_back(key)

    async def _wait(self, key: Hashable, what: str) -> None:
        """Return once ``key`` has been given a part."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # given in the same moment
                self._give_back(key)
            else:
                self._leave(key, turn)
            if isinstance(error, TimeoutError):
                raise self._too_late(key, what) from None
            raise

    def _too_late(self, key: Hashable, what: str) -> RetryLater:
        waited = f"{what} could not be reached for {self._patience:g} seconds"
        if key in self._held:
            return RetryLater(f"{waited}: earlier requests to it are still running", hint="check that storage")
        return RetryLater(
            f"{waited}: requests to {len(self._held)} other places are still running, which is all that run at once",
            hint="check the storage of the other jobs on this machine",
        )

    def _take(self, key: Hashable) -> None:
        self._free -= 1
        self._held[key] = self._held.get(key, 0) + 1

    def _give_back(self, key: Hashable) -> None:
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        while (lucky := self._division.next_key(self._waiting, self._held, self._free)) is not None:
            self._serve(lucky)

    def _serve(self, key: Hashable) -> None:
        """Give a part to the first of those that still wait for ``key``."""
        turns = self._waiting[key]
        turn = turns.popleft()
        if not turns:
            del self._waiting[key]
        if not turn.done():  # else its caller has given up a moment ago
            self._take(key)
            turn.set_result(None)

    def _leave(self, key: Hashable, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(key, None)
