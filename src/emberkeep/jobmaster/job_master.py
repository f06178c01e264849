"""The actor that owns the slots of one attempt of a job, inside its driver process.

The SlotPool decides. This actor carries out the decisions with task managers and Spark, sends heartbeats to the task
managers that hold slots, and reports the attempt's status to the JobManager. Without a JobManager it continues with the
slots that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor, asked, told
from emberkeep.base.configuration.options.blocklist import DETECTION_DURATION, DETECTION_MAX_SHARE, REPORT_EXCLUDED
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.ids import ExecutorId, JobId
from emberkeep.base.system import System
from emberkeep.blocklist.errors import BlocklistFull
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.model import Blocked
from emberkeep.jobmaster.beats import Beats
from emberkeep.jobmaster.driver_trace import DriverTrace
from emberkeep.jobmaster.exclusion_reports import ExclusionReports
from emberkeep.jobmaster.executor_orders import ExecutorOrders
from emberkeep.jobmaster.executor_reports import found_executor
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.job_manager_link import JobManagerLink
from emberkeep.jobmaster.local_state_survey import HeldSlots, held_slots
from emberkeep.jobmaster.pool_settings import pool_limits
from emberkeep.jobmaster.ports import NO_TIMES, Application, ExecutorDemand, FirstTimes, SparkDriver, SparkView
from emberkeep.jobmaster.procedures import Procedures
from emberkeep.jobmaster.progress_keeper import ProgressKeeper
from emberkeep.jobmaster.scaling.autoscaling import Autoscaling
from emberkeep.jobmaster.scaling.demand_watch import DemandWatch
from emberkeep.jobmaster.spark_watch import SparkWatch
from emberkeep.jobmaster.status import AttemptStatus
from emberkeep.jobmaster.task_manager_calls import TaskManagerCalls
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.lifecycle.machine import StepDone, StepFailed
from emberkeep.protocol.messages.executors import ExecutorChanged, OfferSlots, OfferSlotsReply
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterReply, ProgressRead, ReadProgress, ReportNow
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.pool import events as pool
from emberkeep.slots.pool.held_slot import ExecutorState
from emberkeep.slots.pool.machine import SlotPool

log = structlog.get_logger(__name__)

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
        rpc_timeout = configuration[RPC_TIMEOUT]
        self.pool = SlotPool(pool_limits(configuration))
        self._blocklist = BlocklistFollower()
        self._blocklist_lost = False  # the JobManager cannot read its list
        self._exclusions: ExclusionReports | None = None
        if configuration[REPORT_EXCLUDED]:
            self._exclusions = ExclusionReports(
                identity.job_id,
                max_share=configuration[DETECTION_MAX_SHARE],
                seconds=configuration[DETECTION_DURATION],
            )
        self.link = JobManagerLink(system, configuration, rpc, identity, self, job_manager)
        self.registered = self.link.registered
        calls = TaskManagerCalls(system, rpc, rpc_timeout=rpc_timeout, silence_timeout=silence_timeout)
        self._orders = ExecutorOrders(self, identity, self.pool, calls, self._decide)
        self._beats = Beats(self, identity, self.pool, calls, self._decide, self.link.wake)
        self._status = AttemptStatus(identity.attempt, DriverTrace(system.clock.monotonic()))
        self.progress = ProgressKeeper(self, system.clock)
        self._watch = SparkWatch(
            spark, self.pool, self._status.trace, self.progress, system.clock, patience=rpc_timeout
        )
        self._demands = DemandWatch(spark, self._demanded, patience=rpc_timeout)
        self._autoscaling = Autoscaling(self, spark, patience=rpc_timeout)
        self._ending = False
        self._abandoned = False
        self.procedures = Procedures(
            system.clock, self.step_ended, partial(self.start_effect, deadline=None), self.link.wake
        )

    async def run(self) -> None:
        """Serve until cancelled."""
        self.start_effect("job-manager-link", self.link.run(), deadline=None)
        self.start_effect("beats", self._every(self._interval, self._beats.send_due), deadline=None)
        self.start_effect("ticks", self._every(self._interval / TICKS_PER_HEARTBEAT, self._tick), deadline=None)
        self.start_effect("spark-views", self._watch.run(self._interval, self._spark_viewed), deadline=None)
        self.start_effect("executor demand", self._demands.run(), deadline=None)
        self.start_effect("progress history", self.progress.run(), deadline=None)
        await super().run()

    # --- from task managers -------------------------------------------------------------------------------------------

    @asked
    def serve(self, message: OfferSlots | ExecutorChanged | ReportNow | ReadProgress) -> Message:
        """Answer a task manager or the JobManager. Raises Conflict if it is about another attempt, RetryLater."""
        self._check_addressee(message.job_id, message.attempt)
        match message:
            case OfferSlots():
                return self._offered(message)
            case ExecutorChanged():
                return self._executor_changed(message)
            case ReportNow():
                self.link.wake()
                return Ack()
            case ReadProgress():
                return ProgressRead(page=self.progress.page(message.selection))

    def _check_addressee(self, job_id: JobId, attempt: int) -> None:
        own = self.identity
        if (job_id, attempt) != (own.job_id, own.attempt) or self._abandoned:
            raise Conflict(f"attempt {attempt} of job {job_id} is not led by the JobMaster at {own.address}")

    def _offered(self, message: OfferSlots) -> Message:
        executors = tuple(found_executor(report) for report in message.executors)
        answer = self._decide(pool.SlotsOffered(message.task_manager, message.slots, executors))
        if answer is None:
            raise RetryLater(f"a later life of task manager {message.task_manager.id} has been heard before this one")
        return OfferSlotsReply(accepted=answer.allocations, later=answer.later)

    def _executor_changed(self, message: ExecutorChanged) -> Message:
        found = found_executor(message.executor)
        key = (found.allocation_id, found.executor_id)
        if found.state is None:
            self._decide(pool.ExecutorExited(*key, found.exit_code, found.detail))
        elif found.state is ExecutorState.RUNNING:
            self._note(Milestone.EXECUTOR_STARTED)
            self._decide(pool.ExecutorRuns(*key, found.pid, found.start, found.why_cold))
        return Ack()

    def _tick(self) -> None:
        if self._blocklist.lapse(self._system.clock.now_ms(), self._system.clock.monotonic()):
            self._decide(pool.PlacesBlocked(self._blocklist.places, self.pool.state.places.draining))
        self._decide(pool.Tick())

    # --- from the driver ----------------------------------------------------------------------------------------------

    @told
    def application_started(self, application: Application) -> None:
        """Ask for executors: a SparkContext is up."""
        self._status.application_started(application, self._system.clock.now_ms())
        self._note(Milestone.CONTEXT_UP)
        dynamic = application.dynamic
        idle_timeout = None if dynamic is None else dynamic.idle_timeout
        self._decide(pool.ApplicationStarted(application.requirement, application.decommissions, idle_timeout))
        self._demands.follow(application)
        self._autoscaling.follow(application)

    @told
    def application_stopping(
        self, times: FirstTimes = NO_TIMES, work: AttemptWork | None = None, flows: tuple[FlowProgress, ...] = ()
    ) -> None:
        """Ask for nothing new: the SparkContext begins to stop, and its executors end with it.

        ``times``: what it did first; a short application may not have been asked before. ``work``: what the attempt has
        done; None if Spark did not answer. ``flows``: of the pipeline that it has run.
        """
        self._note_times(times)
        if work is not None:
            self._status.application_stopping(work, flows)
            self.link.wake()
        self._decide(pool.ApplicationStopping())

    @told
    def application_stopped(self) -> None:
        """Return all slots: the SparkContext has stopped."""
        self._demands.follow(None)
        self._autoscaling.follow(None)
        self._decide(pool.ApplicationStopped())

    @told
    def step_ended(self, event: StepDone | StepFailed) -> None:
        """Continue the current procedure."""
        self.procedures.handle(event)

    @asked
    def _spark_viewed(self, view: SparkView | None) -> None:
        self._status.see(view)
        if view is not None:
            self._note_times(view.times)
            self.progress.see(view.reports)
            self._autoscaling.see(view, self._system.clock.now_ms())
            idle = frozenset(key for key, left in view.blocks.items() if left.nothing)
            self._note_full_disks(view.lacking_space)
            saw = (view.executors, view.silent, view.takers, view.cordoned, idle & view.cordoned, view.lacking_space)
            self._decide(pool.SparkSaw(*saw))
            self._report_excluded(view)

    @asked
    def _demanded(self, demand: ExecutorDemand) -> None:
        """Follow Spark's dynamic allocation. Ignore what an earlier application wanted."""
        application = self._status.application
        if (
            application is not None
            and application.app_id == demand.app_id
            and self._autoscaling.may_follow(demand.count)
        ):
            wants = pool.ExecutorsDemanded(demand.count, demand.decommissioned, demand.killed, demand.others)
            self._decide(wants)
            self._status.note_wanted(demand.count, self._system.clock.now_ms(), self._autoscaling.reason)

    def _note(self, milestone: Milestone) -> None:
        """Note that the attempt reaches a milestone now."""
        if self._status.trace.note(milestone, self._system.clock.monotonic()):
            self.link.wake()

    def _note_times(self, times: FirstTimes) -> None:
        clock = self._system.clock
        wanted = sum(requirement.count for requirement in self.pool.state.declared())
        if self._status.trace.see(times, wanted, clock.monotonic(), clock.now_ms()):
            self.link.wake()

    def _report_excluded(self, view: SparkView) -> None:
        if self._exclusions is not None:
            slots, now_ms = self.pool.state.held.values(), self._system.clock.now_ms()
            for entry in self._exclusions.review(slots, view.excluded, self._blocklist.places, now_ms):
                log.warning("reporting a node from which Spark excludes executors", node=entry.id, reason=entry.cause)
                self.report_blocked(entry)

    def _note_full_disks(self, lacking_space: frozenset[ExecutorId]) -> None:
        for slot in self.pool.state.held.values():
            if slot.executor.id in lacking_space and not slot.executor.lacks_space:
                log.warning(
                    "tasks fail because a disk is full, others take them",
                    executor=slot.executor.id,
                    task_manager=slot.task_manager.id,
                )
                self._status.note_full_disk(slot, self._system.clock.now_ms())

    @asked
    def end(self) -> None:
        """Return all slots, and ignore a refusal of this attempt from now on: the script has ended."""
        self._ending = True
        self._decide(pool.ApplicationStopped())

    # --- from the JobManager ------------------------------------------------------------------------------------------

    @asked
    def take_reply(self, reply: JobMasterReply) -> None:
        self._decide(pool.ClusterLacks(reply.missing, reply.missing_blocked))
        if reply.known:
            self._decide(pool.CeilingSet(reply.reclaim and self._status.bounded(reply.reclaim)))
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
        if reply.known:
            self._status.trace.note(Milestone.REGISTERED, self._system.clock.monotonic())
        if reply.trace is not None:
            self._status.trace.add(reply.trace)

    @told
    def report_blocked(self, entry: Blocked) -> None:
        """Start nothing more at the blocked place, and report the entry to the JobManager for all jobs."""
        try:
            is_news = self._blocklist.report(entry)
        except BlocklistFull as error:  # no JobManager has answered for a long time: the job goes on without it
            log.warning("a node cannot be reported", node=entry.id, reason=str(error))
            return
        if is_news:
            self._decide(pool.PlacesBlocked(self._blocklist.places, self.pool.state.places.draining))
            self.link.wake()

    @asked
    def take_refusal(self, message: str) -> None:
        if self._ending or self._abandoned:
            return
        self._abandoned = True
        self._beats.stop()
        log.error("this attempt has been superseded", job=self.identity.job_id, reason=message)
        self.start_effect("abandon", self._spark.abandon(message), deadline=None)

    @asked
    def take_status(self) -> JobMasterStatus:
        executors = sum(slot.executor.is_registered for slot in self.pool.state.held.values())
        return self._status.take(
            self.pool.state,
            self._blocklist,
            self.procedures.progress(),
            self._system.clock.monotonic(),
            rows=self.progress.trend(),
            course=self.progress.course(self._status.work, executors),
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
                    application = self._status.application
                    assert application is not None, "slots are accepted only while an application is up"  # noqa: S101
                    self._orders.start_executor(application, effect.allocation_id)
                    self._note(Milestone.EXECUTOR_ORDERED)
                case pool.ReleaseSlotAt():
                    self._orders.release(effect)
                case pool.BeatNow():
                    self._beats.send_now()
                case pool.RemoveExecutor():
                    if not effect.orderly:
                        log.warning("executor lost", job=self.identity.job_id, reason=effect.reason)
                        self._status.note_lost(effect, self._system.clock.now_ms())
                    self.start_effect("remove-executor", self._watch.remove_executor(effect), deadline=None)
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

    async def _every(self, seconds: float, turn: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.ask(turn)
