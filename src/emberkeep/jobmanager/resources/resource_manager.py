"""The ResourceManager owns the SlotManager, serves task managers, and reports their changes to the Dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from emberkeep.base.actors import INBOX_LIMIT, Actor, ReplyT, asked, told
from emberkeep.base.configuration.options.access import QUOTA_DRIVERS, QUOTA_SLOTS
from emberkeep.base.configuration.options.blocklist import VACANT_TIMEOUT
from emberkeep.base.configuration.options.job_managers import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    MAX_JOBS,
    MAX_TASK_MANAGERS,
    RPC_TIMEOUT,
)
from emberkeep.base.configuration.options.slots import MIN_FREE_DISK, PRIORITY_PATIENCE
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.resources.announcer import Announcer, ClusterListener
from emberkeep.jobmanager.resources.job_needs import JobNeeds
from emberkeep.jobmanager.resources.job_standbys import JobStandbys
from emberkeep.jobmanager.resources.reclaim_settings import reclaim_terms
from emberkeep.jobmanager.resources.slot_orders import SlotOrders
from emberkeep.jobmanager.resources.suspected_nodes import SuspectedNodes
from emberkeep.jobmanager.resources.task_manager_ends import TaskManagerEnds
from emberkeep.jobmanager.resources.task_manager_reports import TaskManagerReports
from emberkeep.jobmanager.resources.usage_keeper import UsageKeeper
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.cluster import TaskManagerView, UsageView
from emberkeep.protocol.limits import RESERVED_CHECKPOINTS
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.task_managers import (
    RegisterTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.ledger import DriverNeed, Gives
from emberkeep.slots.model import Reclaim, ResourceProfile, check_requirements
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.reclaim.coverage import Coverage
from emberkeep.slots.registered_task_managers import SilenceLimits
from emberkeep.slots.reserved.choices import StandbyView
from emberkeep.slots.resource_driver import TaskManagerSpec
from emberkeep.slots.slot_manager import SlotManager
from emberkeep.slots.supply import Supply
from emberkeep.usage.histories import UsageHistories
from emberkeep.usage.history import step_ms
from emberkeep.usage.ports import UsageStore

log = structlog.get_logger(__name__)

WATCH_INTERVAL = 0.5  # seconds between two checks of timeouts
MESSAGES_PER_JOB = 8  # messages about one job that an inbox has room for


@dataclass(frozen=True)
class StatusReply:
    """The reply to a JobMaster's status: the state of its slots and of task managers."""

    lost: tuple[InstanceId, ...]
    missing: str
    blocked: bool = False  # unblocking nodes, or room on their disks, may provide what is missing
    draining: tuple[TaskManagerId, ...] = ()
    reclaim: Reclaim | None = None


_MIB = 1024**2


