"""Orders of the JobManager, and requests of JobMasters, to a task manager."""

from __future__ import annotations

import asyncio

import msgspec

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, ExecutorId
from emberkeep.protocol.messages.executors import JobMasterBeat, ReleaseSlot, SlotsReply, StartExecutor
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_managers import AllocateSlot, StartDriver, StopDriver, StopTaskManager
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import TaskManagerInfo
from emberkeep.slots.table import events as ev
from emberkeep.slots.table.slot import SlotState
from emberkeep.taskmanager.kept_table import KeptTable
from emberkeep.taskmanager.ports import DriverKey
from emberkeep.taskmanager.processes import Processes
from emberkeep.taskmanager.reports import executor_report

Order = StartDriver | StopDriver | StopTaskManager | AllocateSlot | StartExecutor | ReleaseSlot | JobMasterBeat


class Orders:
    """Lets the slot table decide on each order, and starts the accepted processes. Belongs to the turns of one actor.

    - ``stop_asked``: set once the JobManager has asked this task manager to stop.
    - ``stop_by``: on the monotonic clock; the work here may end by itself until then.
    """

    def __init__(self, info: TaskManagerInfo, kept: KeptTable, processes: Processes, clock: Clock) -> None:
        self._info = info
        self._kept = kept
        self._processes = processes
        self._clock = clock
        self.stop_asked = asyncio.Event()
        self.stop_by = 0.0

    def answer(self, order: Order) -> Message:
        """Carry out an order and return the reply. Raises Conflict, RetryLater."""
        match order:
            case StartDriver():
                return self._start_driver(order)
            case StopDriver():
                return self._stop_driver(order)
            case StopTaskManager():
                return self._stop_task_manager(order)
            case AllocateSlot():
                return self._allocate_slot(order)
            case StartExecutor():
                return self._start_executor(order)
            case ReleaseSlot():
                return self._release_slot(order)
            case JobMasterBeat():
                return self._beat(order)

    # --- of the JobManager --------------------------------------------------------------------------------------------

    def _start_driver(self, order: StartDriver) -> Message:
        self._kept.decide(ev.EpochSeen(order.epoch, order.lineage))
        key = DriverKey(job_id=order.graph.job_id, attempt=order.attempt)
        custom = amounts(order.graph.resources.driver_resources)
        if ev.LaunchDriver(key.job_id, key.attempt) in self._kept.decide(
            ev.ReserveDriver(key.job_id, key.attempt, order.memory_mb, custom)
        ):
            driver = self._kept.table.state.drivers.by_attempt[key.job_id, key.attempt]
            order = msgspec.structs.replace(order, addresses=driver.addresses)
            self._processes.launch_driver(order, lambda: self._may_start_driver(key))
        return Ack()

    def _may_start_driver(self, key: DriverKey) -> bool:
        """True if the driver that is being started has not been asked to stop."""
        driver = self._kept.table.state.drivers.by_attempt.get((key.job_id, key.attempt))
        return driver is not None and driver.stop_grace is None

    def _stop_driver(self, order: StopDriver) -> Message:
        self._kept.decide(ev.EpochSeen(order.epoch, order.lineage))
        is_here = (order.job_id, order.attempt) in self._kept.table.state.drivers.by_attempt
        self._kept.decide(ev.StopWanted(order.job_id, order.attempt, order.grace))
        return Ack() if is_here else Ack(never_had_by=self._info.instance)

    def _stop_task_manager(self, order: StopTaskManager) -> Message:
        self._kept.decide(ev.EpochSeen(order.epoch, order.lineage))
        if order.instance != self._info.instance:
            raise Conflict(
                f"the order to end was for instance {order.instance}, but task manager {self._info.id} was restarted"
            )
        self.drain(order.drain)
        return Ack()

    def drain(self, seconds: float) -> None:
        """Take nothing new. ``seconds``: how long what is held here has to move elsewhere or to end."""
        self._kept.decide(ev.Drain(moves=seconds > 0))
        self.stop_by = self._clock.monotonic() + seconds
        self.stop_asked.set()

    def _allocate_slot(self, order: AllocateSlot) -> Message:
        self._kept.decide(ev.EpochSeen(order.epoch, order.lineage))
        self._kept.decide(
            ev.ReserveSlot(order.allocation_id, order.job_id, order.attempt, order.profile, order.job_master)
        )
        return Ack()

    # --- of JobMasters ------------------------------------------------------------------------------------------------

    def _start_executor(self, order: StartExecutor) -> Message:
        wanted = ev.StartWanted(order.job_id, order.attempt, order.allocation_id, order.executor_id)
        if ev.LaunchExecutor(order.allocation_id, order.executor_id) in self._kept.decide(wanted):
            slot = self._kept.table.state.slots[order.allocation_id]
            order = msgspec.structs.replace(order, addresses=slot.allocation.addresses)
            self._processes.launch_executor(
                order, lambda: self._may_start_executor(order.allocation_id, order.executor_id)
            )
        return Ack()

    def _may_start_executor(self, allocation_id: AllocationId, executor_id: ExecutorId) -> bool:
        """True if the executor that is being started still has its slot."""
        slot = self._kept.table.state.slots.get(allocation_id)
        return slot is not None and slot.executor_id == executor_id and slot.state is SlotState.STARTING

    def _release_slot(self, order: ReleaseSlot) -> Message:
        self._kept.decide(ev.SlotReleased(order.job_id, order.attempt, order.allocation_id, order.stopped))
        return Ack()

    def _beat(self, beat: JobMasterBeat) -> Message:
        self._kept.decide(ev.JobMasterHeard(beat.job_id, beat.attempt, beat.allocations, beat.decommissioned))
        held = self._kept.table.state.held_by(beat.job_id, beat.attempt)
        reports = [executor_report(slot) for slot in held]
        return SlotsReply(
            instance=self._info.instance,
            allocations=tuple(slot.allocation.id for slot in held),
            executors=tuple(report for report in reports if report is not None),
        )
