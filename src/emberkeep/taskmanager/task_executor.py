"""The actor that owns a task manager's slots and processes.

The SlotTable decides. This actor carries out its decisions through the Launcher, and calls JobMasters and the
JobManager. Each decision is on disk before anything depends on it, so that the next task manager process can continue
from there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from emberkeep.base.actors import Actor, asked, told
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_START_TIMEOUT
from emberkeep.base.configuration.options.slots import SLOT_TIMEOUT
from emberkeep.base.configuration.options.task_managers import ADOPT_LEADER
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId
from emberkeep.base.system import System
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.table import events as ev
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.state import TableLimits
from emberkeep.taskmanager.job_manager_follower import JobManagerFollower
from emberkeep.taskmanager.job_manager_link import JobManagerLink
from emberkeep.taskmanager.job_master_calls import JobMasterCalls
from emberkeep.taskmanager.journal import Journal
from emberkeep.taskmanager.kept_table import KeptTable
from emberkeep.taskmanager.orders import Order, Orders
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessExit, TaskManagerPorts
from emberkeep.taskmanager.processes import DriverNotStarted, Processes, ProcessEvent
from emberkeep.taskmanager.recovery import lost_outcome, recover
from emberkeep.taskmanager.slot_offers import SlotOffers

log = structlog.get_logger(__name__)

# Seconds for which a job's files stay after the job last held something here, unless the JobManager reports that the
# job has ended. Its next attempt may come back after waiting for a restart delay and for a place.
FORGET_AFTER = 3600.0
TICKS_PER_HEARTBEAT = 4


class TaskExecutor(Actor):
    """Owns a task manager's slots and processes.

    - ``orders``: what the JobManager and JobMasters ask for.
    - ``link``: the connection to the JobManager.
    - ``emptied``: set when this task manager is closing and nothing is left.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        info: TaskManagerInfo,
        ports: TaskManagerPorts,
        job_manager: str,
    ) -> None:
        super().__init__("task-executor")
        self.info = info
        self.journal = Journal(ports.store)
        self.emptied = asyncio.Event()
        self._launcher = ports.launcher
        self._listeners = ports.listeners
        self._heartbeat_interval = configuration[HEARTBEAT_INTERVAL]
        self._kept = KeptTable(_limits(configuration, info), info.instance, self.journal, system.clock, self)
        self._processes = Processes(
            ports.launcher,
            self.start_effect,
            self.process_changed,
            self.journal.accepted,
            configuration[DRIVER_START_TIMEOUT],
        )
        self.orders = Orders(info, self._kept, self._processes, system.clock)
        self._job_masters = JobMasterCalls(ports.rpc, configuration[RPC_TIMEOUT])
        self._offers = SlotOffers(self, info, self._kept, self._job_masters)
        self._follower = JobManagerFollower(
            self,
            self._kept,
            ports.usage,
            ports.launcher.reserve_standbys,
            adopts_leader=configuration[ADOPT_LEADER],
        )
        self.link = JobManagerLink(system, configuration, ports.rpc, info, self._follower, job_manager)
        ports.launcher.on_exit(self.process_exited)

    @property
    def table(self) -> SlotTable:
        """The slots and driver places. Only turns of this actor change it."""
        return self._kept.table

    async def run(self) -> None:
        """Take over what the previous task manager process left, then serve until cancelled.

        Raises Fatal if the JobManager keeps refusing this task manager, see ``JobManagerLink``. Raises Unavailable if
        what the previous process left cannot be read now, NewerFormat if only a newer release can read it; in both
        cases the drivers and executors of the previous process continue to run.
        """
        recovered = await recover(self._kept, self._launcher, self._listeners)
        if recovered.predecessor is not None:
            self.info = msgspec.structs.replace(
                self.info, predecessor=recovered.predecessor, unconfirmed=recovered.unconfirmed
            )
            self.link.info = self._offers.info = self.info
        self._follower.adopted = recovered.adopted
        self.start_effect("journal", self.journal.run(), deadline=None)
        self.start_effect("job-manager-link", self._follow_job_manager(), deadline=None)
        self.start_effect("ticks", self._tick(), deadline=None)
        await super().run()

    async def _follow_job_manager(self) -> None:
        """Register, and report until cancelled.

        First the record names this instance, so that the next process can prove to be its successor. A disk that fails
        or hangs does not keep the task manager away.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._heartbeat_interval):
                await self.journal.tried()
        await self.link.run()

    @asked
    def serve(self, order: Order) -> Message:
        """Answer a JobManager or a JobMaster. Raises Conflict, RetryLater."""
        return self.orders.answer(order)

    @asked
    def close(self, grace: float) -> None:
        """Refuse new work, stop drivers within ``grace`` seconds, and stop executors."""
        self._kept.decide(ev.Close(grace))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval / TICKS_PER_HEARTBEAT)
            await self.ask(partial(self._kept.decide, ev.Tick()))

    # --- processes ----------------------------------------------------------------------------------------------------

    @told
    def process_changed(self, event: ProcessEvent) -> None:
        """Note the result of starting or stopping a process."""
        if not isinstance(event, DriverNotStarted):
            self._kept.decide(event)
            return
        log.warning("driver could not be started", job=event.key.job_id, reason=event.message)
        self._kept.end_driver(
            event.key,
            AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=event.message, lasting=event.lasting),
        )

    @told
    def process_exited(self, event: ProcessExit) -> None:
        key = event.key
        if isinstance(key, ExecutorKey):
            log.info("executor ended", job=key.job_id, executor=key.executor_id, exit_code=event.exit_code)
            self._kept.decide(ev.ExecutorEnded(key.allocation_id, key.executor_id, event.exit_code, event.detail))
            return
        log.info("driver ended", job=key.job_id, attempt=key.attempt, exit_code=event.exit_code)
        lost = lost_outcome(f"the driver left no outcome; {event.detail}", event.exit_code)
        self._kept.end_driver(key, event.outcome or lost)

    # --- effects of the table -----------------------------------------------------------------------------------------

    def decided(self) -> None:
        """Implements TableEffects."""
        self._offers.offer_all()
        if self.table.state.closing and self.table.state.is_empty:
            self.emptied.set()

    def carry_out(self, effect: ev.TableEffect) -> None:
        """Implements TableEffects."""
        match effect:
            case ev.ReportChanged():
                self.link.wake()
            case ev.LaunchDriver() | ev.LaunchExecutor():
                pass  # ``orders`` launches it
            case ev.EndExecutor() | ev.DecommissionExecutor():
                self._tell_executor(effect)
            case ev.EndDriver():
                self._processes.end(DriverKey(job_id=effect.job_id, attempt=effect.attempt), effect.grace)
            case ev.TellJobMaster():
                self.start_effect("tell-job-master", self._tell_job_master(effect.allocation_id), deadline=None)
            case ev.ForgetJob():
                self._processes.forget(effect.job_id)
                for listener in self._listeners:
                    listener.job_forgotten(effect.job_id)
            case ev.SlotBegun():
                for listener in self._listeners:
                    listener.allocation_begun(effect.allocation)
            case ev.SlotFreed():
                for listener in self._listeners:
                    listener.allocation_freed(effect.allocation, effect.may_return)

    def _tell_executor(self, effect: ev.EndExecutor | ev.DecommissionExecutor) -> None:
        key = ExecutorKey(
            job_id=effect.job_id,
            attempt=effect.attempt,
            allocation_id=effect.allocation_id,
            executor_id=effect.executor_id,
        )
        if isinstance(effect, ev.EndExecutor):
            self._processes.end(key, 0.0)
        else:
            self._processes.decommission(key)

    async def _tell_job_master(self, allocation_id: AllocationId) -> None:
        slot = self.table.state.slots.get(allocation_id)
        if slot is not None:
            await self._job_masters.tell(self.info, slot)


def _limits(configuration: Configuration, info: TaskManagerInfo) -> TableLimits:
    return TableLimits(
        slots=info.slots,
        driver_places=info.driver_places,
        total=info.total,
        slot_timeout=configuration[SLOT_TIMEOUT],
        # A silent JobMaster counts as lost after the heartbeat timeout; the slot timeout is its time to answer.
        recovery_timeout=configuration[HEARTBEAT_TIMEOUT] + configuration[SLOT_TIMEOUT],
        silence_timeout=configuration[HEARTBEAT_TIMEOUT],
        forget_after=FORGET_AFTER,
        addresses=info.addresses,
    )
