"""When a reference of a message counts as one that no process will release."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.blobs.deliveries import LONGEST_DELIVERY, MESSAGE_HOLDER, Deliveries
from emberkeep.blobs.model import transient

JOB, KEY = JobId("a" * 32), transient("1" * 64)
MESSAGE, OTHER = (JOB, KEY, f"{MESSAGE_HOLDER}1"), (JOB, KEY, f"{MESSAGE_HOLDER}2")


def test_a_reference_is_overdue_when_it_has_existed_for_the_longest_delivery() -> None:
    deliveries = Deliveries()
    assert deliveries.overdue([MESSAGE], 1.0) == []
    assert deliveries.overdue([MESSAGE, OTHER], LONGEST_DELIVERY) == []
    assert deliveries.overdue([MESSAGE, OTHER], LONGEST_DELIVERY + 1.0) == [MESSAGE]


def test_a_reference_that_was_released_in_between_begins_again() -> None:
    deliveries = Deliveries()
    deliveries.overdue([MESSAGE], 0.0)
    deliveries.overdue([], 1.0)
    assert deliveries.overdue([MESSAGE], LONGEST_DELIVERY) == []


def test_holders_that_are_no_messages_do_not_count() -> None:
    deliveries = Deliveries()
    holder = (JOB, KEY, "driver")
    deliveries.overdue([holder], 0.0)
    assert deliveries.overdue([holder], LONGEST_DELIVERY) == []
