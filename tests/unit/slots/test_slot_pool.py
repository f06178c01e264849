"""The slot pool, step by step; what holds for all steps is in tests/property/test_slot_pool.py."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, SlotRequirement
from emberkeep.slots.pool_events import (
    ApplicationStarted,
    BeatAnswered,
    ExecutorExited,
    ReleaseDone,
    ReleaseSlotAt,
    SlotsOffered,
)
from emberkeep.slots.slot_pool import SlotPool
from tests.property.test_slot_pool import LIMITS, RUNTIME, SMALL, task_manager

SLOT = AllocationId("a" * 32)
INFO = task_manager("tm0#1")


@pytest.mark.req("LOC-4")
def test_a_slot_whose_release_was_lost_is_told_of_by_beats() -> None:
    pool = SlotPool(LIMITS)
    pool.handle(ApplicationStarted(SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)), 0.0)
    slot = Allocation(id=SLOT, slot_index=0, job_id=JobId("1" * 32), attempt=1, profile=SMALL, job_master="jm:1")
    pool.handle(SlotsOffered(INFO, (slot,)), 0.0)
    assert pool.to_beat() == [(INFO, (SLOT,))]

    effects = pool.handle(ExecutorExited(SLOT, ExecutorId("0"), -9, ""), 1.0)
    assert ReleaseSlotAt(SLOT, INFO.address) in effects
    pool.handle(ReleaseDone(SLOT), 11.0)  # given up: nobody has answered

    assert pool.to_beat() == [(INFO, ())], "it is to free what is not named"
    pool.handle(BeatAnswered(INFO.id, INFO.instance, (), (SLOT,)), 12.0)
    assert pool.to_beat() == [(INFO, ())], "it holds the slot still"
    pool.handle(BeatAnswered(INFO.id, INFO.instance, (), ()), 13.0)
    assert pool.to_beat() == []
