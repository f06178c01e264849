"""The slot table, step by step; what holds for all steps is in tests/property/test_slot_table.py."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.slot_table import SlotTable
from emberkeep.slots.table_events import OfferAnswered, ReserveSlot
from tests.property.test_slot_table import LIMITS

SLOT = AllocationId("a" * 32)
RESERVE = ReserveSlot(SLOT, JobId("1" * 32), 1, ResourceProfile(cores=1, memory_mb=100), "jm:1")


@pytest.mark.req("LOC-3")
def test_an_order_for_a_slot_that_was_given_back_comes_late() -> None:
    table = SlotTable(LIMITS)
    table.handle(RESERVE, 0.0)
    table.handle(OfferAnswered((SLOT,), ()), 0.0)
    assert not table.slots
    with pytest.raises(Conflict, match="comes late"):
        table.handle(RESERVE, 0.0)
    assert not table.slots
