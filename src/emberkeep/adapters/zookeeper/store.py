"""The job store in ZooKeeper: handles, attempts, pointers, results and keys are nodes; graphs are files outside it.

Every write is one transaction that begins with a check of the epoch node's version. So a deposed leader changes
nothing, even if it has not noticed yet that it was deposed. Reads need no check: a leader's session sees all that it
has written and all that was written before it became leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.epoch import LeaderEpoch
from emberkeep.adapters.zookeeper.files import LeftoverFiles, StoreFiles
from emberkeep.adapters.zookeeper.layout import LeaderRecord, ZooKeeperLayout
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.adapters.zookeeper.records.attempts import AttemptNodes
from emberkeep.adapters.zookeeper.records.blocklist import BlocklistNode
from emberkeep.adapters.zookeeper.records.checkpoints import CheckpointNodes
from emberkeep.adapters.zookeeper.records.damaged import DamagedNodes
from emberkeep.adapters.zookeeper.records.jobs import JobNodes
from emberkeep.adapters.zookeeper.records.owner import RootOwner
from emberkeep.adapters.zookeeper.records.results import ResultNodes
from emberkeep.adapters.zookeeper.records.tokens import TokensNode
from emberkeep.adapters.zookeeper.records.upgrades import UpgradeNodes
from emberkeep.adapters.zookeeper.renewal import renew_records
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import IdSource, JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest


class ZooKeeperJobStore:
    """Implements JobStore.

    Besides the errors that the port names, every operation raises RetryLater (ZooKeeper cannot be reached),
    UnknownOutcome (no reply), Fatal (access denied, or a node or the storage is damaged).

    ``open`` publishes ``address`` as the leader's. It raises Conflict while another session is published as leader,
    unless ``elected`` says that the election has decided in favour of this process.

    Each kind of node has its own class. ``tokens`` and ``leftovers`` are parts with their own operations. ``epoch`` is
    what makes this process the leader.
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
        """``storage``: ``open`` calls its ``settle``, and raises what that raises; None if only this store uses it."""
        self._storage = storage
        self._session = session
        self.epoch = LeaderEpoch(session, layout, LeaderRecord(address=address, life=ids.hex32()), elected=elected)
        self._files = StoreFiles(graph_dir)
        self._nodes = nodes = StoreNodes(session, layout, self.epoch)
        checkpoints = CheckpointNodes(nodes)
        self._owner = RootOwner(nodes)
        self._damaged = DamagedNodes(nodes, self._files)
        self._jobs = JobNodes(nodes, self._files, checkpoints)
        self._attempts = AttemptNodes(nodes, checkpoints)
        self._results = ResultNodes(nodes, self._files, self._jobs, checkpoints, self._damaged)
        self.leftovers = LeftoverFiles(nodes, self._files)
        self._blocklist = BlocklistNode(nodes)
        self.tokens = TokensNode(nodes)
        self._upgrades = UpgradeNodes(nodes)

    # --- leading ----------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        number = await self.epoch.take(None if self._storage is None else self._owner.prepare)
        self._files.begin(number)
        try:
            await renew_records(self._nodes)
            if self._storage is not None:
                await self._owner.settle(self._storage)
        except NotAuthentic as error:
            await self.epoch.give_up()
            raise Fatal(error.message, hint=error.hint) from error
        except BaseException:
            await self.epoch.give_up()
            raise
        return number

    async def adopt_storage(self) -> None:
        """See ``ClusterStorage.adopt``."""
        if self._storage is not None:
            await self.confirm()
            await self._owner.adopt(self._storage)

    @property
    def lineage(self) -> str:
        """Name of the store, from the epoch node's creation; see JobStore. Raises Conflict before the store is open."""
        self.epoch.check_taken()
        return self.epoch.lineage

    async def confirm(self) -> None:
        """Check that this store's epoch is the newest. Raises Conflict if it is not, RetryLater, UnknownOutcome."""
        await self.epoch.confirm()

    async def close(self) -> None:
        await self.epoch.give_up()

    # --- jobs -------------------------------------------------------------------------------------------------------

    async def create(self, graph: JobGraph) -> JobId:
        return await self._jobs.create(graph)

    async def recover(self) -> list[StoredJob]:
        stored = await self._jobs.recover()
        # Delete nothing while the storage may belong to another job store.
        if self._storage is None or await asyncio.to_thread(self._storage.problem) is None:
            await self._files.sweep_unfinished()
            await self._results.clean_up()
        return stored

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        return await self._jobs.recover_job(job_id)

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        await self._attempts.record_attempt(job_id, attempt, home)

    async def record_cancel(self, job_id: JobId) -> None:
        await self._attempts.record_cancel(job_id)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        await self._attempts.record_procedure(job_id, request)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        return await self._attempts.record_procedure_end(job_id, attempt, trigger_id, savepoint, stopped=stopped)

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        return await self._attempts.record_checkpoints(job_id, attempt, queries, savepoints)

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        return await self._attempts.record_retention(job_id, retired, gone, retired_ms)

    # --- ended jobs -------------------------------------------------------------------------------------------------

    async def record_result(self, result: JobResult) -> None:
        await self._results.record(result)

    async def results(self) -> list[JobResult]:
        return await self._results.readable()

    async def expire_results(self, keep: int) -> list[JobId]:
        return await self._results.expire(keep)

    async def damaged(self) -> list[DamagedJob]:
        return await self._damaged.find()

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._damaged.remove(job_id)

    # --- the blocklist ----------------------------------------------------------------------------------------------

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        await self._blocklist.record(blocklist)

    async def blocklist(self) -> Blocklist:
        return await self._blocklist.read()

    # --- upgrades ---------------------------------------------------------------------------------------------------

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        await self._upgrades.record(upgrade)

    async def upgrades(self) -> list[Upgrade]:
        return await self._upgrades.read()

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        await self._upgrades.remove(upgrade_ids)
