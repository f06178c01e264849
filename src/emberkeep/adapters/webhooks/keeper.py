"""Keeps what waits for the webhook where the next leader finds it, and takes over what the leader before it kept."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.notifications.outbox import Outbox
from emberkeep.notifications.ports import NoticeStore

log = structlog.get_logger(__name__)

_BETWEEN = 0.1  # seconds between two writes: what is delivered at once needs few of them
_PAUSE = 1.0  # seconds after a failure
_LAST_PATIENCE = 1.0  # seconds for the last write of a leader: the next one waits for it


class OutboxKeeper:
    """Writes the outbox after each change. Delivery does not wait for it: an event may be sent twice, see its id."""

    def __init__(self, outbox: Outbox, store: NoticeStore, pause: float = _PAUSE) -> None:
        self._outbox = outbox
        self._store = store
        self._pause = pause
        self._changed = asyncio.Event()
        self._problem = ""

    def changed(self) -> None:
        """Learn that a notification was added or is done with."""
        self._changed.set()

    async def take_over(self, lineage: str, epoch: int) -> None:
        """Put what waited at earlier leaders before what waits now. Return once it could be read."""
        while True:
            try:
                earlier = await self._store.earlier(lineage, epoch)
            except (EmberkeepError, OSError) as error:
                self._note(str(error))
                await asyncio.sleep(self._pause)
                continue
            self._note("")
            if earlier:
                log.info("events of an earlier leader wait for the webhook", count=len(earlier))
                self._outbox.put_first(earlier)
                self._changed.set()
            return

    async def run(self, lineage: str, epoch: int) -> None:
        """Write until cancelled. ``take_over`` has returned: a write removes what earlier leaders have kept."""
        try:
            while True:
                await self._changed.wait()
                done = await self._write(lineage, epoch)
                await asyncio.sleep(_BETWEEN if done else self._pause)
        finally:
            if self._changed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_PATIENCE):
                        await self._write(lineage, epoch)

    async def _write(self, lineage: str, epoch: int) -> bool:
        self._changed.clear()
        try:
            await self._store.keep(lineage, epoch, self._outbox.waiting())
        except (EmberkeepError, OSError) as error:
            self._changed.set()
            self._note(str(error))
            return False
        except asyncio.CancelledError:
            self._changed.set()
            raise
        self._note("")
        return True

    def _note(self, problem: str) -> None:
        if problem and not self._problem:
            log.warning("events that wait for the webhook cannot be kept for the next leader", reason=problem)
        elif self._problem and not problem:
            log.info("events that wait for the webhook are kept again")
        self._problem = problem
