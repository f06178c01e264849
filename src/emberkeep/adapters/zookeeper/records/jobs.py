"""Jobs in ZooKeeper that have to be recovered: one handle per job, whose graph is a file."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from emberkeep.adapters.job_store.graph_files import StateHandle, decode_handle, encode_handle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.stored_jobs import stored_job
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.files import StoreFiles
from emberkeep.adapters.zookeeper.layout import KeyNode, decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import BATCH, StoreNodes
from emberkeep.adapters.zookeeper.records.checkpoints import CheckpointNodes
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.ports import StoredJob, Trouble


class JobNodes:
    """Nodes of the jobs' handles. Implements ``create``, ``recover`` and ``recover_job`` of JobStore."""

    def __init__(self, nodes: StoreNodes, files: StoreFiles, checkpoints: CheckpointNodes) -> None:
        self._nodes = nodes
        self._files = files
        self._checkpoints = checkpoints

    async def create(self, graph: JobGraph) -> JobId:
        self._nodes.epoch.check_taken()
        while True:
            known = await self._known(graph)
            if known is not None:
                # A deposed leader must not answer at all, not even with what it has read.
                await self._nodes.epoch.confirm()
                return known
            handle = await asyncio.to_thread(self._files.graphs.write, graph)
            # On failure keep the file, as the handle may exist after all. If it does not, a later leader deletes it.
            try:
                await self._create(graph, handle)
            except TransactionRefused:
                continue  # a job with the same key or id was created in the meantime
            return graph.job_id

    async def _create(self, graph: JobGraph, handle: StateHandle) -> None:
        layout, job_id = self._nodes.layout, graph.job_id

        def build(transaction: Transaction) -> None:
            transaction.create(layout.job(job_id), encode_handle(handle))
            transaction.create(layout.attempt(job_id), encode_node(StoredAttempt(attempt=0)))
            if graph.idempotency_key:
                key = KeyNode(job_id=job_id, key=graph.idempotency_key)
                transaction.create(layout.key(graph.idempotency_key), encode_node(key))

        await self._nodes.epoch.commit(f"create job {job_id}", build)

    async def _known(self, graph: JobGraph) -> JobId | None:
        """Return the job that was created for this graph before, or None. Raises Conflict if another job has its id."""
        layout, job_id = self._nodes.layout, graph.job_id
        paths = [layout.job(job_id), layout.result(job_id), layout.damaged_job(job_id)]
        if graph.idempotency_key:
            paths.append(layout.key(graph.idempotency_key))
        handle, result, damaged, *keys = await asyncio.gather(*(self._nodes.session.find(path) for path in paths))
        for key in keys:
            if key is not None:
                return decode_node(key.data, KeyNode, where=paths[3]).job_id
        if handle is not None:
            stored = decode_handle(handle.data, where=paths[0])
            if await asyncio.to_thread(self._files.graphs.read, job_id, stored) == graph:
                return job_id
            raise Conflict(f"job {job_id} exists with another graph")
        if result is not None:
            raise Conflict(f"job {job_id} has ended", hint="submit it under a new id")
        if damaged is not None:
            raise Conflict(
                f"job {job_id} exists and is damaged; what is left of it is kept", hint="submit it under a new id"
            )
        return None

    async def recover(self) -> list[StoredJob]:
        self._nodes.epoch.check_taken()
        names = await self._nodes.session.children(self._nodes.layout.jobs)
        handles = await self._nodes.read_all(self._nodes.layout.job(name) for name in names)
        attempts = await self._nodes.read_all(self._nodes.layout.attempt(name) for name in names)
        found = [
            (handle.created, JobId(name), handle, attempt)
            for name, handle, attempt in zip(names, handles, attempts, strict=True)
            if handle is not None
        ]
        found.sort(key=lambda entry: entry[0])
        stored: list[StoredJob] = []
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            stored += await asyncio.to_thread(lambda: [self.decode(*entry[1:]) for entry in batch])  # noqa: B023
        return await self._with_keys(await self._with_pointers(stored))

    async def _with_keys(self, stored: list[StoredJob]) -> list[StoredJob]:
        """Return ``stored``, with idempotency keys filled in for jobs that cannot be read: these have no graph."""
        if all(entry.trouble is None for entry in stored):
            return stored
        nodes = await self._nodes.read_all(
            f"{self._nodes.layout.keys}/{name}" for name in await self._nodes.session.children(self._nodes.layout.keys)
        )
        keys: dict[JobId, str] = {}
        for node in nodes:
            with contextlib.suppress(Fatal, NotAuthentic):
                known = decode_node(node.data if node else b"", KeyNode, where=self._nodes.layout.keys)
                keys[known.job_id] = known.key
        return [
            entry
            if entry.trouble is None
            else msgspec.structs.replace(entry, idempotency_key=keys.get(entry.job_id, ""))
            for entry in stored
        ]

    async def _with_pointers(self, stored: list[StoredJob]) -> list[StoredJob]:
        present = set(await self._nodes.session.children(self._nodes.layout.checkpoints))
        holders = [index for index, entry in enumerate(stored) if entry.job_id in present]
        for start in range(0, len(holders), BATCH):
            batch = holders[start : start + BATCH]
            found = await asyncio.gather(*(self._with_its_pointers(stored[index]) for index in batch))
            for index, entry in zip(batch, found, strict=True):
                stored[index] = entry
        return stored

    async def _with_its_pointers(self, entry: StoredJob) -> StoredJob:
        """Return the job with its pointers. A job with forged pointers must not run without them, but wait."""
        try:
            _, pointers = await self._checkpoints.find(entry.job_id)
        except NotAuthentic as error:
            return msgspec.structs.replace(
                entry,
                graph=None,
                trouble=entry.trouble or Trouble.AWAY,
                problem="; ".join(filter(None, (entry.problem, str(error)))),
            )
        return msgspec.structs.replace(entry, pointers=pointers)

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        self._nodes.epoch.check_taken()
        paths = (self._nodes.layout.job(job_id), self._nodes.layout.attempt(job_id))
        handle, attempt = await asyncio.gather(*(self._nodes.session.find(path) for path in paths))
        if handle is None:
            return None
        stored = await asyncio.to_thread(self.decode, job_id, handle, attempt)
        return (await self._with_keys(await self._with_pointers([stored])))[0]

    def decode(self, job_id: JobId, handle: Znode, attempt: Znode | None) -> StoredJob:
        """Return the job that these nodes describe, with its graph. Blocks while it reads the graph's file."""
        layout = self._nodes.layout

        def read_attempt() -> StoredAttempt:
            data = attempt.data if attempt else b""
            return decode_node(data, StoredAttempt, where=f"ZooKeeper, {layout.attempt(job_id)}")

        def read_graph() -> JobGraph:
            where = f"ZooKeeper, {layout.job(job_id)}"
            return self._files.graphs.read(job_id, decode_handle(handle.data, where=where))

        return stored_job(job_id, read_attempt, read_graph)


def graph_location(job_id: JobId, handle: Znode) -> str:
    """Return the location of a handle's graph; empty if the handle cannot be read."""
    try:
        return decode_handle(handle.data, where=job_id).location
    except (Fatal, NotAuthentic):
        return ""
