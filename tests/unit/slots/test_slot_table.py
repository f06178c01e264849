"""The slot table, step by step; what holds for all steps is in tests/property/slots/test_slot_table.py."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.events import (
    AttemptsOver,
    DecommissionExecutor,
    EndExecutor,
    ExecutorEnded,
    ExecutorStarted,
    JobMasterHeard,
    OfferAnswered,
    OfferRefused,
    ReserveSlot,
    SlotFreed,
    SlotReleased,
    StartWanted,
    TableEvent,
    Tick,
)
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import record_table, restore_table
from emberkeep.slots.table.state import TableState
from tests.property.slots.test_slot_table import LIMITS

SLOT = AllocationId("a" * 32)
JOB = JobId("1" * 32)
RESERVE = ReserveSlot(SLOT, JOB, 1, ResourceProfile(cores=1, memory_mb=100), "jm:1")


@pytest.mark.req("LOC-3")
def test_an_order_for_a_slot_that_was_given_back_comes_late() -> None:
    table = SlotTable(TableState(LIMITS))
    table.handle(RESERVE, 0.0)
    table.handle(OfferAnswered((SLOT,), ()), 0.0)
    assert not table.state.slots
    with pytest.raises(Conflict, match="comes late"):
        table.handle(RESERVE, 0.0)
    assert not table.state.slots


@pytest.mark.req("LOC-5")
@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (OfferAnswered((SLOT,), (), later=(SLOT,)), True),
        (SlotReleased(JOB, 1, SLOT), True),
        (OfferRefused((SLOT,)), True),
        (Tick(), True),
        (OfferAnswered((SLOT,), ()), False),
    ],
    ids=["wanted later", "given back", "another attempt is led there", "no answer", "wanted no more"],
)
def test_a_slot_that_was_never_used_leaves_what_it_took_over_while_anybody_may_want_it(
    end: TableEvent, kept: bool
) -> None:
    """It was left behind by an ended executor: the job waits before it starts another one, or its next attempt may
    come."""
    table = SlotTable(TableState(LIMITS))
    table.handle(RESERVE, 0.0)
    (freed,) = [effect for effect in table.handle(end, 1_000.0) if isinstance(effect, SlotFreed)]
    assert freed.may_return is kept


@pytest.mark.req("LOC-4", "LOC-5")
@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (OfferAnswered((SLOT,), ()), False),
        (OfferRefused((SLOT,)), False),
        (Tick(), False),
        (OfferAnswered((SLOT,), (), later=(SLOT,)), True),
        (AttemptsOver(JOB, 1), True),
    ],
    ids=["not accepted", "refused", "timed out", "wanted later", "the attempt is over"],
)
def test_a_recovered_slot_whose_executor_has_ended_gives_its_state_back_unless_it_is_wanted_again(
    end: TableEvent, kept: bool
) -> None:
    table = SlotTable(restore_table(LIMITS, record_table(running_slot().state), 2.0))
    table.handle(ExecutorEnded(SLOT, ExecutorId("7"), None, "gone"), 2.0)
    (freed,) = [effect for effect in table.handle(end, 1_000.0) if isinstance(effect, SlotFreed)]
    assert freed.may_return is kept


@pytest.mark.req("LOC-4", "LOC-5")
@pytest.mark.parametrize(
    ("answer", "kept"), [(OfferAnswered((SLOT,), (), later=(SLOT,)), True), (OfferAnswered((SLOT,), ()), False)]
)
def test_a_recovered_slot_that_may_be_wanted_later_keeps_the_state_of_its_running_executor(
    answer: OfferAnswered, kept: bool
) -> None:
    table = SlotTable(restore_table(LIMITS, record_table(running_slot().state), 2.0))
    table.handle(answer, 3.0)
    effects = table.handle(ExecutorEnded(SLOT, ExecutorId("7"), 0, ""), 4.0)
    (freed,) = [effect for effect in effects if isinstance(effect, SlotFreed)]
    assert freed.may_return is kept


@pytest.mark.req("LOC-5")
def test_a_refusal_of_what_was_claimed_meanwhile_comes_late() -> None:
    table = SlotTable(restore_table(LIMITS, record_table(running_slot().state), 2.0))
    table.handle(OfferAnswered((SLOT,), (SLOT,)), 3.0)
    assert table.handle(OfferRefused((SLOT,)), 4.0) == []
    assert SLOT in table.state.slots


@pytest.mark.req("BLK-18")
def test_an_executor_is_told_to_leave_once_in_each_life_and_what_it_kept_does_not_return() -> None:
    job, executor = JOB, ExecutorId("7")
    beat = JobMasterHeard(job, 1, (SLOT,), (SLOT,))
    told = DecommissionExecutor(job, 1, SLOT, executor)
    table = SlotTable(TableState(LIMITS))
    table.handle(RESERVE, 0.0)
    table.handle(StartWanted(job, 1, SLOT, executor), 0.0)
    assert told not in table.handle(beat, 1.0), "there is no process yet"
    table.handle(ExecutorStarted(SLOT, executor, 99), 1.0)
    assert told in table.handle(beat, 2.0)
    assert told not in table.handle(beat, 3.0)

    again = SlotTable(restore_table(LIMITS, record_table(table.state), 4.0))
    again.handle(ExecutorStarted(SLOT, executor, 99), 4.0)
    again.handle(OfferAnswered((SLOT,), (SLOT,)), 4.0)
    assert told in again.handle(beat, 5.0)
    again.handle(ExecutorEnded(SLOT, executor, 0, ""), 6.0)
    (freed,) = [effect for effect in again.handle(SlotReleased(job, 1, SLOT), 7.0) if isinstance(effect, SlotFreed)]
    assert not freed.may_return


def running_slot() -> SlotTable:
    table = SlotTable(TableState(LIMITS))
    table.handle(RESERVE, 0.0)
    table.handle(StartWanted(JOB, 1, SLOT, ExecutorId("7")), 0.0)
    table.handle(ExecutorStarted(SLOT, ExecutorId("7"), 99), 1.0)
    return table


@pytest.mark.req("LOC-4")
@pytest.mark.parametrize(
    ("release", "kept"),
    [
        (SlotReleased(JOB, 1, SLOT, stopped=True), True),
        (SlotReleased(JOB, 1, SLOT), False),
        (Tick(), True),
    ],
    ids=["the application has stopped", "the job goes on", "its JobMaster is silent"],
)
@pytest.mark.parametrize("recovers", [False, True], ids=["one life", "another life"])
def test_only_a_job_that_goes_on_gives_up_what_is_kept_for_a_running_executor(
    release: TableEvent, kept: bool, recovers: bool
) -> None:
    """The release comes before anybody knows that the driver, or the executor, has ended."""
    table = running_slot()
    assert EndExecutor(JOB, 1, SLOT, ExecutorId("7")) in table.handle(release, 1_000.0)
    if recovers:
        table = SlotTable(restore_table(LIMITS, record_table(table.state), 1_001.0))
    (freed,) = [
        effect
        for effect in table.handle(ExecutorEnded(SLOT, ExecutorId("7"), -9, ""), 1_001.0)
        if isinstance(effect, SlotFreed)
    ]
    assert freed.may_return is kept
