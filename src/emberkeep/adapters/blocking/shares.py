"""Divide a shared resource by key, so that a key whose work hangs does not starve the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass

from emberkeep.base.errors import RetryLater


@dataclass
class _Share:
    free: asyncio.Semaphore
    users: int = 0  # holding a part, or waiting for one


class WorkShares:
    """Parts of a shared resource. Belongs to one event loop. Waiting takes no thread, and an unused key no memory."""

    def __init__(self, total: int, per_key: int, patience: float) -> None:
        """One key gets at most ``per_key`` of the ``total`` parts. ``patience``: seconds to wait for a part."""
        self._total = asyncio.Semaphore(total)
        self._per_key = per_key
        self._patience = patience
        self._shares: dict[Hashable, _Share] = {}

    @contextlib.asynccontextmanager
    async def part(self, key: Hashable, what: str) -> AsyncIterator[None]:
        """Hold one part for ``key``. Raises RetryLater, naming ``what``, if no part becomes free in time."""
        share = self._shares.setdefault(key, _Share(asyncio.Semaphore(self._per_key)))
        share.users += 1
        try:
            if share.free.locked() or self._total.locked():
                await self._wait(share, what)
            else:
                await self._take(share)
            try:
                yield
            finally:
                share.free.release()
                self._total.release()
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[key]

    async def _wait(self, share: _Share, what: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._take(share)
        except TimeoutError:
            raise RetryLater(
                f"{what} could not be reached for {self._patience:g} seconds: earlier requests to it are still running",
                hint="check that storage",
            ) from None

    async def _take(self, share: _Share) -> None:
        await share.free.acquire()
        try:
            await self._total.acquire()
        except BaseException:
            share.free.release()
            raise