class ResourceManager(Actor):
    """The only owner of slots and registered task managers.

    Every public method puts a call in the inbox; nothing else touches the state. ``needs`` has what the Dispatcher
    reports about jobs, ``standbys`` which of them have reserved standbys, ``suspects`` blocks bad nodes, and ``ends``
    orders task managers to stop. ``on_demand``: the task managers that a resource driver starts. ``usage``: None keeps
    the usage of nodes in memory only.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        term: Term,
        *,
        steps_aside: bool,
        blocked: BlockedPlaces | None,
        on_demand: TaskManagerSpec | None = None,
        usage: UsageStore | None = None,
    ) -> None:
        super().__init__("resource-manager", inbox_limit=INBOX_LIMIT + MESSAGES_PER_JOB * configuration[MAX_JOBS])
        self._system = system
        self._term = term
        self._clock = term.clock
        self._steps_aside = steps_aside
        self._on_demand = on_demand
        self._heartbeat_interval = configuration[HEARTBEAT_INTERVAL]
        rpc_timeout, lost_after = configuration[RPC_TIMEOUT], configuration[HEARTBEAT_TIMEOUT]
        slots = self._slots = SlotManager(
            SilenceLimits(lost_after=lost_after, orphan_timeout=configuration[ORPHAN_TIMEOUT]),
            pending_timeout=rpc_timeout + lost_after,
            quotas=NamespaceLimits(slots=configuration[QUOTA_SLOTS], drivers=configuration[QUOTA_DRIVERS]),
            priority_patience=configuration[PRIORITY_PATIENCE],
            reclaim=reclaim_terms(configuration),
            min_free_disk_mb=configuration[MIN_FREE_DISK] // _MIB,
            vacant_timeout=configuration[VACANT_TIMEOUT],
            most_task_managers=configuration[MAX_TASK_MANAGERS],
        )
        self._places = blocked or BlockedPlaces()
        slots.restrictions.block(self._places)
        self._announcer = Announcer(slots.restrictions)
        self.suspects = SuspectedNodes(self, self._clock)
        self.standbys = JobStandbys(self, slots.standbys)
        histories = UsageHistories(step_ms(self._heartbeat_interval), term.started_ms)
        self._usage = None if usage is None else UsageKeeper(self, histories, usage, term)
        self._reports = TaskManagerReports(slots, self.standbys, self.suspects, self._announcer, term, histories)
        self._registrations = self._reports.registrations
        self.needs = JobNeeds(self, slots.jobs, self._reports.lost, self.standbys, self._clock)
        self._orders = SlotOrders(self, slots, rpc, term, timeout=rpc_timeout)
        self.ends = TaskManagerEnds(self, self._registrations, slots.restrictions, rpc, term, timeout=rpc_timeout)
        self._match_due = False
        self._coverage = Coverage(slots.reclaimer.terms.total)

    @property
    def empty_since_ms(self) -> int:
        """Since when no task manager is registered, as far as this leader knows; 0 if one is."""
        return self._registrations.empty_since_ms

    def listen(self, listener: ClusterListener) -> None:
        """Set the listener. Call before ``run``."""
        self._announcer.listen(listener)

    async def run(self) -> None:
        """Serve until cancelled.

        With ``steps_aside``, raises Conflict once it has lost contact with most task managers.
        """
        self.start_effect("watch", self._watch(), deadline=None)
        if self._usage is not None:
            self.start_effect("usage", self._usage.run(), deadline=None)
        await super().run()

    def handle(self, turn: Callable[[], ReplyT]) -> ReplyT:
        reply = super().handle(turn)
        if self._slots.is_due and not self._match_due and not self._term.authority.in_doubt:
            self._match_due = True
            self.tell(self._match)  # after the waiting calls, so that a burst is matched once
        return reply

    # --- what the Dispatcher reports ----------------------------------------------------------------------------------

    @told
    def explain_place(self, job_id: JobId) -> None:
        self._match()  # a place may be free by now: do not report it as missing
        blocked = self._slots.waits_for_blocked(job_id)
        self._announcer.listener.place_explained(job_id, self._slots.missing(job_id), blocked=blocked)

    # --- what others ask ----------------------------------------------------------------------------------------------

    @asked
    def standing(self, job_id: JobId, attempt: int, job_master: str, status: JobMasterStatus | None) -> StatusReply:
        """Take a JobMaster's report on its slots and return the reply. ``status`` is None if it was out of date.

        Raises InvalidInput: a driver is a process of the job, so what it requires may be anything.
        """
        if status is not None:
            check_requirements(status.requirements)
            # Executors that leave a blocked or evacuated place do not count: each is wanted elsewhere at once.
            staying = (
                executor for executor in status.executors if executor.departure is None and not executor.outgoing
            )
            held = {executor.allocation_id: executor.task_manager for executor in staying}
            if status.queries:
                self._slots.standbys.streams(job_id, attempt, _checkpoints(status))
            self._slots.jobs.require(job_id, attempt, job_master, status.requirements, held)
            self._slots.reclaimer.take(job_id, attempt, _gives(status), status.reclaim, self._clock.now())
            self.suspects.judge(lambda faults, now: faults.take(job_id, attempt, status, now))
        missing = self._slots.missing(job_id)
        return StatusReply(
            lost=self._reports.lost.of(job_id),
            missing=missing,
            blocked=bool(missing) and self._slots.waits_for_blocked(job_id),
            draining=tuple(sorted(self._announcer.draining)),
            reclaim=self._slots.reclaimer.order_for(job_id),
        )

    @asked
    def missing(self, job_ids: list[JobId]) -> dict[JobId, str]:
        """Return a text for each of these jobs that names what the cluster cannot provide now."""
        return self._slots.missing_of(job_ids)

    @asked
    def standby(self, job_id: JobId) -> StandbyView | None:
        """Return a job's reserved standby; None if the job wants none."""
        return self._slots.standbys.view(job_id)

    @asked
    def obstacle(self, need: DriverNeed, executor: ResourceProfile | None) -> str:
        """Return why no task manager could ever run such a job; "" if one could, or none is known.

        A resource driver starts as many as are needed: two of them stand for these.
        """
        return self._slots.obstacle(need, executor, () if self._on_demand is None else (self._on_demand,) * 2)

    @asked
    def views(self) -> list[TaskManagerView]:
        return self._registrations.views()

    @asked
    def view(self, task_manager: TaskManagerId) -> TaskManagerView:
        """Return one task manager. Raises Absent."""
        return self._registrations.view(task_manager)

    @asked
    def usage(self, task_manager: TaskManagerId | None, after_ms: int) -> UsageView:
        """Return samples of a task manager's history, or of that of all slots. Raises Absent."""
        return self._reports.usage(task_manager, after_ms)

    @asked
    def ids_by_node(self) -> dict[str, list[TaskManagerId]]:
        """Return the ids of the task managers on each node."""
        return self._registrations.ids_by_node()

    @asked
    def supply(self) -> Supply:
        """Return the registered task managers and the demand that they cannot meet now."""
        return self._slots.supply()

    @asked
    def block(self, places: BlockedPlaces) -> None:
        """Return once nothing new is placed at ``places``. Those that are no longer blocked are used again."""
        self._places = places
        self._slots.restrictions.block(places)

    # --- task managers ------------------------------------------------------------------------------------------------

    @asked
    def register(self, request: RegisterTaskManager) -> TaskManagerRegistered:
        """Register a task manager, or take its newer instance. Raises Conflict if another process has this id."""
        self._reports.register(request)
        return TaskManagerRegistered(
            epoch=self._term.epoch, heartbeat_interval=self._heartbeat_interval, lineage=self._term.lineage
        )

    @asked
    def heartbeat(self, request: TaskManagerHeartbeat) -> TaskManagerHeartbeatReply:
        """Take a heartbeat. Raises Conflict for a process whose id now belongs to another process."""
        return self._reports.heartbeat(request)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            if self._steps_aside and self._term.hearing.is_cut_off(self._clock.now()):
                raise Conflict(
                    "lost contact with most task managers: stepping aside so that another JobManager can lead"
                )
            self.tell(self._expire)

    def _expire(self) -> None:
        now = self._clock.now()
        lapsed = self._slots.expire(now, self._term.hearing.since(now))
        slots = self._reports.note_slots()
        if lack := self._coverage.review(slots, now):
            log.warning(lack)
        self.suspects.block(self._registrations, self._places)
        if self._announcer.draining:
            self._announcer.review_draining()
        self._reports.take_lapsed(lapsed)

    def _match(self) -> None:
        self._match_due = False
        if self._term.authority.in_doubt:
            return  # done at the first event after the doubt
        matches = self._slots.match(self._clock.now(), lambda: AllocationId(self._system.ids.hex32()))
        for granted in matches.places:
            self._announcer.listener.place_granted(granted.job_id, granted.info, only_node=granted.only_node)
        for allotted in matches.slots:
            self._orders.submit(allotted)

    def check_invariants(self) -> None:
        """Raise AssertionError if the accounts contradict each other. For tests and the simulator."""
        self._slots.check_invariants()


def _checkpoints(status: JobMasterStatus) -> tuple[str, ...]:
    locations = (query.checkpoint_location for query in status.queries if query.checkpoint_location)
    return tuple(dict.fromkeys(locations))[:RESERVED_CHECKPOINTS]


def _gives(status: JobMasterStatus) -> Gives:
    leaving = (each for each in status.executors if each.departure is not None or each.dismissed)
    return Gives(
        least=max(0, status.least_slots),
        elastic=status.scaling is not None,
        leaving=frozenset(each.allocation_id for each in leaving),
    )
