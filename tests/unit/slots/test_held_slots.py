"""What a task manager holds, order by order: repeated and late orders, beats, silence, ends of attempts."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.events import (
    AttemptsOver,
    DecommissionExecutor,
    Drain,
    DriverEnded,
    EndExecutor,
    ExecutorEnded,
    ExecutorStarted,
    JobMasterHeard,
    LaunchDriver,
    LaunchExecutor,
    OfferAnswered,
    ReportChanged,
    ReserveDriver,
    ReserveSlot,
    SlotFreed,
    StartWanted,
    StopWanted,
    TableEffect,
    TellJobMaster,
    Tick,
)
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import SlotRecord, record_table, restore_table
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.state import TableState
from tests.property.slots.test_slot_table import LIMITS

SLOT, OTHER_SLOT = AllocationId("a" * 32), AllocationId("b" * 32)
JOB, OTHER_JOB = JobId("1" * 32), JobId("2" * 32)
PROFILE = ResourceProfile(cores=1, memory_mb=100)
FIRST, SECOND = ExecutorId("0"), ExecutorId("1")
BEAT = JobMasterHeard(JOB, 1, (SLOT,))
BEAT_WITHOUT_SLOT = JobMasterHeard(JOB, 1, ())


def reserve(slot: AllocationId = SLOT, attempt: int = 1, job_id: JobId = JOB) -> ReserveSlot:
    return ReserveSlot(slot, job_id, attempt, PROFILE, "jm:1")


@pytest.fixture
def table() -> SlotTable:
    """It holds one accepted slot of the job's first attempt."""
    table = SlotTable(TableState(LIMITS))
    table.handle(reserve(), 0.0)
    table.handle(OfferAnswered((SLOT,), (SLOT,)), 0.0)
    return table


def run(table: SlotTable) -> None:
    """Let the first executor run in the slot."""
    assert table.handle(StartWanted(JOB, 1, SLOT, FIRST), 0.0) == [LaunchExecutor(SLOT, FIRST)]
    assert table.handle(ExecutorStarted(SLOT, FIRST, 77), 0.0) == [TellJobMaster(SLOT)]


def freed(effects: list[TableEffect]) -> list[AllocationId]:
    return [effect.allocation.id for effect in effects if isinstance(effect, SlotFreed)]


# --- orders that come again, or late ----------------------------------------------------------------------------------


def test_an_order_for_a_slot_that_is_held_changes_nothing_and_another_job_does_not_get_it(table: SlotTable) -> None:
    assert table.handle(reserve(), 1.0) == []
    with pytest.raises(Conflict, match="belongs to job"):
        table.handle(reserve(job_id=OTHER_JOB), 1.0)


def test_an_order_to_start_a_driver_has_effect_once(table: SlotTable) -> None:
    assert table.handle(ReserveDriver(JOB, 1, 500), 0.0) == [LaunchDriver(JOB, 1), ReportChanged()]
    assert table.handle(ReserveDriver(JOB, 1, 500), 0.0) == []


@pytest.mark.parametrize("order", [ReserveDriver(JOB, 1, 500), reserve(OTHER_SLOT), StartWanted(JOB, 1, SLOT, FIRST)])
def test_an_attempt_that_is_over_gets_nothing(table: SlotTable, order: ReserveDriver | ReserveSlot) -> None:
    table.handle(AttemptsOver(JOB, 1), 0.0)
    with pytest.raises(Conflict, match="is over"):
        table.handle(order, 1.0)


@pytest.mark.parametrize("order", [ReserveDriver(JOB, 1, 500), reserve(OTHER_SLOT)])
def test_an_attempt_that_a_newer_one_has_followed_gets_nothing(
    table: SlotTable, order: ReserveDriver | ReserveSlot
) -> None:
    table.handle(reserve(OTHER_SLOT, attempt=2), 0.0)
    with pytest.raises(Conflict, match="superseded by attempt 2"):
        table.handle(order, 1.0)


@pytest.mark.parametrize("order", [ReserveDriver(JOB, 1, 50), reserve(OTHER_SLOT)])
def test_a_task_manager_that_is_about_to_stop_takes_nothing_new(
    table: SlotTable, order: ReserveDriver | ReserveSlot
) -> None:
    table.handle(Drain(moves=False), 0.0)
    with pytest.raises(Conflict, match="shutting down"):
        table.handle(order, 1.0)


