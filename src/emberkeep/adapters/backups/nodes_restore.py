"""Makes the nodes of a new cluster in ZooKeeper from a backup.

ZooKeeper limits the size of a transaction, so the nodes are written in several. A node ``restoring`` exists from before
the first until after the last one, and no JobManager leads while it exists. An interrupted restore continues.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from emberkeep.adapters.backups.moved_records import moved_record
from emberkeep.adapters.backups.node_records import ATTEMPTS, CHECKPOINTS, JOBS, OWNER, RESULTS, UPGRADES, Node, Nodes
from emberkeep.adapters.backups.restored_jobs import RestoredStore
from emberkeep.adapters.job_store.graph_files import encode_handle
from emberkeep.adapters.job_store.unfinished_restore import (
    UnfinishedRestore,
    decode_unfinished,
    encode_unfinished,
)
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import ResultNode, ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.paths import make_paths
from emberkeep.adapters.zookeeper.session import Transaction, ZooKeeperSession
from emberkeep.backups.model import EPOCHS_SKIPPED
from emberkeep.base.errors import Conflict
from emberkeep.base.files.ownership import decode_owner, encode_owner
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.upgrades.model import Upgrade

T = TypeVar("T")

_RAISED_AT_ONCE = 500  # of the epoch, in one transaction
_NODES_AT_ONCE = 100
_BYTES_AT_ONCE = 400_000  # ZooKeeper takes about 1 MB
_IN_ORDER = (JOBS, RESULTS)


class NodesRestore:
    """The nodes of the new cluster. Raises RetryLater, UnknownOutcome (run it again), Fatal, and what is named."""

    def __init__(self, session: ZooKeeperSession, layout: ZooKeeperLayout, manifest: bytes) -> None:
        self._session = session
        self._layout = layout
        self._digest = hashlib.sha256(manifest).hexdigest()

    async def unfinished(self) -> str | None:
        """Return the identity of the job store that an interrupted restore of this backup was making.

        Raises Conflict if one of another backup was interrupted here.
        """
        node = await self._session.find(self._layout.restoring)
        if node is None:
            return None
        found = decode_unfinished(node.data, f"ZooKeeper, {node.path}")
        if found.manifest_sha256 != self._digest:
            raise Conflict(
                f"the restore of another backup was interrupted at {self._layout.base} in ZooKeeper",
                hint="finish it with that backup, or delete the node with all nodes below it and begin again",
            )
        return found.identity

    async def check(self) -> None:
        """Raise Conflict unless there is no cluster yet, or only the remains of an interrupted restore."""
        if await self.unfinished() is not None:
            return
        if await self._session.find(self._layout.leader) is not None:
            raise Conflict(
                f"a JobManager leads at {self._layout.base} in ZooKeeper",
                hint="stop it and restore into an empty root: set high-availability.zookeeper.path.root",
            )
        epoch = await self._session.find(self._layout.epoch)
        used = epoch is not None and epoch.version > 0
        if used or await self._session.find(self._layout.owner) is not None or await self._has_records():
            raise Conflict(
                f"there is a job store already: ZooKeeper, {self._layout.base}",
                hint="restore into an empty root (high-availability.zookeeper.path.root), or delete that node with "
                "all nodes below it if nothing in it is needed",
            )

    async def _has_records(self) -> bool:
        for folder in self._layout.records:
            if await self._session.exists(folder) and await self._session.children(folder):
                return True
        return False

    async def begin(self) -> str:
        """Record that the restore has begun, and return the identity of the new job store. Raises Conflict."""
        await self.check()
        identity = await self.unfinished()
        if identity is None:
            identity = secrets.token_hex(8)
            await make_paths(self._session, self._layout)
            restore = UnfinishedRestore(manifest_sha256=self._digest, identity=identity)
            await self._session.create(self._layout.restoring, encode_unfinished(restore))
            # A JobManager that had looked before the node existed may have taken the first epoch.
            if (await self._session.get(self._layout.epoch)).version or await self._session.find(self._layout.leader):
                await self._session.delete(self._layout.restoring)
                raise Conflict(f"a JobManager has just become the leader at {self._layout.base}", hint="stop it first")
        return identity

    async def complete(self, nodes: Nodes, store: RestoredStore) -> int:
        """Write the records, and end the restore. Return the epoch. Raises Conflict."""
        epoch = await self._raise_epoch(nodes.record.epoch + EPOCHS_SKIPPED)
        for batch in _batches(_changed(nodes, store)):
            await self._write(batch)
        await self._session.delete(self._layout.restoring)
        return epoch

    async def _raise_epoch(self, wanted: int) -> int:
        """Raise the version of the epoch's node, which is the epoch. Raises Conflict if a JobManager takes it."""
        version = (await self._session.get(self._layout.epoch)).version
        while version < wanted:
            first, count = version, min(_RAISED_AT_ONCE, wanted - version)

            def build(transaction: Transaction, first: int = first, count: int = count) -> None:
                for step in range(count):
                    transaction.set_data(self._layout.epoch, b"", first + step)

            try:
                await self._session.commit("raise the epoch", build)
            except TransactionRefused:
                raise Conflict(
                    f"another process has written {self._layout.epoch}", hint="stop all JobManagers"
                ) from None
            version = first + count
        return version

    async def _write(self, batch: list[Node]) -> None:
        places = {f"{self._layout.base}/{node.path}": node.data for node in batch}
        present = {path for path in places if await self._session.exists(path)}

        def build(transaction: Transaction) -> None:
            for path, data in places.items():
                if path in present:
                    transaction.set_data(path, data)
                else:
                    transaction.create(path, data)

        try:
            await self._session.commit("write records from a backup", build)
        except TransactionRefused as refused:
            raise Conflict(f"another process writes to {self._layout.base}: {refused}") from None


