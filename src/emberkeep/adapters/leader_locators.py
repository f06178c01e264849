"""Finding the leader: at a fixed address, or by the epoch node in ZooKeeper, which says who wrote it last.

While ZooKeeper is away the last leader known is still the best guess: running jobs go on with it.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.adapters.zookeeper_layout import LeaderRecord, ZooKeeperLayout, decode_node
from emberkeep.adapters.zookeeper_session import ZooKeeperSession
from emberkeep.base.errors import EmberkeepError
from emberkeep.leadership.model import LeaderAddress

RETRY_PAUSE = 0.25  # seconds between two looks while ZooKeeper does not answer

log = structlog.get_logger(__name__)


class KnownLeader:
    """Implements LeaderLocator: keeps the newest leader that it was told of, and wakes who waits for a newer one."""

    def __init__(self, leader: LeaderAddress | None = None) -> None:
        self._leader = leader
        self._news = asyncio.Event()

    def leader(self) -> LeaderAddress | None:
        return self._leader

    def tell(self, leader: LeaderAddress) -> None:
        """Of two leaders the one with the higher epoch is right: news may come late."""
        if self._leader is not None and leader.epoch <= self._leader.epoch:
            return
        self._leader = leader
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self, known: LeaderAddress | None) -> LeaderAddress:
        while self._leader is None or (known is not None and self._leader.epoch <= known.epoch):
            await self._news.wait()
        return self._leader


def fixed_leader(address: str) -> KnownLeader:
    """For clusters with one JobManager."""
    return KnownLeader(LeaderAddress(0, address))


class ZooKeeperLocator(KnownLeader):
    """Follows the epoch node while ``run`` runs."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout) -> None:
        super().__init__()
        self._session = session
        self._layout = layout

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            change = asyncio.Event()
            try:
                found = await read_leader(self._session, self._layout, change)
            except EmberkeepError as error:
                log.debug("the leader cannot be looked up", reason=str(error))
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if found is not None:
                self.tell(found)
            await change.wait()


async def read_leader(
    session: ZooKeeperSession, layout: ZooKeeperLayout, change: asyncio.Event
) -> LeaderAddress | None:
    """Who wrote the epoch last; None before the first leader. ``change`` is set when that may have changed, also when
    the connection breaks. Raises RetryLater, Fatal."""
    node = await session.find(layout.epoch, watch=change.set)
    if node is None or not node.data:
        return None
    record = decode_node(node.data, LeaderRecord, where=f"ZooKeeper, {layout.epoch}")
    return LeaderAddress(node.version, record.address)
