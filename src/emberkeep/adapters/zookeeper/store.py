"""The job store in ZooKeeper: handles, attempts, pointers, results and keys are nodes; graphs are files outside it.

Every write is one transaction that begins with a check of the epoch node's version. So a deposed leader changes
nothing, even if it still believes that it is the leader. Reads need no check: a leader's session sees all that it has
written and all that was written before it became leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog
from kazoo.client import TransactionRequest

from emberkeep.adapters.job_store.graph_files import GraphFiles, StateHandle, decode_handle, encode_handle
from emberkeep.adapters.job_store.records import StoredAttempt, is_same_end
from emberkeep.adapters.job_store.result_files import ResultFile, ResultFiles
from emberkeep.adapters.job_store.stored_jobs import stored_job
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import kept_after
from emberkeep.adapters.zookeeper.checkpoints import CheckpointNodes
from emberkeep.adapters.zookeeper.damaged import DamagedNodes
from emberkeep.adapters.zookeeper.epoch import LeaderEpoch
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.layout import (
    Cleaning,
    KeyNode,
    LeaderRecord,
    ResultNode,
    ZooKeeperLayout,
    decode_node,
    encode_node,
)
from emberkeep.adapters.zookeeper.owner import RootOwner
from emberkeep.adapters.zookeeper.session import Znode, ZooKeeperSession
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater
from emberkeep.base.ids import IdSource, JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob, Trouble
from emberkeep.lifecycle.model import ProcedureRequest

_READ_BATCH = 500  # nodes or graphs read together

log = structlog.get_logger(__name__)


class ZooKeeperJobStore:
    """Implements JobStore.

    Besides the errors that the port names, every operation raises RetryLater (ZooKeeper cannot be reached),
    UnknownOutcome (no reply), Fatal (access denied, or a node or the storage is damaged).

    ``open`` publishes ``address`` as the leader's. It raises Conflict while another session is published as leader,
    unless ``elected`` says that the election has decided in favour of this process.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        layout: ZooKeeperLayout,
        graph_dir: Path,
        ids: IdSource,
        *,
        address: str,
        elected: bool = False,
        storage: ClusterStorage | None = None,
    ) -> None:
        """``storage``: ``open`` settles its ownership, and raises what that raises; None if only this store uses it."""
        self._storage = storage
        self._session = session
        self._layout = layout
        self._graph_dir = graph_dir
        self._epoch = LeaderEpoch(session, layout, LeaderRecord(address=address, life=ids.hex32()), elected=elected)
        self._graphs = GraphFiles(graph_dir)
        self._result_files = ResultFiles(graph_dir, 0)
        self._checkpoints = CheckpointNodes(session, layout, self._epoch.commit)
        self._owner = RootOwner(session, layout, self._epoch)
        self._damaged = DamagedNodes(session, layout, self._epoch, GraphFiles(graph_dir))

    # --- leading ----------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        number = await self._epoch.take(None if self._storage is None else self._owner.prepare)
        self._graphs = GraphFiles(self._graph_dir, number)
        self._result_files = ResultFiles(self._graph_dir, number)
        if self._storage is not None:
            try:
                await self._settle(self._storage)
            except BaseException:
                await self._epoch.give_up()
                raise
        return number

    @property
    def overtook(self) -> bool:
        """True if the previous leader's session had not ended when this store took the epoch."""
        return self._epoch.overtook

    async def _settle(self, storage: ClusterStorage) -> None:
        origin = await self._owner.origin()
        await self._owner.bind(kept_after(origin, await asyncio.to_thread(storage.settle, origin)))

    async def adopt_storage(self) -> None:
        """See ``ClusterStorage.adopt``."""
        if self._storage is not None:
            await self.confirm()
            await self._owner.bind(await asyncio.to_thread(self._storage.adopt))

    @property
    def lineage(self) -> str:
        """Identifies the epoch node by its creation, see the port. Raises Conflict before the store is open."""
        self._epoch.check_taken()
        return self._epoch.lineage

    async def confirm(self) -> None:
        """Check that this store's epoch is the newest. Raises Conflict if it is not, RetryLater, UnknownOutcome."""
        await self._epoch.confirm()

    async def close(self) -> None:
        await self._epoch.give_up()

    # --- submission -------------------------------------------------------------------------------------------------

    async def create(self, graph: JobGraph) -> JobId:
        self._epoch.check_taken()
        while True:
            known = await self._known(graph)
            if known is not None:
                # A deposed leader must not answer, not even with what it has read.
                await self.confirm()
                return known
            handle = await asyncio.to_thread(self._graphs.write, graph)
            # On failure keep the file, as the handle may exist after all. If it does not, a later leader deletes it.
            try:
                await self._create(graph, handle)
            except TransactionRefused:
                continue  # a job with the same key or id was created in the meantime
            return graph.job_id

    async def _create(self, graph: JobGraph, handle: StateHandle) -> None:
        layout, job_id = self._layout, graph.job_id

        def build(transaction: TransactionRequest) -> None:
            transaction.create(layout.job(job_id), encode_handle(handle))
            transaction.create(layout.attempt(job_id), encode_node(StoredAttempt(attempt=0)))
            if graph.idempotency_key:
                key = KeyNode(job_id=job_id, key=graph.idempotency_key)
                transaction.create(layout.key(graph.idempotency_key), encode_node(key))

        await self._epoch.commit(f"create job {job_id}", build)

    async def _known(self, graph: JobGraph) -> JobId | None:
        """Return the job that was created for this graph before, or None. Raises Conflict if its id is in use."""
        layout, job_id = self._layout, graph.job_id
        paths = [layout.job(job_id), layout.result(job_id), layout.damaged_job(job_id)]
        if graph.idempotency_key:
            paths.append(layout.key(graph.idempotency_key))
        handle, result, damaged, *keys = await asyncio.gather(*(self._session.find(path) for path in paths))
        for key in keys:
            if key is not None:
                return decode_node(key.data, KeyNode, where=paths[3]).job_id
        if handle is not None:
            stored = decode_handle(handle.data, where=paths[0])
            if await asyncio.to_thread(self._graphs.read, job_id, stored) == graph:
                return job_id
            raise Conflict(f"job {job_id} exists with another graph")
        if result is not None:
            raise Conflict(f"job {job_id} has ended", hint="submit it under a new id")
        if damaged is not None:
            raise Conflict(f"what is left of a damaged job {job_id} is kept", hint="submit it under a new id")
        return None

    # --- recovery ---------------------------------------------------------------------------------------------------

    async def recover(self) -> list[StoredJob]:
        epoch = self._epoch.number
        names = await self._session.children(self._layout.jobs)
        handles = await self._read_all(self._layout.job(name) for name in names)
        attempts = await self._read_all(self._layout.attempt(name) for name in names)
        found = [
            (handle.created, JobId(name), handle.data, attempt.data if attempt else b"")
            for name, handle, attempt in zip(names, handles, attempts, strict=True)
            if handle is not None
        ]
        found.sort()
        stored: list[StoredJob] = []
        for start in range(0, len(found), _READ_BATCH):
            batch = found[start : start + _READ_BATCH]
            stored += await asyncio.to_thread(lambda: [self._recovered(*entry[1:]) for entry in batch])  # noqa: B023
        await self._clean_up(epoch)
        return await self._with_keys(await self._with_pointers(stored))

    async def _with_keys(self, stored: list[StoredJob]) -> list[StoredJob]:
        """Return ``stored``, with idempotency keys filled in for jobs that cannot be read: these have no graph."""
        if all(entry.trouble is None for entry in stored):
            return stored
        nodes = await self._read_all(
            f"{self._layout.keys}/{name}" for name in await self._session.children(self._layout.keys)
        )
        keys: dict[JobId, str] = {}
        for node in nodes:
            with contextlib.suppress(Fatal):
                known = decode_node(node.data if node else b"", KeyNode, where=self._layout.keys)
                keys[known.job_id] = known.key
        return [
            entry
            if entry.trouble is None
            else msgspec.structs.replace(entry, idempotency_key=keys.get(entry.job_id, ""))
            for entry in stored
        ]

    async def _with_pointers(self, stored: list[StoredJob]) -> list[StoredJob]:
        present = set(await self._session.children(self._layout.checkpoints))
        holders = [index for index, entry in enumerate(stored) if entry.job_id in present]
        for start in range(0, len(holders), _READ_BATCH):
            batch = holders[start : start + _READ_BATCH]
            found = await asyncio.gather(*(self._checkpoints.find(stored[index].job_id) for index in batch))
            for index, (_, pointers) in zip(batch, found, strict=True):
                stored[index] = msgspec.structs.replace(stored[index], pointers=pointers)
        return stored

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        self._epoch.check_taken()
        paths = (self._layout.job(job_id), self._layout.attempt(job_id))
        handle, attempt = await asyncio.gather(*(self._session.find(path) for path in paths))
        if handle is None:
            return None
        stored = await asyncio.to_thread(self._recovered, job_id, handle.data, attempt.data if attempt else b"")
        return (await self._with_keys(await self._with_pointers([stored])))[0]

    def _recovered(self, job_id: JobId, handle: bytes, attempt: bytes) -> StoredJob:
        def read_attempt() -> StoredAttempt:
            return decode_node(attempt, StoredAttempt, where=f"ZooKeeper, {self._layout.attempt(job_id)}")

        def read_graph() -> JobGraph:
            return self._graphs.read(job_id, decode_handle(handle, where=f"ZooKeeper, {self._layout.job(job_id)}"))

        return stored_job(job_id, read_attempt, read_graph)

    def _location(self, job_id: JobId, handle: bytes) -> str:
        """Return the location of a handle's graph; empty if the handle cannot be read."""
        try:
            return decode_handle(handle, where=job_id).location
        except Fatal:
            return ""

    async def _clean_up(self, epoch: int) -> None:
        """Finish what earlier leaders began: delete graphs of ended jobs, and files that were written only in part.

        Delete nothing while the storage may belong to another job store.
        """
        if self._storage is not None and await asyncio.to_thread(self._storage.problem) is not None:
            return
        await asyncio.to_thread(GraphFiles(self._graph_dir, epoch).sweep_unfinished)
        await asyncio.to_thread(self._result_files.sweep_unfinished)
        results = await self._result_nodes()
        for job_id, version, result in results:
            if result.cleaning is Cleaning.DIRTY:
                await self._mark_clean(job_id, version, result)

    async def _read_all(self, paths: Iterable[str]) -> list[Znode | None]:
        """Read many nodes, with up to ``_READ_BATCH`` requests in flight; return None for those that do not exist."""
        waiting = list(paths)
        nodes: list[Znode | None] = []
        for start in range(0, len(waiting), _READ_BATCH):
            nodes += await asyncio.gather(*(self._read(path) for path in waiting[start : start + _READ_BATCH]))
        return nodes

    async def _read(self, path: str) -> Znode | None:
        try:
            return await self._session.get(path)
        except Absent:
            return None

    # --- attempts and results ---------------------------------------------------------------------------------------

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        node, stored = await self._attempt_of(job_id)
        if attempt <= stored.attempt:
            await self.confirm()
            raise Conflict(f"attempt {attempt} of job {job_id} is not larger than {stored.attempt}")
        changed = stored.next_attempt(attempt, home)
        await self._change_attempt(f"record attempt {attempt} of job {job_id}", job_id, node, changed)

    async def record_cancel(self, job_id: JobId) -> None:
        node, stored = await self._attempt_of(job_id)
        changed = msgspec.structs.replace(stored, canceled=True)
        await self._change_attempt(f"record that job {job_id} is canceled", job_id, node, changed)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        node, stored = await self._attempt_of(job_id)
        changed = msgspec.structs.replace(stored, procedure=request)
        what = "that a procedure has failed" if request is None else f"that a {request.procedure.value} is wanted"
        await self._change_attempt(f"record {what}: job {job_id}", job_id, node, changed)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        node, stored = await self._newest_attempt(job_id, attempt)
        changed = encode_node(stored.procedure_ended(trigger_id, stopped=stopped), node.data)
        savepoints = (savepoint,) if savepoint else ()
        return await self._checkpoints.record(job_id, node, attempt, (), savepoints, attempt_data=changed)

    async def _attempt_of(self, job_id: JobId) -> tuple[Znode, StoredAttempt]:
        """Return the job's attempt node and its record. Raises Absent if the job has no handle."""
        self._epoch.check_taken()
        path = self._layout.attempt(job_id)
        node = await self._session.find(path)
        if node is None:
            await self.confirm()
            raise Absent(f"job {job_id} has no handle")
        return node, decode_node(node.data, StoredAttempt, where=path)

    async def _change_attempt(self, what: str, job_id: JobId, node: Znode, changed: StoredAttempt) -> None:
        path, data = self._layout.attempt(job_id), encode_node(changed, node.data)
        try:
            await self._epoch.commit(what, lambda transaction: transaction.set_data(path, data, node.version))
        except TransactionRefused:
            raise RetryLater(f"attempts of job {job_id} are being recorded", hint="try again") from None

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        node, _ = await self._newest_attempt(job_id, attempt)
        return await self._checkpoints.record(job_id, node, attempt, queries, savepoints)

    async def _newest_attempt(self, job_id: JobId, attempt: int) -> tuple[Znode, StoredAttempt]:
        """Return the job's attempt node and its record.

        Raises Conflict unless ``attempt`` is the newest one, Absent if the job has no handle.
        """
        node, stored = await self._attempt_of(job_id)
        if attempt != stored.attempt:
            await self.confirm()
            raise Conflict(f"attempt {attempt} of job {job_id} is not the newest one, which is {stored.attempt}")
        return node, stored

    async def record_result(self, result: JobResult) -> None:
        self._epoch.check_taken()
        layout, job_id = self._layout, result.job_id
        paths = (layout.result(job_id), layout.job(job_id), layout.attempt(job_id))
        known, handle, attempt = await asyncio.gather(*(self._session.find(path) for path in paths))
        if known is not None:
            await self.confirm()
            node = decode_node(known.data, ResultNode, where=paths[0])
            if is_same_end(await self._content(node, self._result_files.read), result):
                return
            raise Conflict(f"job {job_id} has ended with another result")
        if handle is None:
            await self.confirm()
            raise Absent(f"job {job_id} has no handle")
        stored = await asyncio.to_thread(self._recovered, job_id, handle.data, attempt.data if attempt else b"")
        is_kept = stored.trouble is Trouble.DAMAGED
        location = "" if is_kept else self._location(job_id, handle.data)
        checkpoints, pointers = await self._checkpoints.find(job_id)
        result = msgspec.structs.replace(result, savepoints=pointers.savepoints)
        file = await asyncio.to_thread(self._result_files.write, result)
        node = ResultNode(
            result=result if file is None else None,
            file=file,
            key=result.idempotency_key,
            cleaning=Cleaning.DIRTY,
            graph=location,
        )

        def build(transaction: TransactionRequest) -> None:
            transaction.create(layout.result(job_id), encode_node(node))
            transaction.delete(layout.job(job_id))
            if attempt is not None:
                transaction.delete(layout.attempt(job_id), attempt.version)
            if checkpoints is not None:
                transaction.delete(layout.checkpoint(job_id), checkpoints.version)
            if is_kept:
                transaction.create(layout.damaged_job(job_id), handle.data)
                transaction.create(layout.damaged_attempt(job_id), attempt.data if attempt else b"")

        try:
            await self._epoch.commit(f"record the result of job {job_id}", build)
        except TransactionRefused as refused:
            raise RetryLater(f"the result of job {job_id} is being recorded: {refused}", hint="try again") from None
        try:
            await self._mark_clean(job_id, 0, node)
        except EmberkeepError as error:
            log.info("what an ended job has left is cleaned up later", job=job_id, reason=str(error))

    async def _mark_clean(self, job_id: str, version: int, node: ResultNode) -> None:
        """Delete the ended job's graph, then mark its result node clean, if that still has ``version``."""
        if node.graph:
            await self._discard(node.graph)
        path = self._layout.result(job_id)
        written = await self._session.find(path)
        if written is None or written.version != version:
            return  # expired or marked in the meantime
        clean = encode_node(msgspec.structs.replace(node, cleaning=Cleaning.CLEAN), written.data)
        try:
            await self._epoch.commit(f"clean up job {job_id}", lambda each: each.set_data(path, clean, version))
        except TransactionRefused:
            return  # expired in the meantime

    async def _discard(self, location: str) -> None:
        await asyncio.to_thread(self._graphs.discard_file, location)

    async def results(self) -> list[JobResult]:
        self._epoch.check_taken()
        found = []
        for job_id, _, node in await self._result_nodes():
            try:
                found.append(await self._content(node, self._result_files.listed))
            except NewerFormat:
                raise
            except Fatal as error:
                log.error("job_result_unreadable", job=job_id, reason=str(error))
        return found

    async def _content(self, node: ResultNode, read: Callable[[ResultFile], JobResult]) -> JobResult:
        """Return a node's result; if it is in a file, read that with ``read``. Raises Fatal, Unavailable."""
        if node.result is not None:
            return node.result
        if node.file is None:
            raise Fatal("a result without content")
        return await asyncio.to_thread(read, node.file)

    async def _result_nodes(self) -> list[tuple[str, int, ResultNode]]:
        """Return job id, version and content of all readable result nodes, in the order in which the jobs ended."""
        names = await self._session.children(self._layout.results)
        nodes = await self._read_all(self._layout.result(name) for name in names)
        present = sorted(
            (node.created, name, node) for name, node in zip(names, nodes, strict=True) if node is not None
        )
        found = []
        for _, name, node in present:
            try:
                content = decode_node(node.data, ResultNode, where=f"ZooKeeper, {self._layout.result(name)}")
            except NewerFormat:
                raise
            except Fatal as error:
                log.error("job_result_unreadable", job=name, reason=str(error))
            else:
                found.append((name, node.version, content))
        return found

    async def expire_results(self, keep: int) -> list[JobId]:
        await self.confirm()
        nodes = await self._result_nodes()
        surplus = nodes[: max(0, len(nodes) - keep)]
        for job_id, _, node in surplus:
            await self._expire(job_id, node)
        return [JobId(job_id) for job_id, _, _ in surplus]

    async def _expire(self, job_id: str, node: ResultNode) -> None:
        if node.cleaning is Cleaning.DIRTY and node.graph:
            await self._discard(node.graph)
        key = self._layout.key(node.key)
        with_key = bool(node.key) and await self._session.find(key) is not None
        keep_pointers = await self._damaged.keeping_pointers(job_id)

        def build(transaction: TransactionRequest) -> None:
            transaction.delete(self._layout.result(job_id))
            keep_pointers(transaction)
            if with_key:
                transaction.delete(key)

        try:
            await self._epoch.commit(f"expire the result of job {job_id}", build)
        except TransactionRefused as refused:
            raise RetryLater(f"results are being expired: {refused}", hint="try again") from None
        if node.file is not None:
            await asyncio.to_thread(self._result_files.discard, node.file.location)

    async def damaged(self) -> list[DamagedJob]:
        return await self._damaged.find()

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._damaged.remove(job_id)

    async def graphs_without_handle(self) -> set[JobId]:
        return set(await self._without_handle(self._graphs))

    async def _without_handle(self, graphs: GraphFiles) -> dict[JobId, list[str]]:
        self._epoch.check_taken()
        layout = self._layout
        jobs, damaged = await asyncio.gather(*map(self._session.children, (layout.jobs, layout.damaged)))
        return await asyncio.to_thread(graphs.without_handle, {*jobs, *damaged})

    async def remove_graph(self, job_id: JobId) -> None:
        await self.confirm()
        graphs = self._graphs
        for name in (await self._without_handle(graphs)).get(job_id, ()):
            await asyncio.to_thread(graphs.discard_file, name)

    async def results_without_node(self) -> set[JobId]:
        return set(await self._without_node())

    async def _without_node(self) -> dict[JobId, list[str]]:
        self._epoch.check_taken()
        layout = self._layout
        nodes = await asyncio.gather(*map(self._session.children, (layout.jobs, layout.results, layout.damaged)))
        return await asyncio.to_thread(self._result_files.without_node, {name for names in nodes for name in names})

    async def remove_result(self, job_id: JobId) -> None:
        await self.confirm()
        for name in (await self._without_node()).get(job_id, ()):
            await asyncio.to_thread(self._result_files.discard, name)

    # --- blocklist --------------------------------------------------------------------------------------------------

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        node = await self._session.get(self._layout.blocklist)
        data = encode_node(blocklist, node.data)
        kept = self._layout.damaged_blocklist
        keeps = bool(node.data) and not _is_blocklist(node.data) and not await self._session.exists(kept)

        def build(transaction: TransactionRequest) -> None:
            transaction.set_data(self._layout.blocklist, data)
            if keeps:
                transaction.create(kept, node.data)

        await self._epoch.commit("record the blocklist", build)

    async def blocklist(self) -> Blocklist:
        self._epoch.check_taken()
        path = self._layout.blocklist
        node = await self._session.get(path)
        return decode_node(node.data, Blocklist, where=f"ZooKeeper, {path}") if node.data else Blocklist()


def _is_blocklist(data: bytes) -> bool:
    try:
        decode_node(data, Blocklist, where="the blocklist")
    except Fatal:
        return False
    return True