def _changed(nodes: Nodes, store: RestoredStore) -> Iterator[Node]:
    """Yield the nodes of the new job store, in the order in which they are created."""
    jobs = {job.copied.job_id: job for job in store.jobs if job.copied.handle is not None}
    for node in nodes.record.nodes:
        job = jobs.get(JobId(node.name))
        data = node.data
        if node.path == OWNER:
            owner = decode_owner(data, where=node.path)
            data = encode_owner(
                msgspec.structs.replace(owner, place_id=store.identity, belongs_to=store.storage_id), data
            )
        elif job is not None and node.folder == JOBS and job.copied.job_id in store.handles:
            data = encode_handle(store.handles[job.copied.job_id])
        elif job is not None and node.folder == ATTEMPTS:
            data = encode_node(job.attempt, data)
        elif job is not None and node.folder == CHECKPOINTS:
            data = encode_node(job.pointers)
        elif node.folder == CHECKPOINTS:
            data = moved_record(data, _decoder(JobPointers, node), store.places.pointers, encode_node)
        elif node.folder == RESULTS:
            data = moved_record(data, _decoder(ResultNode, node), partial(_moved_result, store), encode_node)
        elif node.folder == UPGRADES:
            data = moved_record(data, _decoder(Upgrade, node), store.places.upgrade, encode_node)
        yield Node(path=node.path, data=data)


def _moved_result(store: RestoredStore, node: ResultNode) -> ResultNode:
    result, file = node.result, node.file
    if file is not None and file.outline is not None:
        file = msgspec.structs.replace(file, outline=store.places.result(file.outline))  # the backup may lack the rest
    return msgspec.structs.replace(
        node,
        result=None if result is None else store.places.result(result),
        file=None if file is None else store.results.get(file.location, file),
    )


def _decoder(kind: type[T], node: Node) -> Callable[[bytes], T]:
    return partial(decode_node, kind=kind, where=node.path)


def _batches(nodes: Iterator[Node]) -> Iterator[list[Node]]:
    """Yield the nodes in groups for one transaction each.

    All nodes of a transaction are created at once, and the order of jobs and of results is that of their nodes'
    creation. So each of these begins a group.
    """
    batch: list[Node] = []
    size = 0
    for node in nodes:
        is_full = len(batch) == _NODES_AT_ONCE or size + len(node.data) > _BYTES_AT_ONCE
        if batch and (is_full or node.folder in _IN_ORDER):
            yield batch
            batch, size = [], 0
        batch.append(node)
        size += len(node.data)
    if batch:
        yield batch
