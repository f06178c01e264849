"""The nodes of a job store in ZooKeeper, as its parts read and write them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from emberkeep.adapters.zookeeper.epoch import LeaderEpoch
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import Znode, ZooKeeperSession
from emberkeep.base.errors import Absent

BATCH = 500  # nodes or graphs read together


@dataclass(frozen=True)
class StoreNodes:
    """Access to nodes: ``session`` reads them, transactions of ``epoch`` write them, ``layout`` has their paths."""

    session: ZooKeeperSession
    layout: ZooKeeperLayout
    epoch: LeaderEpoch

    async def read_all(self, paths: Iterable[str]) -> list[Znode | None]:
        """Read many nodes, with up to BATCH requests in flight; return None for those that do not exist."""
        waiting = list(paths)
        nodes: list[Znode | None] = []
        for start in range(0, len(waiting), BATCH):
            nodes += await asyncio.gather(*(self._read(path) for path in waiting[start : start + BATCH]))
        return nodes

    async def _read(self, path: str) -> Znode | None:
        try:
            return await self.session.get(path)
        except Absent:
            return None
