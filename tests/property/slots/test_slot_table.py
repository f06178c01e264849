"""A task manager's slots and driver places under any order of messages, process ends and time.

Beside the table stands a model of the machine: which processes really live. The table may believe late, never wrongly:
a process that lives always has its slot or place. The table's process may die between any two events: the next life
starts from what was on disk, which was written before any process was started, and else may lag behind.
"""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.custom.addresses import ResourceAddresses, amounts_of
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.events import (
    AttemptsOver,
    Close,
    DriverAcknowledged,
    DriverEnded,
    DriverStarted,
    EndDriver,
    EndExecutor,
    ExecutorEnded,
    ExecutorStarted,
    ForgetJob,
    JobMasterHeard,
    LaunchDriver,
    LaunchExecutor,
    OfferAnswered,
    OfferRefused,
    ReserveDriver,
    ReserveSlot,
    SlotReleased,
    StartWanted,
    StopLapsed,
    StopWanted,
    TableEvent,
    Tick,
)
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import TableRecord, record_table, restore_table
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.state import TableLimits, TableState
from tests.campaign import examples

GPUS = (ResourceAddresses(name="gpu", addresses=("0", "1")),)
LIMITS = TableLimits(
    slots=3,
    driver_places=2,
    total=ResourceProfile(cores=4, memory_mb=4000, custom=amounts_of(GPUS)),
    slot_timeout=10.0,
    recovery_timeout=20.0,
    silence_timeout=10.0,
    forget_after=60.0,
    addresses=GPUS,
)
FEWER_GPUS = (ResourceAddresses(name="gpu", addresses=("1",)),)
SMALLER = LIMITS._replace(
    slots=2,
    driver_places=1,
    total=ResourceProfile(cores=3, memory_mb=2500, custom=amounts_of(FEWER_GPUS)),
    addresses=FEWER_GPUS,
)
JOBS = st.sampled_from([JobId("a"), JobId("b"), JobId("c")])
ATTEMPTS = st.integers(1, 3)
ALLOCATIONS = st.sampled_from([AllocationId(f"al{number}") for number in range(6)])
EXECUTORS = st.sampled_from([ExecutorId(str(number)) for number in range(4)])
PROFILES = st.sampled_from(
    [
        ResourceProfile(cores=1, memory_mb=500),
        ResourceProfile(cores=2, memory_mb=1500),
        ResourceProfile(cores=1, memory_mb=2500),
        ResourceProfile(cores=1, memory_mb=100, custom=amounts({"gpu": 1})),
    ]
)