def test_a_newer_attempt_takes_the_place_of_what_older_ones_held(table: SlotTable) -> None:
    run(table)
    table.handle(reserve(AllocationId("c" * 32), job_id=OTHER_JOB), 0.0)
    effects = table.handle(reserve(OTHER_SLOT, attempt=2), 1.0)
    assert EndExecutor(JOB, 1, SLOT, FIRST) in effects
    assert table.state.held_by(JOB, 1) == []
    assert len(table.state.held_by(JOB, 2)) == len(table.state.held_by(OTHER_JOB, 1)) == 1


def test_resources_are_free_again_when_the_executor_has_ended(table: SlotTable) -> None:
    run(table)
    total = LIMITS.total
    assert table.state.free == total.minus(ResourceProfile(cores=1, memory_mb=100))
    table.handle(AttemptsOver(JOB, 1), 0.0)
    assert table.state.free == total.minus(ResourceProfile(cores=1, memory_mb=100))
    assert freed(table.handle(ExecutorEnded(SLOT, FIRST, -9, ""), 1.0)) == [SLOT]
    assert table.state.free == total


# --- executors --------------------------------------------------------------------------------------------------------


def test_a_start_that_was_wanted_before_is_not_repeated(table: SlotTable) -> None:
    run(table)
    assert table.handle(StartWanted(JOB, 1, SLOT, FIRST), 1.0) == []
    with pytest.raises(Conflict, match="already holds executor 0"):
        table.handle(StartWanted(JOB, 1, SLOT, SECOND), 1.0)


def test_the_next_executor_starts_when_the_one_before_has_ended_and_no_id_is_used_twice(table: SlotTable) -> None:
    run(table)
    assert table.handle(ExecutorEnded(SLOT, FIRST, 1, "killed"), 1.0) == [TellJobMaster(SLOT)]
    assert table.handle(StartWanted(JOB, 1, SLOT, SECOND), 1.0) == [LaunchExecutor(SLOT, SECOND)]
    table.handle(ExecutorEnded(SLOT, SECOND, 1, ""), 2.0)
    with pytest.raises(Conflict, match="has ended"):
        table.handle(StartWanted(JOB, 1, SLOT, FIRST), 2.0)


def test_the_next_executor_in_a_slot_is_asked_to_hand_over_like_the_one_before(table: SlotTable) -> None:
    handing_over = JobMasterHeard(JOB, 1, (SLOT,), decommissioned=(SLOT,))
    run(table)
    assert table.handle(handing_over, 1.0) == [DecommissionExecutor(JOB, 1, SLOT, FIRST)]
    assert table.handle(handing_over, 2.0) == [], "it is asked once"
    table.handle(ExecutorEnded(SLOT, FIRST, 0, ""), 3.0)
    table.handle(StartWanted(JOB, 1, SLOT, SECOND), 3.0)
    table.handle(ExecutorStarted(SLOT, SECOND, 78), 3.0)
    assert table.handle(handing_over, 4.0) == [DecommissionExecutor(JOB, 1, SLOT, SECOND)]


def test_an_executor_starts_only_in_a_slot_of_its_attempt(table: SlotTable) -> None:
    for wanted in (StartWanted(OTHER_JOB, 1, SLOT, FIRST), StartWanted(JOB, 1, OTHER_SLOT, FIRST)):
        with pytest.raises(Absent):
            table.handle(wanted, 0.0)


def test_news_of_an_executor_that_is_not_in_the_slot_changes_nothing(table: SlotTable) -> None:
    run(table)
    assert table.handle(ExecutorStarted(SLOT, SECOND, 78), 1.0) == []
    assert table.handle(ExecutorStarted(OTHER_SLOT, FIRST, 78), 1.0) == []
    assert table.handle(ExecutorEnded(SLOT, SECOND, 1, ""), 1.0) == []
    table.handle(ExecutorEnded(SLOT, FIRST, 1, ""), 1.0)
    assert table.handle(ExecutorEnded(SLOT, FIRST, 2, ""), 1.0) == [], "its end is known"
    assert table.handle(ExecutorStarted(SLOT, FIRST, 78), 1.0) == [], "so its start is late"
    assert (table.state.slots[SLOT].state, table.state.slots[SLOT].exit_code) == (SlotState.EXITED, 1)


def test_a_process_that_appears_after_its_slot_was_released_is_ended(table: SlotTable) -> None:
    table.handle(StartWanted(JOB, 1, SLOT, FIRST), 0.0)
    assert EndExecutor(JOB, 1, SLOT, FIRST) in table.handle(AttemptsOver(JOB, 1), 1.0)
    assert table.handle(ExecutorStarted(SLOT, FIRST, 77), 1.0) == [EndExecutor(JOB, 1, SLOT, FIRST)]


