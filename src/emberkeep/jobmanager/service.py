"""The JobManager of one process: opens the stores, recovers the jobs, runs the leader and answers until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from emberkeep.base.configuration.options.blocklist import DETECTION, DETECTION_DURATION, DETECTION_MAX_SHARE
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ID
from emberkeep.base.configuration.options.resource_drivers import SLURM_DRAINED_NODES
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable
from emberkeep.base.system import System
from emberkeep.blocklist.claims import ClaimLimits
from emberkeep.blocklist.model import BlockAction
from emberkeep.chronicle.occurrence import What
from emberkeep.chronicle.selection import MOST_LISTED, Selection
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.jobmanager.gateway.leader_gateway import LeaderGateway
from emberkeep.jobmanager.jobs.dispatcher import Dispatcher
from emberkeep.jobmanager.leader import Leader, LeaderSeat
from emberkeep.jobmanager.nodes.blocklist_handler import BlocklistHandler
from emberkeep.jobmanager.nodes.blocklist_recovery import FoundBlocklist, find_blocklist
from emberkeep.jobmanager.nodes.fault_watch import FaultWatch
from emberkeep.jobmanager.nodes.platform_outages import PlatformOutages
from emberkeep.jobmanager.notes.leader_notes import configuration_changes, leader_ended, leader_started, why_ended
from emberkeep.jobmanager.process_requests import ProcessRequests
from emberkeep.jobmanager.resources.resource_manager import ResourceManager
from emberkeep.jobmanager.resources.strangers import Strangers
from emberkeep.jobmanager.resources.task_manager_supplier import TaskManagerSupplier
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term, begin_term
from emberkeep.jobs.model import JobResult
from emberkeep.jobs.ports import JobStore, StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.protocol.messages.root import Message

_READING_SECONDS = 1.0  # for which a new leader waits at most for the events of earlier leaders


class JobManagerService:
    """A JobManager that leads at most once, while ``run`` runs.

    Until ``run`` has recovered the jobs, and after it has ended, requests raise RetryLater. ``serve`` answers task
    managers and JobMasters, ``gateway`` answers the edges. ``steps_aside``: resign once this process has lost contact
    with most task managers.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        surroundings: Surroundings,
        store: JobStore,
        blobs: BlobServer,
        *,
        steps_aside: bool = False,
    ) -> None:
        self._system = system
        self._configuration = configuration
        self._surroundings = surroundings
        self._store = store
        self._blobs = blobs
        self._steps_aside = steps_aside
        self._paused = False
        self._retiring = False
        self._term: Term | None = None  # set while it leads
        self._seat = LeaderSeat()
        strangers = Strangers()
        self._requests = ProcessRequests(configuration, surroundings, store, self._seat, strangers)
        self.gateway = LeaderGateway(configuration, surroundings, self._seat, strangers)

    async def run(self, epoch: int | None = None) -> None:
        """Recover and lead until cancelled. ``epoch``: the store's epoch, if the store is open already.

        Raises Conflict if another JobManager is the leader or takes over.
        """
        reads = StoreWrites(self._store, self._system.rng)
        if epoch is None:
            epoch = await reads.read("cannot open the job store", self._store.open)
        try:
            stored = await reads.read("cannot recover jobs", self._store.recover)
            results = await reads.read("cannot read results", self._store.results)
            upgrades = await reads.read("cannot read upgrades", self._store.upgrades)
            if stored:
                await self._surroundings.storage.expect()
            await self._open_blobs(stored, results, upgrades)
            drivers = any(job.attempt for job in stored)
            chronicle = self._surroundings.chronicle
            chronicle.begin(epoch, self._store.lineage)
            noted = await self._note_start(epoch)
            term = self._term = begin_term(
                self._system, self._configuration, self._store, epoch, chronicle, drivers=drivers, noted=noted
            )
            if self._paused:
                term.authority.pause()
            # Find the blocklist before any task manager can register: no decision is ever made without it.
            leader = self._leader(term, reads, await find_blocklist(self._store, reads, self._configuration))
            await leader.run(leader.dispatcher.recover(stored, results, upgrades), self._seat)
        except BaseException as error:
            await self._note_end(error)
            raise
        finally:
            self._term = None
            await self._store.close()

    async def _note_start(self, epoch: int) -> frozenset[str]:
        """Note in the chronicle that this JobManager leads, and with which changed settings.

        Return the instances of task managers whose registration earlier leaders have noted.
        """
        around, chronicle = self._surroundings, self._surroundings.chronicle
        starts = Selection(types=frozenset({What.LEADER_STARTED}), limit=1)
        registered = Selection(types=frozenset({What.TASK_MANAGER_REGISTERED}), limit=MOST_LISTED)
        try:
            async with asyncio.timeout(_READING_SECONDS):
                before = (await chronicle.read("", starts)).occurrences
                noted = (await chronicle.read("", registered)).occurrences
        except (Unavailable, TimeoutError):
            before = noted = ()
        chronicle.note(leader_started(around.address, self._configuration[JOB_MANAGER_ID], epoch, around.settings))
        changes = configuration_changes(before[0] if before else None, around.settings)
        if changes is not None:
            chronicle.note(changes)
        return frozenset(each.details.get("instance", "") for each in noted)

    async def _note_end(self, error: BaseException) -> None:
        term, around = self._term, self._surroundings
        if term is not None:
            reason = why_ended(error, is_retiring=self._retiring)
            around.chronicle.note(leader_ended(around.address, term.epoch, reason))
            await around.chronicle.flush()

    def retire(self) -> None:
        """Note that the leadership ends soon because this process was asked to end."""
        self._retiring = True

    async def _open_blobs(
        self, stored: Sequence[StoredJob], results: Sequence[JobResult], upgrades: Sequence[Upgrade]
    ) -> None:
        kept = [result.job_id for result in results if result.keeps_data]
        ended = [result.job_id for result in results if not result.keeps_data]
        jobs = [*(entry.job_id for entry in stored), *kept]
        known = {*jobs, *ended}
        for upgrade in upgrades:  # files of jobs that may still follow, and of those that never will
            follow = [job_id for job_id in (upgrade.new_id, upgrade.back_id) if job_id not in known]
            (ended if upgrade.phase.is_final else jobs).extend(follow)
        await self._blobs.open(jobs, ended)

    def _leader(self, term: Term, reads: StoreWrites, found: FoundBlocklist) -> Leader:
        """Build the leader's actors, and connect them."""
        system, configuration, around = self._system, self._configuration, self._surroundings
        places = found.places
        driver = around.resource_driver
        resources = ResourceManager(
            system,
            configuration,
            around.rpc,
            term,
            steps_aside=self._steps_aside,
            blocked=places,
            on_demand=driver.spec if driver is not None else None,
            usage=around.usage,
        )
        dispatcher = Dispatcher(
            system,
            configuration,
            around,
            self._store,
            self._blobs,
            resources=resources,
            term=term,
            blocked=places,
        )
        resources.listen(dispatcher.cluster)
        limits = ClaimLimits(max_share=configuration[DETECTION_MAX_SHARE], seconds=configuration[DETECTION_DURATION])
        blocklist = BlocklistHandler(
            system, found, reads, term.chronicle, limits, term.epoch, resources, dispatcher.moves
        )
        if configuration[DETECTION]:
            faults = FaultWatch(configuration, found.blocklist.removals, term.clock.now(), term.clock.now_ms())
            resources.suspects.detect(faults, partial(blocklist.block, merge=False))
        supplier = None
        if driver is not None:
            evacuates = configuration[SLURM_DRAINED_NODES] == "evacuate"
            action = BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS if evacuates else BlockAction.MARK_BLOCKED
            outages = PlatformOutages(driver, blocklist, action, term.clock)
            supplier = TaskManagerSupplier(configuration, driver, resources, outages, term)
        return Leader(term, dispatcher, resources, blocklist, self._blobs, supplier)

    async def ready(self) -> None:
        """Return once the jobs are recovered and requests are served."""
        await self._seat.taken()

    async def serve(self, request: Message) -> Message:
        """Answer one request of a task manager or JobMaster. See RpcService."""
        return await self._requests.serve(request)

    def pause(self) -> None:
        """Decide nothing and refuse users' requests until ``resume``: the leadership cannot be confirmed."""
        self._paused = True
        if self._term is not None:
            self._term.authority.pause()
        self._blobs.pause()

    def resume(self) -> None:
        """Resume decisions, because the leadership is confirmed."""
        self._paused = False
        if self._term is not None:
            self._term.authority.resume()
        self._blobs.resume()

    @property
    def in_doubt(self) -> bool:
        """True while the job store does not confirm that this process, which leads, is the leader."""
        return self._term is not None and self._term.authority.in_doubt

    @property
    def problem(self) -> str:
        """What this leader cannot do now, and what to do about it; usually ""."""
        doubt = "" if self._term is None else self._term.authority.problem
        supplier = self._seat.leader.supplier if self._seat.is_taken else None
        return doubt or self._surroundings.storage.problem or ("" if supplier is None else supplier.problem)

    @property
    def problem_since_ms(self) -> int:
        """Since when there is that problem; 0 if there is none, or if its text says for how long."""
        if self.in_doubt:
            return 0
        supplier = self._seat.leader.supplier if self._seat.is_taken else None
        return self._surroundings.storage.problem_since_ms or (0 if supplier is None else supplier.problem_since_ms)

    @property
    def empty_since_ms(self) -> int:
        """Since when no task manager is registered, as far as this leader knows; 0 if one is."""
        return self._seat.leader.resources.empty_since_ms if self._seat.is_taken else 0

    def check_invariants(self) -> None:
        """Raise AssertionError if a state contradicts itself.

        For tests and the simulator; checks no actor during a start.
        """
        if self._seat.is_taken:
            self._seat.leader.check_invariants()
        self._blobs.check_invariants()
