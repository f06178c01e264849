"""Job attempts in ZooKeeper: one node for each job that has a state handle.

The node has the number of the newest attempt, whether the job must be canceled, and the procedure requested of the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.zookeeper.errors import TransactionRefused, attempt_changed
from emberkeep.adapters.zookeeper.layout import decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.records.checkpoints import CheckpointNodes
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.model import DriverHome
from emberkeep.lifecycle.model import ProcedureRequest


class AttemptNodes:
    """Nodes of the jobs' attempts. Implements the methods of JobStore that deal with attempts."""

    def __init__(self, nodes: StoreNodes, checkpoints: CheckpointNodes) -> None:
        self._nodes = nodes
        self._checkpoints = checkpoints

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> None:
        node, stored = await self._read(job_id)
        async with self._confirmed_refusal():
            changed = stored.next_attempt(job_id, attempt, home)
        await self._change(f"record attempt {attempt} of job {job_id}", job_id, node, changed)

    async def record_cancel(self, job_id: JobId) -> None:
        node, stored = await self._read(job_id)
        changed = msgspec.structs.replace(stored, canceled=True)
        await self._change(f"record the cancellation of job {job_id}", job_id, node, changed)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        node, stored = await self._read(job_id)
        changed = msgspec.structs.replace(stored, procedure=request)
        what = "the end of a procedure" if request is None else f"a request to {request.procedure.value}"
        await self._change(f"record {what}: job {job_id}", job_id, node, changed)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        node, stored = await self._newest(job_id, attempt)
        changed = encode_node(stored.procedure_ended(trigger_id, stopped=stopped), node.data)
        savepoints = (savepoint,) if savepoint else ()
        return await self._checkpoints.record(job_id, node, attempt, (), savepoints, attempt_data=changed)

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        node, _ = await self._newest(job_id, attempt)
        return await self._checkpoints.record(job_id, node, attempt, queries, savepoints)

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        node, _ = await self._read(job_id)
        return await self._checkpoints.retain(job_id, node, retired, gone, retired_ms)

    async def _read(self, job_id: JobId) -> tuple[Znode, StoredAttempt]:
        """Return the job's attempt node and its record. Raises Absent if the job has no handle."""
        self._nodes.epoch.check_taken()
        path = self._nodes.layout.attempt(job_id)
        node = await self._nodes.session.find(path)
        if node is None:
            await self._nodes.epoch.confirm()
            raise Absent(f"job {job_id} has no handle")
        return node, decode_node(node.data, StoredAttempt, where=path)

    async def _newest(self, job_id: JobId, attempt: int) -> tuple[Znode, StoredAttempt]:
        """Return the job's attempt node and its record.

        Raises Conflict unless ``attempt`` is the newest one, Absent if the job has no handle.
        """
        node, stored = await self._read(job_id)
        async with self._confirmed_refusal():
            stored.require_newest(job_id, attempt)
        return node, stored

    @contextlib.asynccontextmanager
    async def _confirmed_refusal(self) -> AsyncIterator[None]:
        """When the body raises Conflict, first check that this JobManager is still the leader.

        If it is not, a newer leader may have written the record: raises a Conflict that says so. Raises RetryLater.
        """
        try:
            yield
        except Conflict:
            await self._nodes.epoch.confirm()
            raise

    async def _change(self, what: str, job_id: JobId, node: Znode, changed: StoredAttempt) -> None:
        path, data = self._nodes.layout.attempt(job_id), encode_node(changed, node.data)

        def build(transaction: Transaction) -> None:
            transaction.set_data(path, data, node.version)

        try:
            await self._nodes.epoch.commit(what, build)
        except TransactionRefused:
            raise attempt_changed(job_id) from None
