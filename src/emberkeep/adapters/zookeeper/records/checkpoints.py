"""Pointers to checkpoints and savepoints in ZooKeeper: one node per job, from the job's first report to its end.

The transaction that creates such a node also changes the job's attempt node; the one that records the job's end deletes
both. So a late report cannot be written for an older attempt, and cannot leave a node behind for a job that has ended.
"""

from __future__ import annotations

import structlog

from emberkeep.adapters.zookeeper.errors import TransactionRefused, attempt_changed
from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer, after_retention, merged

log = structlog.get_logger(__name__)


class CheckpointNodes:
    """The pointer nodes of a ZooKeeperJobStore."""

    def __init__(self, nodes: StoreNodes) -> None:
        self._session = nodes.session
        self._layout = nodes.layout
        self._epoch = nodes.epoch

    async def record(
        self,
        job_id: JobId,
        attempt_node: Znode,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
        *,
        attempt_data: bytes | None = None,
    ) -> JobPointers:
        """Merge a report into the job's pointers and return all of them.

        In the same transaction write ``attempt_data``, if given, to the attempt node. Raises RetryLater (for
        example if the attempt node has changed since ``attempt_node`` was read), Fatal (stored pointers unreadable),
        Conflict, UnknownOutcome.
        """
        path, attempt_path = self._layout.checkpoint(job_id), self._layout.attempt(job_id)
        node = await self._session.find(path)
        known = JobPointers() if node is None else self._decode(job_id, node)
        pointers = merged(known, attempt, queries, savepoints)
        if pointers is known and attempt_data is None:
            return await self._unchanged(known)
        data = encode_node(pointers, None if node is None else node.data)

        def build(transaction: Transaction) -> None:
            if node is not None and attempt_data is None:
                transaction.check(attempt_path, attempt_node.version)
            else:
                transaction.set_data(attempt_path, attempt_data or attempt_node.data, attempt_node.version)
            if node is not None:
                transaction.set_data(path, data, node.version)
            elif pointers is not known:
                transaction.create(path, data)

        try:
            await self._epoch.commit(f"record checkpoints of job {job_id}", build)
        except TransactionRefused:
            raise attempt_changed(job_id) from None
        return pointers

    async def retain(
        self, job_id: JobId, attempt_node: Znode, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        """Mark and forget periodic savepoints, see JobStore. Return all pointers. Raises as ``record`` does."""
        path, attempt_path = self._layout.checkpoint(job_id), self._layout.attempt(job_id)
        node = await self._session.find(path)
        if node is None:
            return await self._unchanged(JobPointers())
        known = self._decode(job_id, node)
        pointers = after_retention(known, retired, gone, retired_ms)
        if pointers is known:
            return await self._unchanged(known)
        data, version = encode_node(pointers, node.data), node.version

        def build(transaction: Transaction) -> None:
            transaction.check(attempt_path, attempt_node.version)
            transaction.set_data(path, data, version)

        try:
            await self._epoch.commit(f"record the retention of savepoints of job {job_id}", build)
        except TransactionRefused:
            raise attempt_changed(job_id) from None
        return pointers

    async def _unchanged(self, known: JobPointers) -> JobPointers:
        """Return ``known``, which needs no write. Raises Conflict for a deposed leader, as a write would."""
        await self._epoch.confirm()
        return known

    async def find(self, job_id: str) -> tuple[Znode | None, JobPointers]:
        """Return the job's pointer node and its content.

        Return no node and empty pointers if the node does not exist, or is damaged: a damaged node must stay. Raises
        NewerFormat, and NotAuthentic if another program has written the node.
        """
        node = await self._session.find(self._layout.checkpoint(job_id))
        if node is None:
            return None, JobPointers()
        try:
            return node, self._decode(job_id, node)
        except NewerFormat:
            raise
        except Fatal as error:
            log.error("job_checkpoints_unreadable", job=job_id, reason=str(error))
            return None, JobPointers()

    def _decode(self, job_id: str, node: Znode) -> JobPointers:
        return decode_node(node.data, JobPointers, where=f"ZooKeeper, {self._layout.checkpoint(job_id)}")
