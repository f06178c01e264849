"""Results of jobs in ZooKeeper: one node per ended job, whose result is a file if it is large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from emberkeep.adapters.job_store.records import is_same_end
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.errors import TransactionRefused
from emberkeep.adapters.zookeeper.files import StoreFiles
from emberkeep.adapters.zookeeper.layout import Cleaning, ResultNode, decode_node, encode_node
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.records.checkpoints import CheckpointNodes
from emberkeep.adapters.zookeeper.records.damaged import DamagedNodes
from emberkeep.adapters.zookeeper.records.jobs import JobNodes, graph_location
from emberkeep.adapters.zookeeper.session import Transaction, Znode
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobResult
from emberkeep.jobs.ports import Trouble

log = structlog.get_logger(__name__)


class ResultNodes:
    """Nodes of the jobs' results.

    ``record``, ``readable`` and ``expire`` are ``record_result``, ``results`` and ``expire_results`` of JobStore.

    The transaction that writes a result deletes the job's other nodes.
    """

    def __init__(
        self,
        nodes: StoreNodes,
        files: StoreFiles,
        jobs: JobNodes,
        checkpoints: CheckpointNodes,
        damaged: DamagedNodes,
    ) -> None:
        self._nodes = nodes
        self._files = files
        self._jobs = jobs
        self._checkpoints = checkpoints
        self._damaged = damaged

    async def record(self, result: JobResult) -> None:
        self._nodes.epoch.check_taken()
        session, layout, job_id = self._nodes.session, self._nodes.layout, result.job_id
        paths = (layout.result(job_id), layout.job(job_id), layout.attempt(job_id))
        known, handle, attempt = await asyncio.gather(*(session.find(path) for path in paths))
        if known is not None:
            await self._nodes.epoch.confirm()
            node = decode_node(known.data, ResultNode, where=paths[0])
            if is_same_end(await self._content(node, self._files.results.read), result):
                return
            raise Conflict(f"job {job_id} has ended with another result")
        if handle is None:
            await self._nodes.epoch.confirm()
            raise Absent(f"job {job_id} has no handle")
        stored = await asyncio.to_thread(self._jobs.decode, job_id, handle, attempt)
        is_forged = not all(node.is_authentic for node in (handle, attempt) if node is not None)
        is_kept = is_forged or stored.trouble is Trouble.DAMAGED
        location = "" if is_kept else graph_location(job_id, handle)
        checkpoints, pointers = await self._pointers(job_id)
        result = msgspec.structs.replace(result, savepoints=pointers.savepoints)
        file = await asyncio.to_thread(self._files.results.write, result)
        node = ResultNode(
            result=result if file is None else None,
            file=file,
            key=result.idempotency_key,
            cleaning=Cleaning.DIRTY,
            graph=location,
        )

        def build(transaction: Transaction) -> None:
            transaction.create(layout.result(job_id), encode_node(node))
            transaction.delete(layout.job(job_id))
            if attempt is not None:
                transaction.delete(layout.attempt(job_id), attempt.version)
            if checkpoints is not None:
                transaction.delete(layout.checkpoint(job_id), checkpoints.version)
            if is_kept:
                transaction.create(layout.damaged_job(job_id), handle.unchecked)
                transaction.create(layout.damaged_attempt(job_id), attempt.unchecked if attempt else b"")

        try:
            await self._nodes.epoch.commit(f"record the result of job {job_id}", build)
        except TransactionRefused as refused:
            raise RetryLater(f"the result of job {job_id} is being recorded: {refused}", hint="try again") from None
        try:
            await self._mark_clean(job_id, 0, node)
        except EmberkeepError as error:
            log.info("cannot clean up after an ended job now, trying later", job=job_id, reason=str(error))

    async def _pointers(self, job_id: JobId) -> tuple[Znode | None, JobPointers]:
        """Return a job's pointers after its end as ``CheckpointNodes.find`` returns them; none if they are forged."""
        try:
            return await self._checkpoints.find(job_id)
        except NotAuthentic as error:
            log.error("job_checkpoints_unreadable", job=job_id, reason=str(error))
            return None, JobPointers()

    async def clean_up(self) -> None:
        """Finish what earlier leaders began: delete the graphs of jobs that have ended."""
        for job_id, version, result in await self._all():
            if result.cleaning is Cleaning.DIRTY:
                await self._mark_clean(job_id, version, result)

    async def _mark_clean(self, job_id: str, version: int, node: ResultNode) -> None:
        """Delete the ended job's graph, then mark its result node clean if the node still has ``version``."""
        if node.graph:
            await self._files.discard_graph(node.graph)
        path = self._nodes.layout.result(job_id)
        written = await self._nodes.session.find(path)
        if written is None or written.version != version:
            return  # expired or marked in the meantime
        clean = encode_node(msgspec.structs.replace(node, cleaning=Cleaning.CLEAN), written.data)
        try:
            await self._nodes.epoch.commit(f"clean up job {job_id}", lambda each: each.set_data(path, clean, version))
        except TransactionRefused:
            return  # expired in the meantime

    async def readable(self) -> list[JobResult]:
        self._nodes.epoch.check_taken()
        found = []
        for job_id, _, node in await self._all():
            try:
                found.append(await self._content(node, self._files.results.listed))
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

    async def _all(self) -> list[tuple[str, int, ResultNode]]:
        """Return job id, version and content of all readable result nodes, in the order in which the jobs ended."""
        names = await self._nodes.session.children(self._nodes.layout.results)
        nodes = await self._nodes.read_all(self._nodes.layout.result(name) for name in names)
        present = sorted(
            (node.created, name, node) for name, node in zip(names, nodes, strict=True) if node is not None
        )
        found = []
        for _, name, node in present:
            try:
                content = decode_node(node.data, ResultNode, where=f"ZooKeeper, {self._nodes.layout.result(name)}")
            except NewerFormat:
                raise
            except (Fatal, NotAuthentic) as error:
                log.error("job_result_unreadable", job=name, reason=str(error))
            else:
                found.append((name, node.version, content))
        return found

    async def expire(self, keep: int) -> list[JobId]:
        await self._nodes.epoch.confirm()
        nodes = await self._all()
        surplus = nodes[: max(0, len(nodes) - keep)]
        for job_id, _, node in surplus:
            await self._expire(job_id, node)
        return [JobId(job_id) for job_id, _, _ in surplus]

    async def _expire(self, job_id: str, node: ResultNode) -> None:
        if node.cleaning is Cleaning.DIRTY and node.graph:
            await self._files.discard_graph(node.graph)
        key = self._nodes.layout.key(node.key)
        with_key = bool(node.key) and await self._nodes.session.find(key) is not None
        keep_pointers = await self._damaged.keeping_pointers(job_id)

        def build(transaction: Transaction) -> None:
            transaction.delete(self._nodes.layout.result(job_id))
            keep_pointers(transaction)
            if with_key:
                transaction.delete(key)

        try:
            await self._nodes.epoch.commit(f"expire the result of job {job_id}", build)
        except TransactionRefused as refused:
            raise RetryLater(f"results are being expired: {refused}", hint="try again") from None
        if node.file is not None:
            await self._files.discard_result(node.file.location)