@dataclasses.dataclass
class Launch:
    """A process on the way: ``alive`` once it was really started, ``dying`` once it was really told to end."""

    alive: bool = False
    dying: bool = False


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(TableState(LIMITS))
        self.now = 0.0
        self.executors: dict[tuple[AllocationId, ExecutorId], Launch] = {}
        self.drivers: dict[tuple[JobId, int], Launch] = {}
        self.highest: dict[JobId, int] = {}
        self.disk = record_table(self.table.state)
        self.highest_on_disk: dict[JobId, int] = {}

    def give(self, event: TableEvent) -> bool:
        """Returns whether the table took the event; a refusal must leave no trace."""
        before = (repr(self.table.state.slots), repr(self.table.state.drivers.by_attempt))
        try:
            effects = self.table.handle(event, self.now)
        except (Conflict, Absent, RetryLater):
            assert before == (repr(self.table.state.slots), repr(self.table.state.drivers.by_attempt))
            return False
        for effect in effects:
            match effect:
                case LaunchExecutor():
                    key = (effect.allocation_id, effect.executor_id)
                    assert key not in self.executors, "an executor is started twice"
                    living = [known for known in self.executors if known[0] == effect.allocation_id]
                    assert not living, "two executors live in one slot"
                    self.executors[key] = Launch()
                case EndExecutor():
                    found = self.executors.get((effect.allocation_id, effect.executor_id))
                    if found is not None and found.alive:
                        found.dying = True
                case LaunchDriver():
                    driver_key = (effect.job_id, effect.attempt)
                    assert driver_key not in self.drivers, "a driver is started twice"
                    self.drivers[driver_key] = Launch()
                case EndDriver():
                    driver = self.drivers.get((effect.job_id, effect.attempt))
                    if driver is not None and driver.alive:
                        driver.dying = True
                case ForgetJob():
                    held = {slot.allocation.job_id for slot in self.table.state.slots.values()}
                    assert effect.job_id not in held, "files are deleted under living processes"
                    assert effect.job_id not in {job_id for job_id, _ in self.drivers}
                case _:
                    pass
        return True

    # --- messages -----------------------------------------------------------------------------------------------------

    @rule(allocation=ALLOCATIONS, job=JOBS, attempt=ATTEMPTS, profile=PROFILES)
    def reserve_slot(self, allocation: AllocationId, job: JobId, attempt: int, profile: ResourceProfile) -> None:
        if self.give(ReserveSlot(allocation, job, attempt, profile, "host:1")):
            assert attempt >= self.highest.get(job, 0), "an older attempt gets a slot"
            self.highest[job] = attempt

    @rule(job=JOBS, attempt=ATTEMPTS, memory=st.sampled_from([500, 1500]), gpus=st.sampled_from([0, 0, 1]))
    def reserve_driver(self, job: JobId, attempt: int, memory: int, gpus: int) -> None:
        if self.give(ReserveDriver(job, attempt, memory, amounts({"gpu": gpus}))):
            assert attempt >= self.highest.get(job, 0), "an older attempt gets a driver place"
            self.highest[job] = attempt

    @rule(accepts=st.booleans(), later=st.booleans())
    def answer_offers(self, accepts: bool, later: bool) -> None:
        for slots in self.table.state.offers().values():
            offered = tuple(slot.allocation.id for slot in slots)
            self.give(OfferAnswered(offered, offered if accepts else (), offered if later and not accepts else ()))

    @rule()
    def refuse_offers(self) -> None:
        for slots in self.table.state.offers().values():
            self.give(OfferRefused(tuple(slot.allocation.id for slot in slots)))

    @rule(allocation=ALLOCATIONS)
    def refuse_late(self, allocation: AllocationId) -> None:
        slot = self.table.state.slots.get(allocation)
        claimed = slot is not None and slot.claim_until is None
        self.give(OfferRefused((allocation,)))
        assert not claimed or allocation in self.table.state.slots, "a slot is ended that its JobMaster has claimed"

    @rule(allocation=ALLOCATIONS, accepts=st.booleans())
    def answer_late(self, allocation: AllocationId, accepts: bool) -> None:
        self.give(OfferAnswered((allocation,), (allocation,) if accepts else ()))

    @rule(job=JOBS, attempt=ATTEMPTS, allocation=ALLOCATIONS, executor=EXECUTORS)
    def start_wanted(self, job: JobId, attempt: int, allocation: AllocationId, executor: ExecutorId) -> None:
        self.give(StartWanted(job, attempt, allocation, executor))

    @rule(executor=EXECUTORS)
    def start_in_all(self, executor: ExecutorId) -> None:
        for number, slot in enumerate(list(self.table.state.slots.values())):
            allocation = slot.allocation
            self.give(
                StartWanted(allocation.job_id, allocation.attempt, allocation.id, ExecutorId(f"{executor}.{number}"))
            )

    @rule(job=JOBS, attempt=ATTEMPTS, allocation=ALLOCATIONS)
    def release(self, job: JobId, attempt: int, allocation: AllocationId) -> None:
        self.give(SlotReleased(job, attempt, allocation))

    @rule(job=JOBS, attempt=ATTEMPTS, allocations=st.lists(ALLOCATIONS, max_size=3))
    def beat(self, job: JobId, attempt: int, allocations: list[AllocationId]) -> None:
        self.give(JobMasterHeard(job, attempt, tuple(allocations)))

    @rule(job=JOBS, attempt=ATTEMPTS, grace=st.sampled_from([0.0, 5.0]))
    def stop_driver(self, job: JobId, attempt: int, grace: float) -> None:
        self.give(StopWanted(job, attempt, grace))

    @rule(job=JOBS, attempt=ATTEMPTS)
    def attempts_over(self, job: JobId, attempt: int) -> None:
        self.give(AttemptsOver(job, attempt))
        self.highest[job] = max(self.highest.get(job, 0), attempt)

    @rule(job=JOBS, attempt=ATTEMPTS)
    def acknowledge(self, job: JobId, attempt: int) -> None:
        self.give(DriverAcknowledged(job, attempt))

    @precondition(lambda self: self.now > 40)
    @rule()
    def close(self) -> None:
        self.give(Close(3.0))

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.give(Tick())

    # --- processes ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.executors)
    @rule(data=st.data(), lives=st.booleans(), told_late=st.booleans())
    def executor_process(self, data: st.DataObject, lives: bool, told_late: bool) -> None:
        """The next thing in the life of an executor's process: it starts, fails to start, or ends."""
        key = data.draw(st.sampled_from(list(self.executors)))
        launch = self.executors[key]
        if not launch.alive and lives:
            self.write()
            launch.alive = True
            self.give(ExecutorStarted(*key, pid=7))
        elif not launch.alive or launch.dying or not lives:
            del self.executors[key]
            self.give(ExecutorEnded(*key, -9 if launch.alive else None, ""))
            if told_late:
                self.give(ExecutorStarted(*key, pid=7))

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), lives=st.booleans())
    def driver_process(self, data: st.DataObject, lives: bool) -> None:
        key = data.draw(st.sampled_from(list(self.drivers)))
        launch = self.drivers[key]
        if not launch.alive and lives:
            self.write()
            launch.alive = True
            self.give(DriverStarted(*key, pid=8))
        elif not launch.alive or launch.dying or not lives:
            del self.drivers[key]
            self.give(DriverEnded(*key))

    # --- the end of the table's process -------------------------------------------------------------------------------

    @rule()
    def write(self) -> None:
        """Before anything is started at the latest."""
        self.disk = record_table(self.table.state)
        self.highest_on_disk = dict(self.highest)

    @rule(data=st.data(), smaller=st.booleans())
    def crash(self, data: st.DataObject, smaller: bool) -> None:
        """The next life has less room, or as much; some processes have ended meanwhile."""
        limits = SMALLER if smaller else LIMITS
        record = msgspec.json.decode(msgspec.json.encode(self.disk), type=TableRecord)
        self.table = SlotTable(restore_table(limits, record, self.now))
        self.highest = dict(self.highest_on_disk)
        recovered = {
            slot.allocation.id for slot in self.table.state.slots.values() if slot.state is not SlotState.RELEASING
        }
        self.executors = {key: launch for key, launch in self.executors.items() if self.survives(data, launch)}
        self.drivers = {key: launch for key, launch in self.drivers.items() if self.survives(data, launch)}
        wanted = {
            (slot.allocation.id, slot.executor_id)
            for slot in self.table.state.slots.values()
            if slot.executor_id is not None and slot.state is not SlotState.EXITED
        }
        self.executors = {key: launch for key, launch in self.executors.items() if key in wanted}
        places = {(driver.job_id, driver.attempt) for driver in self.table.state.drivers.living()}
        self.drivers = {key: launch for key, launch in self.drivers.items() if key in places}
        for launch in (*self.executors.values(), *self.drivers.values()):
            launch.dying = False  # who was to end is told again
        for allocation_id, executor_id in wanted:
            assert executor_id is not None
            found = (allocation_id, executor_id) in self.executors
            event = ExecutorStarted(allocation_id, executor_id, 7) if found else None
            self.give(event or ExecutorEnded(allocation_id, executor_id, None, "gone"))
        assert recovered <= {slot.allocation.id for slots in self.table.state.offers().values() for slot in slots}
        for key in places:
            self.give(DriverStarted(*key, pid=8) if key in self.drivers else DriverEnded(*key))
        self.disk, self.highest_on_disk = record_table(self.table.state), dict(self.highest)

    def survives(self, data: st.DataObject, launch: Launch) -> bool:
        """What had not been started when the process died never was."""
        return launch.alive and data.draw(st.booleans())

    # --- what must never happen ---------------------------------------------------------------------------------------

    @invariant()
    def holds_its_invariants(self) -> None:
        self.table.check_invariants()

    @invariant()
    def gives_nothing_twice(self) -> None:
        allocations = [slot.allocation for slot in self.table.state.slots.values()]
        limits = self.table.state.limits
        assert len({allocation.slot_index for allocation in allocations}) == len(allocations) <= limits.slots
        memory = sum(allocation.profile.memory_mb for allocation in allocations)
        memory += sum(driver.memory_mb for driver in self.table.state.drivers.by_attempt.values())
        assert memory <= limits.total.memory_mb
        assert sum(allocation.profile.cores for allocation in allocations) <= limits.total.cores
        gpus = [address for one in allocations for each in one.addresses for address in each.addresses]
        assert len(gpus) == sum(bool(one.profile.custom) for one in allocations)
        gpus += [a for driver in self.table.state.drivers.living() for each in driver.addresses for a in each.addresses]
        assert len(set(gpus)) == len(gpus) <= 2

    @invariant()
    def every_process_has_its_place(self) -> None:
        for allocation_id, executor_id in self.executors:
            slot = self.table.state.slots[allocation_id]
            assert slot.executor_id == executor_id
            assert slot.state in (SlotState.STARTING, SlotState.RUNNING, SlotState.RELEASING)
        for key in self.drivers:
            assert self.table.state.drivers.by_attempt[key].state is not DriverState.EXITED

    @invariant()
    def a_process_that_is_to_end_was_told(self) -> None:
        for (allocation_id, _), launch in self.executors.items():
            if launch.alive and self.table.state.slots[allocation_id].state is SlotState.RELEASING:
                assert launch.dying
        for key, launch in self.drivers.items():
            if launch.alive and self.table.state.drivers.by_attempt[key].stop_grace is not None:
                assert launch.dying

    def teardown(self) -> None:
        """When all processes end as they are told, and JobMasters fall silent, everything comes back."""
        for job_id, attempt in list(self.table.state.drivers.by_attempt):
            self.give(StopWanted(job_id, attempt, 0.0))
        for key in list(self.drivers):
            if self.drivers[key].alive:
                self.give(StopLapsed(*key, None))
            del self.drivers[key]
            self.give(DriverEnded(*key))
        self.now += 21.0
        self.give(Tick())
        for executor in list(self.executors):
            assert self.table.state.slots[executor[0]].state is SlotState.RELEASING
            del self.executors[executor]
            self.give(ExecutorEnded(*executor, -9, ""))
        assert self.table.state.is_empty
        assert self.table.state.free == self.table.state.limits.total


TestSlotTable = TableMachine.TestCase
TestSlotTable.settings = settings(max_examples=examples(38), stateful_step_count=60, deadline=None)
