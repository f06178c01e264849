"""Which notification is delivered next, and when."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.notifications.model import EventKind, Notification, NotifiedJob
from emberkeep.notifications.outbox import LONGEST_PAUSE, Counts, Outbox


def notification(number: int) -> Notification:
    job = NotifiedJob(id=JobId("a" * 32), name="flights", namespace="", attempt=1)
    return Notification(id=str(number), event=EventKind.JOB_FAILED, time_ms=number, job=job, message="")


def filled(count: int, limit: int = 10, patience: float = 100.0) -> Outbox:
    outbox = Outbox(limit, patience)
    for number in range(1, count + 1):
        outbox.put(notification(number))
    return outbox


def test_notifications_are_delivered_in_order() -> None:
    outbox = filled(3)
    delivered = []
    while outbox.due_at() is not None:
        delivered.append(outbox.begin(0.0).id)
        outbox.delivered()
    assert delivered == ["1", "2", "3"]
    assert outbox.counts == Counts(delivered=3)


def test_a_failure_is_repeated_after_pauses_that_grow_up_to_a_limit() -> None:
    outbox, now, pauses = filled(1, patience=1e9), 1000.0, []
    for _ in range(12):
        outbox.begin(now)
        assert outbox.failed(now, 0.999_999)
        due = outbox.due_at()
        assert due is not None
        pauses.append(round(due - now))
        now = due
    assert pauses == [1, 2, 4, 8, 16, 32, *[LONGEST_PAUSE] * 6]
    assert outbox.counts == Counts(failures=12)


def test_half_of_a_pause_is_random() -> None:
    dues = []
    for chance in (0.0, 0.5):
        outbox = filled(1)
        outbox.begin(0.0)
        outbox.failed(0.0, chance)
        dues.append(outbox.due_at())
    assert dues == [0.5, 0.75]


def test_what_is_tried_for_too_long_is_dropped_and_the_next_is_due_at_once() -> None:
    outbox = filled(2, patience=100.0)
    outbox.begin(0.0)
    assert outbox.failed(99.0, 0.0)
    outbox.begin(99.5)
    assert not outbox.failed(100.0, 0.0)
    assert outbox.due_at() == 0.0
    assert outbox.begin(100.0).id == "2"
    assert outbox.failed(199.0, 0.0)
    assert outbox.counts == Counts(failures=3, dropped=1)


def test_what_is_refused_is_dropped_at_once() -> None:
    outbox = filled(2)
    outbox.begin(0.0)
    outbox.refused()
    assert outbox.begin(0.0).id == "2"
    assert outbox.counts == Counts(failures=1, dropped=1)


def test_a_full_queue_drops_the_oldest_but_not_the_one_under_way() -> None:
    outbox = filled(3, limit=3)
    outbox.put(notification(4))
    assert outbox.begin(0.0).id == "2"
    outbox.put(notification(5))
    left = []
    while outbox.due_at() is not None:
        left.append(outbox.begin(0.0).id)
        outbox.delivered()
    assert left == ["2", "4", "5"]
    assert outbox.counts == Counts(delivered=3, dropped=2)


def test_what_earlier_leaders_have_left_comes_before_what_waits_as_far_as_there_is_room() -> None:
    outbox = filled(2, limit=4)
    outbox.begin(0.0)
    outbox.put_first([notification(number) for number in (-2, -1, 0)])
    assert [each.id for each in outbox.waiting()] == ["1", "-1", "0", "2"]
    assert outbox.counts.dropped == 1
    outbox.put_first([notification(9)])
    assert (len(outbox), outbox.counts.dropped) == (4, 2)
