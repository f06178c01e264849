"""Shows which JobManagers can read the shared storage: each of these has an ephemeral node in ZooKeeper."""

from __future__ import annotations

import contextlib

from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import Absent

_PREFIX = "reader-"


class StorageReaders:
    """The JobManagers of one cluster that can read the storage, as seen by the JobManager with this session."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout) -> None:
        self._session = session
        self._place = layout.storage

    async def exchange(self, *, reads: bool) -> bool:
        """Publish whether this JobManager can read the storage; return True if another JobManager can read it.

        ``reads``: this JobManager can read the storage. Raises Absent if the cluster's znodes do not exist yet; the
        first contender for leadership creates them. Raises RetryLater, UnknownOutcome, Fatal.
        """
        mine, others = [], False
        for name in await self._session.children(self._place):
            path = f"{self._place}/{name}"
            with contextlib.suppress(Absent):
                if (await self._session.get(path)).owner == self._session.id:
                    mine.append(path)
                else:
                    others = True
        if reads and not mine:
            await self._session.create(f"{self._place}/{_PREFIX}", b"", ephemeral=True, sequence=True)
        for path in () if reads else mine:
            with contextlib.suppress(Absent):
                await self._session.delete(path)
        return others
