"""What is kept in ZooKeeper of jobs that ended while their records were damaged: one node per job.

A node's time of creation says since when. Its data is the job's handle, which may be what was damaged.
"""

from __future__ import annotations

import asyncio

from emberkeep.adapters.graph_files import GraphFiles
from emberkeep.adapters.zookeeper_epoch import LeaderEpoch
from emberkeep.adapters.zookeeper_errors import TransactionRefused
from emberkeep.adapters.zookeeper_layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper_session import ZooKeeperSession
from emberkeep.base.ids import JobId
from emberkeep.jobs.damaged_leftovers import DamagedJob


class DamagedNodes:
    """Belongs to a ZooKeeperJobStore. Raises what that one raises."""

    def __init__(
        self, session: ZooKeeperSession, layout: ZooKeeperLayout, epoch: LeaderEpoch, graphs: GraphFiles
    ) -> None:
        self._session = session
        self._layout = layout
        self._epoch = epoch
        self._graphs = graphs

    async def find(self) -> list[DamagedJob]:
        """Oldest first; without the blocklist, of which there is one at most."""
        self._epoch.check_taken()
        found = []
        for name in await self._session.children(self._layout.damaged):
            path, job_id = self._layout.damaged_job(name), JobId(name)
            node = None if path == self._layout.damaged_blocklist else await self._session.find(path)
            if node is not None:
                graphs = await asyncio.to_thread(self._graphs.of_job, job_id)
                places = (f"ZooKeeper, {path}", *graphs)
                found.append(DamagedJob(job_id=job_id, since_ms=node.created_ms, places=places))
        return sorted(found, key=lambda job: (job.since_ms, job.job_id))

    async def remove(self, job_id: JobId) -> None:
        """Graph first: as long as the node stands, the next leader knows what is still to be removed."""
        await self._epoch.confirm()
        path = self._layout.damaged_job(job_id)
        node = await self._session.find(path)
        if node is None:
            return
        await asyncio.to_thread(self._graphs.remove_job, job_id)
        try:
            await self._epoch.commit(
                f"remove what is left of the damaged job {job_id}", lambda each: each.delete(path, node.version)
            )
        except TransactionRefused:
            return  # gone meanwhile
