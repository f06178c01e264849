"""Finds the leader: by the epoch node in ZooKeeper, which names its last writer, and by news from other processes.

While ZooKeeper is unavailable, the last known leader is still the best guess: running jobs continue with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import LatchRecord, LeaderRecord, ZooKeeperLayout, decode_node
from emberkeep.adapters.zookeeper.session import SessionState, Znode, ZooKeeperSession
from emberkeep.base.errors import EmberkeepError
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.leadership.news import joined

RETRY_PAUSE = 0.25  # seconds between two attempts while ZooKeeper does not answer

log = structlog.get_logger(__name__)


class KnownLeader:
    """Implements LeaderLocator: keeps the newest news about the leader, and wakes callers when they change."""

    def __init__(self) -> None:
        self._news = LeaderNews()
        self._changed = asyncio.Event()

    def leader(self) -> LeaderAddress | None:
        return self._news.leader

    def news(self) -> LeaderNews:
        return self._news

    def hear(self, news: LeaderNews) -> None:
        """Merge ``news`` into what is known, see ``leadership.news.joined``."""
        merged = joined(self._news, news)
        if merged == self._news:
            return
        self._news = merged
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, known: LeaderAddress | None) -> LeaderAddress:
        while (leader := self._news.leader) is None or (known is not None and leader.epoch <= known.epoch):
            await self._changed.wait()
        return leader

    async def other_than(self, news: LeaderNews) -> LeaderNews:
        """Wait until what is known differs from ``news``, and return it."""
        while self._news == news:
            await self._changed.wait()
        return self._news


class ZooKeeperLocator(KnownLeader):
    """A locator that follows the epoch node and the queue of contenders while ``run`` runs.

    ``now_ms``: the time, for those who show since when the queue is as it is.
    """

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout, now_ms: Callable[[], int] = int) -> None:
        super().__init__()
        self._session = session
        self._layout = layout
        self.queue: tuple[str, ...] = ()  # addresses of the JobManagers that were in it when it was last read
        self.queue_changed_ms = 0  # when it was last seen to change; 0 before it was read
        self._now_ms = now_ms

    @property
    def is_informed(self) -> bool:
        """True if ZooKeeper would report a change now."""
        return self._session.state is SessionState.CONNECTED

    async def run(self) -> None:
        """Follow the epoch node and the queue until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._look_at_epoch))
            group.create_task(self._follow(self._look_at_queue))

    async def _follow(self, look: Callable[[asyncio.Event], Awaitable[LeaderNews]]) -> None:
        """Call ``look`` at the start, at each change, and again after a failure; keep the news that it returns."""
        while True:
            change = asyncio.Event()
            try:
                news = await look(change)
            except NotAuthentic as error:
                log.error("ignoring what ZooKeeper says about the leader", reason=str(error))
                await change.wait()
                continue
            except EmberkeepError as error:
                log.debug("cannot look up the leader", reason=str(error))
                await asyncio.sleep(RETRY_PAUSE)
                continue
            self.hear(news)
            await change.wait()

    async def _look_at_epoch(self, change: asyncio.Event) -> LeaderNews:
        found, known = await read_leader(self._session, self._layout, change), self.leader()
        if found is not None and known is not None and found.epoch < known.epoch:
            log.warning(
                "ignoring the leader in ZooKeeper, as a later one is known: ZooKeeper was restored from an older copy. "
                "Raise the epoch: see docs/storage.md",
                epoch=found.epoch,
                address=found.address,
                newest=known.epoch,
            )
        return LeaderNews(found)

    async def _look_at_queue(self, change: asyncio.Event) -> LeaderNews:
        """Return the addresses of all JobManagers in the queue. The leader is one of them."""
        names = await self._session.children(self._layout.election, watch=change.set)
        found = await asyncio.gather(*(self._session.find(f"{self._layout.election}/{name}") for name in names))
        queue = tuple(filter(None, map(_address, filter(None, found))))
        if queue != self.queue:
            self.queue, self.queue_changed_ms = queue, self._now_ms()
        return LeaderNews(job_managers=self.queue)


def _address(latch: Znode) -> str:
    """Return the address in a latch; empty if the latch cannot be read. Then its owner is not asked for news."""
    try:
        return decode_node(latch.data, LatchRecord, where="a latch").address
    except EmberkeepError:
        return ""


async def read_leader(
    session: ZooKeeperSession, layout: ZooKeeperLayout, change: asyncio.Event
) -> LeaderAddress | None:
    """Return the last writer of the epoch; None before the first leader.

    ``change`` is set when that may have changed, for instance when the connection breaks. Raises RetryLater, Fatal,
    and NotAuthentic if another program wrote the node, or put back the record of an earlier epoch.
    """
    node = await session.find(layout.epoch, watch=change.set)
    if node is None or not node.data:
        return None
    record = decode_node(node.data, LeaderRecord, where=f"ZooKeeper, {layout.epoch}")
    if record.epoch not in (0, node.version):
        raise NotAuthentic(
            f"ZooKeeper's node {layout.epoch} has version {node.version}, but the record of epoch {record.epoch}",
            hint="another program has written the node, or an operator has raised the epoch; the next leader replaces "
            "the record",
        )
    return LeaderAddress(node.version, record.address)
