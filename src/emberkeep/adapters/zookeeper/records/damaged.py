"""Records that ZooKeeper keeps of jobs that ended while their records were damaged: one node per job.

The node's creation time is the time from which the records are kept. Its data is the job's handle, or empty if only the
checkpoint pointers were damaged. The job's other records are nodes below it. Any of these records may be damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.files import StoreFiles
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.session import Transaction
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.jobs.damaged_leftovers import DamagedJob


class DamagedNodes:
    """The records of damaged jobs of a ZooKeeperJobStore. Its methods raise the same errors as that store's."""

    def __init__(self, nodes: StoreNodes, files: StoreFiles) -> None:
        self._session = nodes.session
        self._layout = nodes.layout
        self._epoch = nodes.epoch
        self._files = files

    async def find(self) -> list[DamagedJob]:
        """Return the damaged jobs, oldest first, without the damaged blocklist, whose node is among theirs."""
        self._epoch.check_taken()
        found = []
        for name in await self._session.children(self._layout.damaged):
            path, job_id = self._layout.damaged_job(name), JobId(name)
            node = None if path == self._layout.damaged_blocklist else await self._session.find(path)
            if node is not None:
                graphs = await asyncio.to_thread(self._files.graphs.of_job, job_id)
                below = [f"{path}/{part}" for part in await self._parts(path)]
                places = (*(f"ZooKeeper, {each}" for each in (path, *below)), *graphs)
                found.append(DamagedJob(job_id=job_id, since_ms=node.created_ms, places=places))
        return sorted(found, key=lambda job: (job.since_ms, job.job_id))

    async def remove(self, job_id: JobId) -> None:
        """Remove the records of a damaged job, its graph first.

        While the node exists, the next leader knows that there is still something to remove.
        """
        await self._epoch.confirm()
        path = self._layout.damaged_job(job_id)
        node = await self._session.find(path)
        if node is None:
            return
        await asyncio.to_thread(self._files.graphs.remove_job, job_id)
        parts = await self._parts(path)

        def build(transaction: Transaction) -> None:
            for part in parts:
                transaction.delete(f"{path}/{part}")
            transaction.delete(path, node.version)

        try:
            await self._epoch.commit(f"remove what is left of the damaged job {job_id}", build)
        except TransactionRefused:
            return  # changed or removed in the meantime

    async def _parts(self, path: str) -> list[str]:
        try:
            return await self._session.children(path)
        except Absent:
            return []

    async def keeping_pointers(self, job_id: str) -> Callable[[Transaction], None]:
        """Return a function that adds operations to a transaction: move a job's pointer node to its damaged records.

        Call it for the transaction that expires the job's result. A pointer node that still exists then could not be
        read when the job ended; without one, nothing is added.
        """
        path, place = self._layout.checkpoint(job_id), self._layout.damaged_job(job_id)
        node, kept = await asyncio.gather(self._session.find(path), self._session.find(place))

        def build(transaction: Transaction) -> None:
            if node is None:
                return
            transaction.delete(path, node.version)
            if kept is None:
                transaction.create(place, b"")
            transaction.create(self._layout.damaged_checkpoints(job_id), node.unchecked)

        return build
