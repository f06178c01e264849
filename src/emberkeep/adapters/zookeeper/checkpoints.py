"""Pointers to checkpoints and savepoints in ZooKeeper: one node per job, from its first report to its end.

A node is made, and goes, together with a change of the job's attempt node. So a report that is late can neither be
written for an older attempt nor leave a node behind a job that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from kazoo.client import TransactionRequest

from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.session import Node, ZooKeeperSession
from emberkeep.base.errors import Fatal, NewerFormat, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer, merged

Commit = Callable[[str, Callable[[TransactionRequest], object]], Awaitable[list[Any]]]

log = structlog.get_logger(__name__)


class CheckpointNodes:
    """Belongs to a ZooKeeperJobStore, whose ``commit`` makes transactions that only the leader can make."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout, commit: Commit) -> None:
        self._session = session
        self._layout = layout
        self._commit = commit

    async def record(
        self,
        job_id: JobId,
        attempt_node: Node,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
        *,
        attempt_data: bytes | None = None,
    ) -> JobPointers:
        """Merge a report, while the attempt's node is as it was read; together with it write ``attempt_data`` there.
        Raises Fatal (unreadable), Conflict, RetryLater, UnknownOutcome."""
        path, attempt_path = self._layout.checkpoint(job_id), self._layout.attempt(job_id)
        node = await self._session.find(path)
        known = JobPointers() if node is None else self._decode(job_id, node)
        pointers = merged(known, attempt, queries, savepoints)
        if pointers is known and attempt_data is None:
            return known
        data = encode_node(pointers, None if node is None else node.data)

        def build(transaction: TransactionRequest) -> None:
            if node is not None and attempt_data is None:
                transaction.check(attempt_path, attempt_node.version)
            else:
                transaction.set_data(attempt_path, attempt_data or attempt_node.data, attempt_node.version)
            if node is not None:
                transaction.set_data(path, data, node.version)
            elif pointers is not known:
                transaction.create(path, data)

        try:
            await self._commit(f"record checkpoints of job {job_id}", build)
        except TransactionRefused:
            raise RetryLater(f"attempts of job {job_id} are being recorded", hint="try again") from None
        return pointers

    async def find(self, job_id: str) -> tuple[Node | None, JobPointers]:
        """The node and what it holds; no node where there is none, or where it cannot be read and is to stay."""
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

    def _decode(self, job_id: str, node: Node) -> JobPointers:
        return decode_node(node.data, JobPointers, where=f"ZooKeeper, {self._layout.checkpoint(job_id)}")
