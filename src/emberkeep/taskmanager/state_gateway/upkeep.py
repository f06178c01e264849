"""Decides how long local copies live: until their slot ends, Spark purges the durable file, or the quota is full.

Follows the task manager's allocations (``taskmanager.ports.AllocationListener``). ``local_state.machine`` decides what
is deleted. A thread carries out the steps one at a time, in the order of the events that caused them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.local_state.machine import DropAllocation, DropJob, Effect, HandOver, Ownership
from emberkeep.local_state.model import CopyRecord, FileStatus
from emberkeep.local_state.ports import DurableState
from emberkeep.protocol.limits import LOCAL_STATE_JOBS
from emberkeep.protocol.messages.task_manager_reports import LocalStateReport, StateGatewayReport
from emberkeep.slots.model import Allocation
from emberkeep.taskmanager.state_gateway.gateway import StateGateway

log = structlog.get_logger(__name__)

CLAIM_TIMEOUT = 300.0  # seconds for which copies of an earlier process wait for their job
SWEEP_INTERVAL = 60.0  # seconds between two sweeps, and between two comparisons with the durable store
_DIRECTORIES_PER_SWEEP = (
    200  # directories listed in the durable store in one sweep; the next sweep continues with others
)
_MEASURE_INTERVAL = 2.0  # seconds: the heartbeat has the last measurement, because counting many copies takes time
_QUEUED = 20_000  # far above what a task manager's slots cause between two turns
_Directory = tuple[JobId, str, str]  # with copies of a job: the root, and the path below it


class StateUpkeep:
    """Implements AllocationListener. Belongs to one event loop; ``run`` carries out what is decided."""

    def __init__(self, gateway: StateGateway, clock: Clock, *, sweep_interval: float = SWEEP_INTERVAL) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sweep_interval = sweep_interval
        self._ownership = Ownership(CLAIM_TIMEOUT)
        self._effects: asyncio.Queue[Effect] = asyncio.Queue(_QUEUED)
        self._directories: list[_Directory] = []  # still to be compared in this round
        self.jobs: tuple[LocalStateReport, ...] = ()  # copies of each job on this disk, as of some seconds ago
        self._copies = 0
        self._used = 0  # bytes

    def opened(self, records: tuple[CopyRecord, ...]) -> None:
        """Note the copies that were on the disk when the gateway was opened. Call before anything else."""
        owners = dict.fromkeys((record.job_id, record.allocation_id) for record in records)
        self._ownership.found(owners, self._clock.monotonic())

    # --- slots --------------------------------------------------------------------------------------------------------

    def allocation_recovered(self, allocation: Allocation) -> None:
        self._gateway.fences.see(allocation.job_id, allocation.attempt)
        self._carry_out(self._ownership.recovered(allocation.job_id, allocation.id))

    def allocation_begun(self, allocation: Allocation) -> None:
        self._gateway.fences.see(allocation.job_id, allocation.attempt)
        self._carry_out(self._ownership.begun(allocation.job_id, allocation.id))

    def allocation_freed(self, allocation: Allocation, may_return: bool) -> None:
        self._carry_out(self._ownership.freed(allocation.job_id, allocation.id, may_return=may_return))

    def job_forgotten(self, job_id: JobId) -> None:
        self._carry_out(self._ownership.forgotten(job_id))

    def standbys_reserved(self, jobs: Collection[JobId]) -> None:
        """Note which jobs have their reserved standby here."""
        self._carry_out(self._ownership.reserved(jobs, self._clock.monotonic()))

    def clear(self) -> None:
        """Drop all copies, because this task manager is being shut down. Blocks; nothing else may be under way."""
        for job_id in dict.fromkeys(record.job_id for record in self._gateway.disk.copies.records()):
            self._gateway.disk.drop_job(job_id)

    # --- reports ------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        records = self._gateway.disk.copies.records()
        self.jobs = _of_jobs(records)
        self._copies, self._used = len(records), self._gateway.disk.copies.used()

    def report(self) -> StateGatewayReport:
        """Return the current counters, with copies and bytes as of some seconds ago."""
        counts = vars(self._gateway.counters.take())
        return StateGatewayReport(copies=self._copies, used_bytes=self._used, **counts)

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        self._gateway.held = self._ownership.held
        for effect in effects:
            try:
                self._effects.put_nowait(effect)
            except asyncio.QueueFull:
                # The sweep drops copies without an owner; copies that were not handed over are read from the durable
                # store.
                log.warning("the queue of the local state is full: skipping a step", step=str(effect))

    # --- background work ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out decisions, make room, sweep, compare and measure, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply_all(), name="local state effects")
            tasks.create_task(self._make_room_all(), name="local state quota")
            tasks.create_task(self._sweep_all(), name="local state sweep")
            tasks.create_task(self._compare_all(), name="local state comparison")
            tasks.create_task(self._measure_all(), name="local state report")

    async def _apply_all(self) -> None:
        while True:
            effect = await self._effects.get()
            await asyncio.to_thread(self._apply, effect)

    def _apply(self, effect: Effect) -> None:
        disk = self._gateway.disk
        match effect:
            case HandOver(job_id, source, target):
                disk.hand_over(job_id, source, target)
            case DropAllocation(job_id, allocation_id):
                disk.drop_allocation(job_id, allocation_id)
            case DropJob(job_id):
                self._gateway.forget(job_id)
                disk.drop_job(job_id)

    async def _make_room_all(self) -> None:
        loop, full, disk = asyncio.get_running_loop(), asyncio.Event(), self._gateway.disk

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(full.set)

        disk.when_full = wake
        while True:
            full.clear()
            await asyncio.to_thread(disk.make_room)
            await full.wait()

    async def _sweep_all(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_interval)
            await self.sweep()

    async def _compare_all(self) -> None:
        """Call ``compare`` at each sweep interval, in a task of its own because a durable store may hang."""
        while True:
            await asyncio.sleep(self._sweep_interval)
            await self.compare()

    async def _measure_all(self) -> None:
        while True:
            await asyncio.to_thread(self._measure)
            await asyncio.sleep(_MEASURE_INTERVAL)

    async def sweep(self) -> None:
        """Run one sweep: drop the copies that no allocation claims."""
        # In a thread: it waits while another thread uses the disk, which may take long or hang. First, so that owners
        # that appear in the meantime are known below.
        records = await asyncio.to_thread(self._gateway.disk.copies.records)
        self._carry_out(self._ownership.expired(self._clock.monotonic()))
        self._carry_out(self._ownership.orphans((record.job_id, record.allocation_id) for record in records))

    async def compare(self) -> None:
        """Run one comparison: drop the copies whose durable file was deleted or replaced.

        Each call compares the next _DIRECTORIES_PER_SWEEP directories. The comparison is needed because Spark's DELETE
        reaches only the gateway of the process that sends it.
        """
        await asyncio.to_thread(self._compare)

    def _compare(self) -> None:
        # before the durable store is listed, as each copy was durable by then
        records = self._gateway.disk.copies.records()
        by_directory: dict[_Directory, list[CopyRecord]] = {}
        for record in records:
            directory = record.path.name.rpartition("/")[0]
            by_directory.setdefault((record.job_id, record.path.root, directory), []).append(record)
        if not self._directories:
            self._directories = list(by_directory)
        turn, self._directories = (
            self._directories[:_DIRECTORIES_PER_SWEEP],
            self._directories[_DIRECTORIES_PER_SWEEP:],
        )
        for place in turn:
            job_id, root, directory = place
            durable = self._gateway.roots.opened(job_id).get(root)  # skip a root that was not used yet
            if durable is not None and place in by_directory:
                self._compare_directory(durable, directory, by_directory[place])

    def _compare_directory(self, durable: DurableState, directory: str, records: list[CopyRecord]) -> None:
        try:
            there: dict[str, FileStatus] = {status.name: status for status in durable.listing(directory)}
        except Absent:
            there = {}
        except EmberkeepError as error:
            log.debug("cannot compare local copies with the durable store", directory=directory, reason=str(error))
            return
        gone = [record for record in records if not _is_current(record, there.get(record.path.name))]
        dropped = self._gateway.disk.drop_records(gone)
        self._gateway.counters.add("purged", dropped)


def _is_current(record: CopyRecord, status: FileStatus | None) -> bool:
    return status is not None and status.generation == record.generation


def _of_jobs(records: tuple[CopyRecord, ...]) -> tuple[LocalStateReport, ...]:
    """Return a report on each job's copies, for the LOCAL_STATE_JOBS jobs whose copies are largest."""
    by_job: dict[JobId, list[CopyRecord]] = {}
    for record in records:
        by_job.setdefault(record.job_id, []).append(record)
    reports = [
        LocalStateReport(
            job_id=job_id,
            files=len(own),
            size=sum(record.length for record in own),
            allocations=tuple(sorted({record.allocation_id for record in own})),
        )
        for job_id, own in by_job.items()
    ]
    return tuple(sorted(reports, key=lambda report: (-report.size, report.job_id))[:LOCAL_STATE_JOBS])
