"""The ResourceManager owns the SlotManager, serves task managers, and reports their changes to the Dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from emberkeep.base.actors import INBOX_LIMIT, Actor, ReplyT, asked, told
from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.blocklist.model import BlockedNode, Place
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.bounded_calls import BoundedCalls
from emberkeep.jobmanager.nodes.fault_watch import FaultWatch
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.jobs.hearing import Hearing
from emberkeep.protocol.limits import LEFT_JOBS, LOCAL_STATE_JOBS
from emberkeep.protocol.messages import (
    Ack,
    AllocateSlot,
    AttemptKey,
    DriverReport,
    JobMasterStatus,
    ProcessState,
    RegisterTaskManager,
    StopTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
    TaskManagerReport,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.ledger import DriverNeed, DriverUse, HeldReport
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo
from emberkeep.slots.registered_task_managers import RemovedTaskManager, SilenceLimits
from emberkeep.slots.slot_manager import Allotted, SlotManager
from emberkeep.slots.supply import Supply

CALLS_AT_ONCE = 128
WATCH_INTERVAL = 0.5  # seconds between two checks of timeouts
LOST_KEPT = 256  # lost task managers to remember for each job
NOTHING = ResourceProfile(cores=0, memory_mb=0)
MESSAGES_PER_JOB = 8  # messages about one job that an inbox has room for

logger = logging.getLogger(__name__)


class ClusterListener(Protocol):
    """Receives changes in the cluster. Calls return at once."""

    def place_granted(self, job_id: JobId, info: TaskManagerInfo, *, only_node: bool) -> None:
        """Note that the job has the driver place that it asked for.

        ``only_node``: no other node could take the driver.
        """

    def place_explained(self, job_id: JobId, text: str, *, blocked: bool) -> None:
        """Note why the job has no driver place yet. ``blocked``: unblocking nodes may provide one."""

    def task_managers_lost(self, instances: tuple[InstanceId, ...]) -> None:
        """Note that these task manager instances have ended, are lost, or are away: silent for too long."""

    def task_managers_draining(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        """Note which task managers end once their work has moved elsewhere.

        ``movable``: jobs with a driver there for which there is room elsewhere.
        """

    def drivers_changed(
        self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...], vanished: tuple[DriverReport, ...]
    ) -> None:
        """Note the drivers that a task manager lists now, or those that its instance no longer lists."""

    def attempts_seen(self, attempts: tuple[AttemptKey, ...]) -> None:
        """Note the newest attempts that a task manager knows. Called before anything else that its report causes."""

    def drivers_complete(self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...]) -> None:
        """Note all drivers of a task manager, from its first report since it knows this JobManager as leader.

        From then on it refuses late requests of former leaders.
        """


@dataclass(frozen=True)
class StatusReply:
    """The reply to a JobMaster's status: the state of its slots and of task managers."""

    lost: tuple[InstanceId, ...]
    missing: str
    blocked: bool = False  # unblocking nodes may provide what is missing
    draining: tuple[TaskManagerId, ...] = ()


@dataclass
class _Registered:
    info: TaskManagerInfo
    report: TaskManagerReport
    heard_ms: int
    keys: tuple[tuple[JobId, int], ...] = ()  # attempts with slots or a live driver there
    exited: tuple[tuple[JobId, int], ...] = ()
    complete: bool = False  # it has reported since it knows this epoch

    def take(self, report: TaskManagerReport, now_ms: int) -> None:
        held = [(allocation.job_id, allocation.attempt) for allocation in report.allocations]
        live = [(d.job_id, d.attempt) for d in report.drivers if d.state is not ProcessState.EXITED]
        self.keys = tuple(dict.fromkeys((*held, *live)))
        self.exited = tuple((d.job_id, d.attempt) for d in report.drivers if d.state is ProcessState.EXITED)
        self.report = report
        self.heard_ms = now_ms


@dataclass
class _Lost:
    """Lost task manager instances where a job held slots, oldest first, at most LOST_KEPT."""

    instances: dict[InstanceId, None] = field(default_factory=dict)

    def add(self, instance: InstanceId) -> None:
        self.instances[instance] = None
        while len(self.instances) > LOST_KEPT:
            del self.instances[next(iter(self.instances))]


