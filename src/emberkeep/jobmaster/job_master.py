"""The actor that owns the slots of one attempt of a job, inside its driver process.

The SlotPool decides. This actor carries its decisions out at task managers and at Spark, sends heartbeats to the task
managers that hold slots, and reports the attempt's status to the JobManager. Without a JobManager it continues with the
slots that it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor, asked, told
from emberkeep.base.beacon import answer_timeout
from emberkeep.base.configuration.options import (
    DETECTION_DURATION,
    DETECTION_MAX_SHARE,
    EVACUATION_TIMEOUT,
    EXECUTOR_BACKOFF_INITIAL,
    EXECUTOR_BACKOFF_MAX,
    EXECUTOR_FAILURE_WINDOW,
    EXECUTOR_FAILURES,
    EXECUTOR_START_TIMEOUT,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    ORPHAN_TIMEOUT,
    REPORT_EXCLUDED,
    RPC_TIMEOUT,
    SLOT_REQUEST_TIMEOUT,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import AllocationId, InstanceId, JobId
from emberkeep.base.system import System
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.model import Blocked
from emberkeep.jobmaster.checkpoint_reports import CheckpointReports
from emberkeep.jobmaster.exclusion_reports import ExclusionReports
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.job_manager_link import JobManagerLink
from emberkeep.jobmaster.local_state_survey import HeldSlots, held_slots
from emberkeep.jobmaster.ports import Application, Asked, SparkDriver, SparkView
from emberkeep.jobmaster.procedures import Procedures
from emberkeep.jobmaster.status import job_master_status
from emberkeep.jobmaster.task_manager_calls import TaskManagerCalls, start_request
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.lifecycle.machine import StepDone, StepFailed
from emberkeep.protocol.messages import (
    Ack,
    ExecutorChanged,
    ExecutorReport,
    JobMasterBeat,
    JobMasterReply,
    JobMasterStatus,
    Message,
    OfferSlots,
    OfferSlotsReply,
    ProcessState,
    ReleaseSlot,
    SlotsReply,
    StartExecutor,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.pool import events as pool
from emberkeep.slots.pool.held_slot import ExecutorState
from emberkeep.slots.pool.limits import PoolLimits
from emberkeep.slots.pool.machine import SlotPool

log = structlog.get_logger(__name__)

EXCEPTIONS = 20  # lost executors that a status reports, the newest ones
TICKS_PER_HEARTBEAT = 8


class JobMaster(Actor):
    """Owner of one attempt's slots."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        spark: SparkDriver,
        identity: Identity,
        job_manager: str,
    ) -> None:
        super().__init__(f"job-master-{identity.job_id[:8]}-{identity.attempt}")
        self.identity = identity
        self.all_released = asyncio.Event()  # set while no slot waits to be returned
        self.all_released.set()
        self._system = system
        self._spark = spark
        self._interval = configuration[HEARTBEAT_INTERVAL]
        silence_timeout = configuration[HEARTBEAT_TIMEOUT]
        self._rpc_timeout = configuration[RPC_TIMEOUT]
        self.pool = SlotPool(
            PoolLimits(
                max_failures=configuration[EXECUTOR_FAILURES],
                failure_window=configuration[EXECUTOR_FAILURE_WINDOW],
                backoff_initial=configuration[EXECUTOR_BACKOFF_INITIAL],
                backoff_max=configuration[EXECUTOR_BACKOFF_MAX],
                request_timeout=configuration[SLOT_REQUEST_TIMEOUT],
                silence_timeout=silence_timeout,
                start_timeout=configuration[EXECUTOR_START_TIMEOUT],
                orphan_timeout=configuration[ORPHAN_TIMEOUT],
                evacuation_timeout=configuration[EVACUATION_TIMEOUT],
            )
        )
        self._blocklist = BlocklistFollower()
        self._blocklist_lost = False  # the JobManager cannot read its list
        self._exclusions: ExclusionReports | None = None
        if configuration[REPORT_EXCLUDED]:
            self._exclusions = ExclusionReports(
                identity.job_id,
                max_share=configuration[DETECTION_MAX_SHARE],
                seconds=configuration[DETECTION_DURATION],
            )
        self._calls = TaskManagerCalls(system, rpc, rpc_timeout=self._rpc_timeout, silence_timeout=silence_timeout)
        self.link = JobManagerLink(
            system,
            rpc,
            identity,
            self,
            job_manager,
            interval=self._interval,
            rpc_timeout=answer_timeout(self._rpc_timeout, silence_timeout),
        )
        self.registered = self.link.registered
        self._application: Application | None = None
        self._view: SparkView | None = None
        self._checkpoints = CheckpointReports()
        self._sequence = 0
        self._ending = False
        self._abandoned = False
        self._beating: set[InstanceId] = set()  # task managers with a heartbeat under way
        self._beat_again: set[InstanceId] = set()  # of these, those that need another one afterwards
        self._exceptions: deque[ExceptionEntry] = deque(maxlen=EXCEPTIONS)
        self.procedures = Procedures(
            system.clock, self.step_ended, partial(self.start_effect, deadline=None), self.link.wake
        )

    async def run(self) -> None:
        """Serve until cancelled."""
        self.start_effect("job-manager-link", self.link.run(), deadline=None)
        self.start_effect("beats", self._every(self._interval, self._beat_due), deadline=None)
        self.start_effect("ticks", self._every(self._interval / TICKS_PER_HEARTBEAT, self._tick), deadline=None)
        self.start_effect("spark-views", self._watch_spark(), deadline=None)
        await super().run()

    # --- from task managers -------------------------------------------------------------------------------------------

    @asked
    def serve(self, message: OfferSlots | ExecutorChanged) -> Message:
        """Answer a task manager. Raises Conflict if it means another attempt, RetryLater."""
        self._check_addressee(message.job_id, message.attempt)
        return self._offered(message) if isinstance(message, OfferSlots) else self._executor_changed(message)

    def _check_addressee(self, job_id: JobId, attempt: int) -> None:
        own = self.identity
        if (job_id, attempt) != (own.job_id, own.attempt) or self._abandoned:
            raise Conflict(f"attempt {attempt} of job {job_id} is not led by the JobMaster at {own.address}")

    def _offered(self, message: OfferSlots) -> Message:
        executors = tuple(_found(report) for report in message.executors)
        answer = self._decide(pool.SlotsOffered(message.task_manager, message.slots, executors))
        if answer is None:
            raise RetryLater(f"a later life of task manager {message.task_manager.id} has been heard before this one")
        return OfferSlotsReply(accepted=answer.allocations, later=answer.later)

    def _executor_changed(self, message: ExecutorChanged) -> Message:
        found = _found(message.executor)
        key = (found.allocation_id, found.executor_id)
        if found.state is None:
            self._decide(pool.ExecutorExited(*key, found.exit_code, found.detail))
        elif found.state is ExecutorState.RUNNING:
            self._decide(pool.ExecutorRuns(*key, found.pid))
        return Ack()

    def _beat_due(self) -> None:
        if self._abandoned:
            return
        for info, allocations in self.pool.state.to_beat():
            if info.instance not in self._beating:
                self._beating.add(info.instance)
                self._beat_again.discard(info.instance)
                decommissioned = self.pool.state.decommissioned(allocations)
                self.start_effect("beat", self._beat(info, allocations, decommissioned), deadline=None)

    def _beat_returned(
        self, task_manager: TaskManagerInfo, asked_for: tuple[AllocationId, ...], reply: SlotsReply | None
    ) -> None:
        """Note the end of a heartbeat. ``reply`` is None if it was not answered, or refused."""
        self._beating.discard(task_manager.instance)
        if reply is None:
            return
        if task_manager.instance in self._beat_again:
            self._beat_due()
        executors = tuple(_found(report) for report in reply.executors)
        self._decide(pool.BeatAnswered(task_manager.id, reply.instance, asked_for, reply.allocations, executors))

    def _tick(self) -> None:
        if self._blocklist.lapse(self._system.clock.now_ms()):
            self._decide(pool.PlacesBlocked(self._blocklist.places, self.pool.state.places.draining))
        self._decide(pool.Tick())

    # --- from the driver ----------------------------------------------------------------------------------------------

    @told
    def application_started(self, application: Application) -> None:
        """Ask for executors: a SparkContext is up."""
        self._application = application
        self._decide(pool.ApplicationStarted(application.requirement, application.decommissions))

    @told
    def application_stopping(self) -> None:
        """Ask for nothing new: the SparkContext begins to stop, and its executors end with it."""
        self._decide(pool.ApplicationStopping())

    @told
    def application_stopped(self) -> None:
        """Return all slots: the SparkContext has stopped."""
        self._decide(pool.ApplicationStopped())

    @told
    def step_ended(self, event: StepDone | StepFailed) -> None:
        """Continue the current procedure."""
        self.procedures.handle(event)

    def _spark_viewed(self, view: SparkView | None) -> None:
        self._view = view
        if view is not None:
            self._checkpoints.see(view.commits)
            idle = frozenset(key for key, left in view.blocks.items() if left.nothing)
            self._decide(pool.SparkSaw(view.executors, view.silent, view.takers, view.cordoned, idle & view.cordoned))
            self._report_excluded(view)

    def _report_excluded(self, view: SparkView) -> None:
        if self._exclusions is not None:
            slots, now_ms = self.pool.state.held.values(), self._system.clock.now_ms()
            for entry in self._exclusions.review(slots, view.excluded, self._blocklist.places, now_ms):
                log.warning("reporting a node from which Spark excludes executors", node=entry.id, reason=entry.cause)
                self.report_blocked(entry)

    @asked
    def end(self) -> None:
        """Return all slots, and ignore a refusal of this attempt from now on: the script has ended."""
        self._ending = True
        self._decide(pool.ApplicationStopped())

    # --- from the JobManager ------------------------------------------------------------------------------------------

    @asked
    def take_reply(self, reply: JobMasterReply) -> None:
        self._decide(pool.ClusterLacks(reply.missing, reply.missing_blocked))
        for instance in reply.lost:
            self._decide(pool.TaskManagerLost(instance, "its task manager is lost"))
        if reply.blocklist_lost and not self._blocklist_lost:
            self.link.wake()
        self._blocklist_lost = reply.blocklist_lost
        listed, draining = reply.blocklist, frozenset(reply.draining)
        if (
            listed is not None and self._blocklist.take(reply.epoch, listed)
        ) or draining != self.pool.state.places.draining:
            self._decide(pool.PlacesBlocked(self._blocklist.places, draining))
        self.procedures.take(reply)

    @told
    def report_blocked(self, entry: Blocked) -> None:
        """Place nothing more at the entry's place, and report the entry to the JobManager for all jobs' blocklist."""
        if self._blocklist.report(entry):
            self._decide(pool.PlacesBlocked(self._blocklist.places, self.pool.state.places.draining))
            self.link.wake()

    @asked
    def take_refusal(self, message: str) -> None:
        if self._ending or self._abandoned:
            return
        self._abandoned = True
        log.error("this attempt has been superseded", job=self.identity.job_id, reason=message)
        self.start_effect("abandon", self._spark.abandon(message), deadline=None)

    @asked
    def take_status(self) -> JobMasterStatus:
        self._sequence += 1
        now = self._system.clock.monotonic()
        return job_master_status(
            self._sequence,
            self.pool.state,
            self._application,
            self._view,
            self._exceptions,
            self._checkpoints.newest(),
            self._blocklist,
            self.procedures.progress(),
            now,
            tell_blocklist=self._blocklist_lost,
        )

    @asked
    def slots(self) -> HeldSlots:
        """Return the slots that the attempt holds now."""
        return held_slots(self.pool.state)

    # --- carrying out -------------------------------------------------------------------------------------------------

    def _decide(self, event: pool.PoolEvent) -> pool.AcceptOffer | None:
        """Feed the slot pool and carry out its effects.

        Return the reply to an offer of slots, or None if the offer must be repeated.
        """
        answer: pool.AcceptOffer | None = None
        for effect in self.pool.handle(event, self._system.clock.monotonic()):
            match effect:
                case pool.AcceptOffer():
                    answer = effect
                case pool.StartExecutorIn():
                    self._start_executor(effect.allocation_id)
                case pool.ReleaseSlotAt():
                    self.start_effect("release", self._release(effect), deadline=None)
                case pool.BeatNow():
                    self._beat_again = set(self._beating)
                    self._beat_due()
                case pool.RemoveExecutor():
                    if not effect.orderly:
                        self._note_exception(effect)
                    self.start_effect("remove-executor", self._remove_executor(effect), deadline=None)
                case pool.FailAttempt():
                    log.error("the attempt fails", job=self.identity.job_id, reason=effect.message)
                    self.start_effect("fail", self._spark.fail(effect.message), deadline=None)
                case pool.StatusChanged():
                    self.link.wake()
        if self.pool.state.releasing:
            self.all_released.clear()
        else:
            self.all_released.set()
        return answer

    async def _remove_executor(self, effect: pool.RemoveExecutor) -> None:
        """Report to Spark that an executor is lost, which Spark would notice only later by missing heartbeats."""
        try:
            async with asyncio.timeout(self._rpc_timeout):
                await self._spark.remove_executor(effect.executor_id, effect.reason)
        except (EmberkeepError, TimeoutError) as error:
            log.warning("Spark was not told of a lost executor", executor=effect.executor_id, reason=str(error))

    def _note_exception(self, effect: pool.RemoveExecutor) -> None:
        log.warning("executor lost", job=self.identity.job_id, reason=effect.reason)
        message, _, more = effect.reason.partition("\n")
        self._exceptions.append(
            ExceptionEntry(
                timestamp_ms=self._system.clock.now_ms(),
                attempt=self.identity.attempt,
                kind="ExecutorLost",
                message=message,
                traceback=effect.reason if more else "",
                task_manager=effect.task_manager,
            )
        )

    def _start_executor(self, allocation_id: AllocationId) -> None:
        application = self._application
        assert application is not None, "slots are accepted only while an application is up"  # noqa: S101
        slot = self.pool.state.held[allocation_id]
        request = start_request(self.identity, application, slot)
        self.start_effect("start-executor", self._send_start(slot.task_manager.address, request), deadline=None)

    async def _send_start(self, address: str, request: StartExecutor) -> None:
        def still_wanted() -> bool:
            slot = self.pool.state.held.get(request.allocation_id)
            return (
                slot is not None
                and slot.executor.id == request.executor_id
                and slot.task_manager.address == address
                and slot.executor.state is ExecutorState.STARTING
            )

        problem = await self._calls.start(address, request, still_wanted)
        if problem is not None:
            self.tell(partial(self._decide, problem))

    async def _release(self, effect: pool.ReleaseSlotAt) -> None:
        own = self.identity
        request = ReleaseSlot(
            job_id=own.job_id, attempt=own.attempt, allocation_id=effect.allocation_id, stopped=effect.stopped
        )
        await self._calls.release(effect.address, request)
        self.tell(partial(self._decide, pool.ReleaseDone(effect.allocation_id)))

    async def _beat(
        self,
        info: TaskManagerInfo,
        allocations: tuple[AllocationId, ...],
        decommissioned: tuple[AllocationId, ...],
    ) -> None:
        own = self.identity
        request = JobMasterBeat(
            job_id=own.job_id, attempt=own.attempt, allocations=allocations, decommissioned=decommissioned
        )
        reply: SlotsReply | None = None
        try:
            reply = await self._calls.beat(info.address, request)
        except Conflict as error:
            # Only the JobManager can decide whether this attempt is over: report to it now.
            log.warning("a task manager refuses this attempt", task_manager=info.id, reason=str(error))
            self.link.wake()
        self.tell(partial(self._beat_returned, info, allocations, reply))

    async def _watch_spark(self) -> None:
        """Read Spark's state at every interval.

        The timeout keeps a JVM that does not answer from delaying anything else.
        """
        while True:
            try:
                async with asyncio.timeout(self._rpc_timeout):
                    doubted = self.pool.state.doubted(self._system.clock.monotonic())
                    wanted = Asked(
                        doubted=doubted, leaving=self.pool.state.leaving(), cordoned=self.pool.state.to_cordon()
                    )
                    view = await self._spark.view(wanted)
                    await self.ask(partial(self._spark_viewed, view))
            except (EmberkeepError, TimeoutError) as error:
                log.debug("Spark does not answer", reason=str(error))
            await asyncio.sleep(self._interval)

    async def _every(self, seconds: float, turn: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.ask(turn)


def _found(report: ExecutorReport) -> pool.FoundExecutor:
    ended = report.state is ProcessState.EXITED
    return pool.FoundExecutor(
        report.allocation_id,
        report.executor_id,
        None if ended else ExecutorState[report.state.name],
        report.pid,
        report.exit_code,
        report.detail,
    )