# --- beats and silence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_accepted", [False, True], ids=["before the reply to its first offer", "accepted"])
def test_no_beat_claims_a_recovered_slot_before_it_was_offered_again(is_accepted: bool) -> None:
    """Otherwise it is never offered, and its JobMaster never learns of the new process of the task manager."""
    earlier = SlotTable(TableState(LIMITS))
    earlier.handle(reserve(), 0.0)
    if is_accepted:
        earlier.handle(OfferAnswered((SLOT,), (SLOT,)), 0.0)
    table = SlotTable(restore_table(LIMITS, record_table(earlier.state), 0.0))
    with pytest.raises(RetryLater):
        table.handle(BEAT, 1.0)
    table.handle(OfferAnswered((SLOT,), (SLOT,)), 1.0)
    assert table.handle(BEAT, 1.0) == []
    assert table.state.slots[SLOT].is_claimed


def test_a_beat_claims_a_new_slot_if_the_reply_to_its_offer_is_late() -> None:
    table = SlotTable(TableState(LIMITS))
    table.handle(reserve(), 0.0)
    table.handle(BEAT, 1.0)
    assert table.state.slots[SLOT].is_claimed


def test_a_slot_that_two_beats_in_a_row_do_not_name_is_released(table: SlotTable) -> None:
    for beat in (BEAT_WITHOUT_SLOT, BEAT, BEAT_WITHOUT_SLOT):
        assert table.handle(beat, 1.0) == []
    assert freed(table.handle(BEAT_WITHOUT_SLOT, 1.0)) == [SLOT]


def test_a_slot_is_released_when_its_job_master_is_silent_for_too_long(table: SlotTable) -> None:
    table.handle(BEAT, 5.0)
    assert table.handle(Tick(), 5.0 + LIMITS.silence_timeout) == []
    assert freed(table.handle(Tick(), 5.1 + LIMITS.silence_timeout)) == [SLOT]


def test_a_slot_is_released_when_nobody_accepts_it_in_time() -> None:
    table = SlotTable(TableState(LIMITS))
    table.handle(reserve(), 0.0)
    assert table.handle(Tick(), LIMITS.slot_timeout - 0.1) == []
    assert freed(table.handle(Tick(), LIMITS.slot_timeout)) == [SLOT]


def test_the_silence_of_a_job_master_whose_driver_lives_here_releases_nothing(table: SlotTable) -> None:
    table.handle(ReserveDriver(JOB, 1, 500), 0.0)
    assert table.handle(Tick(), 10 * LIMITS.silence_timeout) == []


# --- drivers ----------------------------------------------------------------------------------------------------------


def test_the_end_of_a_driver_ends_its_attempt_and_is_news_once(table: SlotTable) -> None:
    table.handle(ReserveDriver(JOB, 1, 500), 0.0)
    effects = table.handle(DriverEnded(JOB, 1), 1.0)
    assert freed(effects) == [SLOT]
    assert effects[-1] == ReportChanged()
    assert table.handle(DriverEnded(JOB, 1), 1.0) == []
    assert table.state.drivers.by_attempt[JOB, 1].state is DriverState.EXITED


def test_an_order_to_stop_an_attempt_without_a_driver_here_frees_its_slots(table: SlotTable) -> None:
    assert freed(table.handle(StopWanted(JOB, 1, 10.0), 1.0)) == [SLOT]


def test_an_order_to_stop_a_driver_leaves_its_slots_until_it_has_ended(table: SlotTable) -> None:
    table.handle(ReserveDriver(JOB, 1, 500), 0.0)
    assert freed(table.handle(StopWanted(JOB, 1, 10.0), 1.0)) == []
    assert list(table.state.slots) == [SLOT]


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_a_slot_that_an_earlier_release_has_recorded_goes_on_with_its_attempt() -> None:
    allocation = Allocation(id=SLOT, slot_index=0, job_id=JOB, attempt=1, profile=PROFILE, job_master="jm:1")
    assert not SlotRecord(allocation=allocation, state=SlotState.ACTIVE).attempt_ends


def test_ticks_do_not_displace_the_events_that_explain_an_impossible_step(table: SlotTable) -> None:
    for second in range(200):
        table.handle(BEAT if second == 5 else Tick(), float(second) / 100)
    assert [step.split(" ", 1)[1].partition("(")[0] for step in table.state.history] == [
        "ReserveSlot",
        "OfferAnswered",
        "JobMasterHeard",
    ]