class ResourceManager(Actor):
    """The only owner of slots and registered task managers.

    Every public method puts a call in the inbox; nothing else touches the state.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        *,
        epoch: int,
        lineage: str,
        clock: SteadyClock,
        hearing: Hearing,
        authority: Authority,
        steps_aside: bool = False,
        blocked: BlockedPlaces | None = None,
    ) -> None:
        super().__init__(
            "resource-manager", inbox_limit=INBOX_LIMIT + MESSAGES_PER_JOB * configuration[options.MAX_JOBS]
        )
        self._system = system
        self._rpc = rpc
        self._epoch = epoch
        self._lineage = lineage
        self._clock = clock
        self._hearing = hearing
        self._authority = authority
        self._steps_aside = steps_aside
        self._rpc_timeout = configuration[options.RPC_TIMEOUT]
        self._heartbeat_interval = configuration[options.HEARTBEAT_INTERVAL]
        lost_after = configuration[options.HEARTBEAT_TIMEOUT]
        self._slots = SlotManager(
            SilenceLimits(lost_after=lost_after, orphan_timeout=configuration[options.ORPHAN_TIMEOUT]),
            pending_timeout=self._rpc_timeout + lost_after,
        )
        self._slots.restrictions.block(blocked or BlockedPlaces())
        self._registered: dict[TaskManagerId, _Registered] = {}
        self._lost: dict[JobId, _Lost] = {}
        self._calls = BoundedCalls(self, CALLS_AT_ONCE)
        self._match_due = False
        self._places = blocked or BlockedPlaces()
        self._draining: frozenset[TaskManagerId] = frozenset()
        self._movable: frozenset[JobId] = frozenset()
        self._faults: FaultWatch | None = None  # None: bad nodes are not detected
        self._block_node: Callable[[BlockedNode], Awaitable[object]] | None = None
        self._blocking = False
        self._listener: ClusterListener | None = None

    def detect(self, faults: FaultWatch, block: Callable[[BlockedNode], Awaitable[object]]) -> None:
        """Block the nodes that ``faults`` suspects. Call before ``run``. ``block`` may raise EmberkeepError."""
        self._faults, self._block_node = faults, block

    def listen(self, listener: ClusterListener) -> None:
        """Set the listener; before ``run``."""
        self._listener = listener

    async def run(self) -> None:
        """Serve until cancelled.

        With ``steps_aside``, raises Conflict once it has lost contact with most task managers.
        """
        self.start_effect("watch", self._watch(), deadline=None)
        await super().run()

    def handle(self, turn: Callable[[], ReplyT]) -> ReplyT:
        reply = super().handle(turn)
        if self._slots.is_due and not self._match_due and not self._authority.in_doubt:
            self._match_due = True
            self.tell(self._match)  # after the waiting calls, so that a burst is matched once
        return reply

    @property
    def _told(self) -> ClusterListener:
        if self._listener is None:
            raise AssertionError("the resource manager runs without a listener")
        return self._listener

    # --- what the Dispatcher tells ------------------------------------------------------------------------------------

    @told
    def add_job(self, job_id: JobId, order: int, attempt: int) -> None:
        self._slots.jobs.add(job_id, order, attempt)

    @told
    def begin_attempt(self, job_id: JobId, attempt: int) -> None:
        self._lost.pop(job_id, None)
        self._slots.jobs.begin_attempt(job_id, attempt)

    @told
    def end_attempt(self, job_id: JobId, attempt: int) -> None:
        self._slots.jobs.end_attempt(job_id, attempt)

    @told
    def close_requirements(self, job_id: JobId, attempt: int) -> None:
        self._slots.jobs.close_requirements(job_id, attempt)

    @told
    def remove_job(self, job_id: JobId) -> None:
        self._lost.pop(job_id, None)
        self._slots.jobs.remove(job_id)

    @told
    def request_place(self, job_id: JobId, need: DriverNeed, attempt: int) -> None:
        self._slots.jobs.request_place(job_id, need, attempt, self._clock.now())

    @told
    def withdraw_place(self, job_id: JobId) -> None:
        self._slots.jobs.withdraw_place(job_id)

    @told
    def explain_place(self, job_id: JobId) -> None:
        self._match()  # a place may be free by now: do not report it as missing
        blocked = self._slots.waits_for_blocked(job_id)
        self._told.place_explained(job_id, self._slots.missing(job_id), blocked=blocked)

    # --- what others ask ----------------------------------------------------------------------------------------------

    @asked
    def standing(self, job_id: JobId, attempt: int, job_master: str, status: JobMasterStatus | None) -> StatusReply:
        """Take a JobMaster's status about its slots and return the reply. ``status`` is None if it was out of date."""
        if status is not None:
            # Executors that leave a blocked or evacuated place do not count: each is wanted elsewhere at once.
            staying = (
                executor for executor in status.executors if executor.departure is None and not executor.outgoing
            )
            held = {executor.allocation_id: executor.task_manager for executor in staying}
            self._slots.jobs.require(job_id, attempt, job_master, status.requirements, held)
            self._judge(lambda faults, now: faults.take(job_id, attempt, status, now))
        lost = self._lost.get(job_id)
        missing = self._slots.missing(job_id)
        blocked = bool(missing) and self._slots.waits_for_blocked(job_id)
        return StatusReply(tuple(lost.instances) if lost else (), missing, blocked, tuple(sorted(self._draining)))

    @asked
    def missing(self, job_ids: list[JobId]) -> dict[JobId, str]:
        """Return a text for each of these jobs that names what the cluster cannot provide now."""
        return {key: self._slots.missing(key) for key in job_ids}

    @asked
    def obstacle(self, need: DriverNeed, executor: ResourceProfile | None) -> str:
        """Return why no registered task manager could ever run such a job; "" if one could, or none is registered."""
        return self._slots.obstacle(need, executor)

    @asked
    def views(self) -> list[TaskManagerView]:
        return [self._view(key) for key in sorted(self._registered)]

    @asked
    def ids_by_node(self) -> dict[str, list[TaskManagerId]]:
        """Return the ids of the task managers on each node."""
        found: dict[str, list[TaskManagerId]] = {}
        for key in sorted(self._registered):
            found.setdefault(self._registered[key].info.node_id, []).append(key)
        return found

    @asked
    def view(self, task_manager: TaskManagerId) -> TaskManagerView:
        """Return one task manager. Raises Absent."""
        return self._view(task_manager)

    async def stop(self, task_manager: TaskManagerId, drain: float) -> None:
        """Order a task manager to end permanently. Its next report says that it is leaving.

        Raises Absent, RetryLater (also if it was restarted in between), UnknownOutcome.
        """
        if not await self._authority.confirmed():
            self._authority.check()
        info = (await self.view(task_manager)).info
        request = StopTaskManager(epoch=self._epoch, instance=info.instance, drain=drain, lineage=self._lineage)
        try:
            await self._rpc.call(info.address, request, Ack, timeout=self._rpc_timeout)
        except Conflict as error:
            raise RetryLater(f"task manager {task_manager} does not end: {error}", hint="try again") from error

    @asked
    def supply(self) -> Supply:
        """Return the registered task managers and the demand that they cannot meet now."""
        return self._slots.supply()

    async def retire(self, task_manager: TaskManagerId) -> bool:
        """Order an idle task manager to end permanently, and place nothing new there.

        Return False if it is no longer idle.

        Raises RetryLater (it has certainly not received the order and is used as before), Absent, UnknownOutcome.
        """
        if not await self.ask(partial(self._slots.restrictions.retire, task_manager)):
            return False
        try:
            await self.stop(task_manager, 0.0)
        except (Absent, UnknownOutcome):
            raise
        except EmberkeepError as error:
            await self.ask(partial(self._slots.restrictions.recall, task_manager))
            raise RetryLater(f"task manager {task_manager} was not told to end: {error}") from error
        return True

    def _view(self, task_manager: TaskManagerId) -> TaskManagerView:
        registered = self._registered.get(task_manager)
        member = self._slots.task_managers.get(task_manager)
        if registered is None or member is None:
            raise Absent(f"no task manager {task_manager} is registered", hint="GET /v1/taskmanagers lists them")
        return TaskManagerView(
            info=registered.info,
            report=registered.report,
            last_heartbeat_ms=registered.heard_ms,
            free_slots=0 if member.away else max(0, member.free_slots),
            free_driver_places=0 if member.away else max(0, member.free_places),
            free_resources=NOTHING if member.away else member.free(),
            away=member.away,
            blocked=member.is_blocked,
            evacuated=member.is_evacuated,
        )

    # --- what the blocklist's owner tells -----------------------------------------------------------------------------

    @asked
    def block(self, places: BlockedPlaces) -> None:
        """Return once nothing new is placed there. Places that are no longer blocked are used again."""
        self._places = places
        self._slots.restrictions.block(places)

    @told
    def unblocked(self, place: Place) -> None:
        """Note that a person has unblocked a place, so that detection does not suspect its node for a while."""
        self._judge(lambda faults, now: faults.unblocked(place, now))

    @told
    def succeeded(self, job_id: JobId) -> None:
        """Note that a job has succeeded, for detection."""
        self._judge(lambda faults, _: faults.succeeded(job_id))

    def _judge(self, say: Callable[[FaultWatch, float], None]) -> None:
        if self._faults is not None:
            say(self._faults, self._clock.now())

    def _block_suspects(self) -> None:
        if self._faults is None or self._blocking:
            return
        nodes = {registered.info.node_id for registered in self._registered.values()}
        entries = self._faults.entries(nodes, self._places, self._clock.now(), self._clock.now_ms())
        if entries:
            self._blocking = True
            self.start_effect("block-suspects", self._block_all(entries), deadline=None)

    async def _block_all(self, entries: list[BlockedNode]) -> None:
        assert self._block_node is not None, "set together with the watch"  # noqa: S101
        for entry in entries:
            try:
                await self._block_node(entry)
            except EmberkeepError as error:
                logger.warning("node %s is suspected, and not blocked: %s", entry.id, error)
            else:
                logger.warning("node %s is blocked for a while: %s", entry.id, entry.cause)
        self._blocking = False

    # --- task managers ------------------------------------------------------------------------------------------------

    @asked
    def register(self, request: RegisterTaskManager) -> TaskManagerRegistered:
        """Register a task manager, or take its newer instance. Raises Conflict if another process has this id."""
        info, report = request.info, request.report
        replaced = self._slots.task_managers.register(info, _held(report), self._clock.now())
        self._hearing.heard(info.id, self._clock.now())
        if replaced is not None:
            self._succeed(info, report, replaced)
        before = self._registered.get(info.id)
        if before is None:
            logger.info("task manager %s registered from %s with %d slots", info.id, info.address, info.slots)
        self._told.attempts_seen((*request.attempts, *_attempts_of(report)))
        self._judge(lambda faults, _: faults.stands(info))
        for lost in self._lost.values():
            lost.instances.pop(info.instance, None)
        if before is None or report.sequence > before.report.sequence:
            registered = self._registered[info.id] = _Registered(info, report, self._clock.now_ms())
            registered.take(report, self._clock.now_ms())
            self._slots.task_managers.take_local_state(info.id, _sizes(report))
            self._note_leaving(info.id, report)
            self._tell_drivers(info, before.report.drivers if before else (), report.drivers)
        return TaskManagerRegistered(
            epoch=self._epoch, heartbeat_interval=self._heartbeat_interval, lineage=self._lineage
        )

    def _succeed(self, info: TaskManagerInfo, report: TaskManagerReport, replaced: RemovedTaskManager) -> None:
        """Replace the previous instance of a task manager that was restarted.

        What the new instance has taken over continues. Only jobs without a slot in its report learn of a loss. Drivers
        that it does not list have ended, if it has searched for those of the previous instance.
        """
        logger.info("task manager %s was started again on %s", info.id, info.host)
        before = self._registered[info.id]
        if info.predecessor == before.info.instance:
            self._tell_vanished(before.info, before.report.drivers, report.drivers)
        self._note_lost([replaced])

    @asked
    def heartbeat(self, request: TaskManagerHeartbeat) -> TaskManagerHeartbeatReply:
        """Take a heartbeat. Raises Conflict for a process whose id another process has now."""
        report, now = request.report, self._clock.now()
        registered = self._registered.get(request.id)
        if registered is None:
            return TaskManagerHeartbeatReply(epoch=self._epoch, known=False, lineage=self._lineage)
        self._hearing.heard(request.id, now)
        before, away = registered.report, self._slots.task_managers.is_away(request.id)
        late = report.sequence <= before.sequence
        if late or (report.allocations == before.allocations and report.drivers == before.drivers):
            self._slots.task_managers.take_heartbeat(request.id, request.instance, report.sequence, now)
            if not late:
                registered.report = report
            registered.heard_ms = self._clock.now_ms()
        else:
            self._slots.task_managers.take_report(request.id, request.instance, _held(report), now)
            registered.take(report, self._clock.now_ms())
        if not late and report.local_state != before.local_state:
            self._slots.task_managers.take_local_state(request.id, _sizes(report))
        self._note_leaving(request.id, report)
        if away:
            logger.info("task manager %s at %s is heard again", request.id, registered.info.address)
        if away or registered.report.drivers != before.drivers:
            self._tell_drivers(registered.info, before.drivers, registered.report.drivers)
            new = [driver for driver in registered.report.drivers if driver not in before.drivers]
            self._judge(lambda faults, now: faults.drivers_ended(registered.info, new, now))
        if not late and not registered.complete:
            registered.complete = True
            self._told.drivers_complete(registered.info, report.drivers)
        verdict = self._verdict(registered)
        if report.leaving and not late and not registered.keys:
            self._take_leave(registered.info)
        return verdict

    def _note_leaving(self, task_manager: TaskManagerId, report: TaskManagerReport) -> None:
        if report.leaving:
            self._slots.restrictions.take_leaving(task_manager, drains=report.draining)
        if report.draining is not (task_manager in self._draining):
            self._review_draining()

    def _review_draining(self) -> None:
        before = (self._draining, self._movable)
        self._draining = self._slots.restrictions.draining()
        self._movable = self._slots.restrictions.movable() if self._draining else frozenset()
        if (self._draining, self._movable) != before:
            self._told.task_managers_draining(self._draining, self._movable)

    def _take_leave(self, info: TaskManagerInfo) -> None:
        """Drop a task manager that has shut down and holds nothing, without waiting for a timeout."""
        logger.info("task manager %s at %s has shut down", info.id, info.address)
        self._hearing.left(info.id)
        self._note_lost([self._slots.task_managers.remove(info.id)])

    def _verdict(self, registered: _Registered) -> TaskManagerHeartbeatReply:
        slots = self._slots
        if self._authority.in_doubt:
            return TaskManagerHeartbeatReply(epoch=self._epoch, known=True, lineage=self._lineage)
        return TaskManagerHeartbeatReply(
            epoch=self._epoch,
            known=True,
            lineage=self._lineage,
            acknowledged=tuple(
                AttemptKey(job_id=job_id, attempt=attempt)
                for job_id, attempt in registered.exited
                if slots.jobs.is_settled(job_id, attempt)
            ),
            stale=tuple(
                AttemptKey(job_id=job_id, attempt=attempt)
                for job_id, attempt in registered.keys
                if slots.jobs.is_void(job_id, attempt)
            ),
            ended=tuple(job_id for job_id in registered.report.left[:LEFT_JOBS] if job_id not in slots.jobs),
        )

    def _tell_drivers(
        self, info: TaskManagerInfo, before: tuple[DriverReport, ...], drivers: tuple[DriverReport, ...]
    ) -> None:
        self._tell_vanished(info, before, drivers)
        if drivers:
            self._told.drivers_changed(info, drivers, ())

    def _tell_vanished(
        self, info: TaskManagerInfo, before: tuple[DriverReport, ...], drivers: tuple[DriverReport, ...]
    ) -> None:
        listed = {(driver.job_id, driver.attempt) for driver in drivers}
        vanished = tuple(driver for driver in before if (driver.job_id, driver.attempt) not in listed)
        if vanished:
            self._told.drivers_changed(info, (), vanished)

    def _note_lost(self, lost: Iterable[RemovedTaskManager]) -> None:
        for info, holders in lost:
            self._registered.pop(info.id, None)
            for job_id in filter(self._slots.jobs.__contains__, holders):
                self._lost.setdefault(job_id, _Lost()).add(info.instance)
        self._told.task_managers_lost(tuple(info.instance for info, _ in lost))
        if self._draining:
            self._review_draining()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            if self._steps_aside and self._hearing.is_cut_off(self._clock.now()):
                raise Conflict("hardly any task manager is heard any more: another JobManager shall try to lead")
            self.tell(self._expire)

    def _expire(self) -> None:
        now = self._clock.now()
        lapsed = self._slots.expire(now, self._hearing.since(now))
        self._block_suspects()
        if self._draining:
            self._review_draining()
        for info in lapsed.away:
            logger.warning("task manager %s at %s is away: no heartbeat; jobs go on there", info.id, info.address)
        if lapsed.away:  # nothing is lost yet, but now only the drivers' own heartbeats count
            self._told.task_managers_lost(tuple(info.instance for info in lapsed.away))
        for info, _ in lapsed.lost:
            logger.warning("task manager %s at %s is lost: no heartbeat for too long", info.id, info.address)
        if lapsed.lost:
            self._note_lost(lapsed.lost)

    def check_invariants(self) -> None:
        """Raise AssertionError if the accounts contradict each other. For tests and the simulator."""
        self._slots.check_invariants()

    # --- matching -----------------------------------------------------------------------------------------------------

    def _match(self) -> None:
        self._match_due = False
        if self._authority.in_doubt:
            return  # done at the first event after the doubt
        matches = self._slots.match(self._clock.now(), lambda: AllocationId(self._system.ids.hex32()))
        for granted in matches.places:
            self._told.place_granted(granted.job_id, granted.info, only_node=granted.only_node)
        for allotted in matches.slots:
            self._calls.submit(("allocate", allotted.allocation.id), partial(self._allocate, allotted))

    async def _allocate(self, allotted: Allotted) -> None:
        allocation = allotted.allocation
        if not await self._authority.confirmed():
            self.tell(lambda: self._slots.take_refusal(allocation.id, self._clock.now()))
            return
        if not self._slots.is_pending(allocation.id):
            return  # it expired while this waited its turn
        request = AllocateSlot(
            epoch=self._epoch,
            allocation_id=allocation.id,
            job_id=allocation.job_id,
            attempt=allocation.attempt,
            profile=allocation.profile,
            job_master=allocation.job_master,
            lineage=self._lineage,
        )
        try:
            await self._rpc.call(allotted.info.address, request, Ack, timeout=self._rpc_timeout)
        except UnknownOutcome as error:
            # The slot may be allocated: the next report, or the timeout of the pending slot, decides.
            logger.info("allocation on task manager %s is uncertain: %s", allotted.info.id, error)
        except EmberkeepError as error:
            logger.info("task manager %s does not take an allocation: %s", allotted.info.id, error)
            self.tell(lambda: self._slots.take_refusal(allocation.id, self._clock.now()))


def _attempts_of(report: TaskManagerReport) -> tuple[AttemptKey, ...]:
    held = [(allocation.job_id, allocation.attempt) for allocation in report.allocations]
    held += [(driver.job_id, driver.attempt) for driver in report.drivers]
    return tuple(AttemptKey(job_id=job_id, attempt=attempt) for job_id, attempt in dict.fromkeys(held))


def _held(report: TaskManagerReport) -> HeldReport:
    drivers = (
        DriverUse(driver.job_id, driver.attempt, driver.memory_mb, driver.state is not ProcessState.EXITED)
        for driver in report.drivers
    )
    return HeldReport(report.sequence, report.allocations, tuple(drivers))


def _sizes(report: TaskManagerReport) -> dict[JobId, int]:
    """Return the bytes of local state by job."""
    return {state.job_id: state.size for state in report.local_state[:LOCAL_STATE_JOBS]}
