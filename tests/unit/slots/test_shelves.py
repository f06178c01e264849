"""The shelves' sums stay true while members come, change and go."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.slots.ledger import BlockState, DriverUse, Member, Reservation
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.slots.shelves import Due, Shelves

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")


def member(name: str, driver_places: int) -> Member:
    info = TaskManagerInfo(
        id=TaskManagerId(name),
        instance=InstanceId("1" * 32),
        address="127.0.0.1:1000",
        host="127.0.0.1",
        node_id=name,
        pid=1,
        slots=2,
        driver_places=driver_places,
        total=ResourceProfile(cores=2, memory_mb=8192),
        runtime=RUNTIME,
        java_major=17,
        started_ms=1,
    )
    return Member(info=info, ordinal=1)


def test_driver_places_are_counted_as_they_are_taken_and_given_back() -> None:
    shelves = Shelves(Due())
    first, second = member("a", 2), member("b", 1)
    shelves.add(first)
    shelves.add(second)
    shelf = shelves.by_runtime[RUNTIME]
    assert (shelf.slots, shelf.places, shelf.free_places) == (4, 3, 3)

    first.reservations[JobId("j")] = Reservation(attempt=1, memory_mb=1024)
    shelves.update(first)
    second.drivers = tuple(DriverUse(JobId(str(number)), 1, 1024, live=True) for number in range(2))
    shelves.update(second)  # more drivers than places: they were there before it was started with fewer
    assert (shelf.places, shelf.free_places) == (3, 1)

    shelves.remove(second)
    first.reservations.clear()
    shelves.update(first)
    assert (shelf.slots, shelf.places, shelf.free_places) == (2, 2, 2)


def test_task_managers_that_are_away_give_nothing_and_are_counted() -> None:
    shelves = Shelves(Due())
    first, second = member("a", 2), member("b", 1)
    shelves.add(first)
    shelves.add(second)
    for each in (first, second):
        shelves.send_away(each)
    assert (shelves.away, list(shelves.members), shelves.by_runtime) == (2, [], {})
    shelves.take_back(first)
    assert (shelves.away, list(shelves.members)) == (1, [first])
    shelf = shelves.by_runtime[RUNTIME]
    assert (shelf.slots, shelf.free_slots, shelf.places, shelf.free_places) == (2, 2, 2, 2)
    shelves.remove(second)
    assert shelves.away == 0
    shelves.remove(first)
    assert (shelves.away, list(shelves.members), shelves.by_runtime) == (0, [], {})


def test_a_task_manager_that_is_blocked_has_nothing_free() -> None:
    shelves = Shelves(Due())
    first = member("a", 2)
    shelves.add(first)
    shelf = shelves.by_runtime[RUNTIME]
    shelves.set_block(first, BlockState.BLOCKED)
    assert (shelf.free_slots, shelf.free_places, shelf.blocked_slots, shelf.blocked_places) == (0, 0, 2, 2)
    shelves.set_block(first, BlockState.NONE)
    assert (shelf.free_slots, shelf.free_places, shelf.blocked_slots, shelf.blocked_places) == (2, 2, 0, 0)
    assert (shelf.slots, shelf.places) == (2, 2)
