"""A task manager's driver places, event by event."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.slots.table.driver_places import DriverPlaces, DriverState, HeldDriver
from emberkeep.slots.table.events import DriverEnded, DriverStarted, EndDriver

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)


def places(*attempts: int, state: DriverState = DriverState.STARTING, job_id: JobId = JOB) -> DriverPlaces:
    """Two places, and a driver of 512 MiB for each attempt."""
    found = DriverPlaces(2)
    for attempt in attempts:
        found.by_attempt[job_id, attempt] = HeldDriver(job_id, attempt, 512, state)
    return found


def test_an_ended_driver_frees_its_place_and_memory_and_is_reported_on() -> None:
    held = places(1, 2, state=DriverState.RUNNING)
    assert (held.memory_mb, held.is_full) == (1024, True)
    with pytest.raises(Conflict):
        held.check_free()
    assert held.ended(DriverEnded(JOB, 1))
    assert not held.ended(DriverEnded(JOB, 1)), "that is known"
    assert (held.memory_mb, held.is_full, held.is_alive(JOB, 1), held.is_alive(JOB, 2)) == (512, False, False, True)
    held.check_free()
    assert [driver.attempt for driver in held.by_attempt.values()] == [1, 2]
    assert [driver.attempt for driver in held.living()] == [2]


def test_only_an_ended_driver_is_forgotten_when_it_is_acknowledged() -> None:
    held = places(1, 2, state=DriverState.RUNNING)
    held.ended(DriverEnded(JOB, 1))
    for attempt in (1, 2, 3):
        held.acknowledge(JOB, attempt)
    assert list(held.by_attempt) == [(JOB, 2)]


def test_a_driver_that_was_asked_to_end_before_it_had_a_process_ends_when_it_has_one() -> None:
    held = places(1)
    held.end(JOB, 1, 4.0)
    assert held.started(DriverStarted(JOB, 1, 77)) == [EndDriver(JOB, 1, 4.0)]
    driver = held.by_attempt[JOB, 1]
    assert (driver.state, driver.pid) == (DriverState.RUNNING, 77)


def test_a_start_that_is_reported_after_the_end_changes_nothing() -> None:
    held = places(1)
    held.ended(DriverEnded(JOB, 1))
    assert held.started(DriverStarted(JOB, 1, 77)) == []
    assert held.by_attempt[JOB, 1].state is DriverState.EXITED
    assert held.started(DriverStarted(JOB, 2, 78)) == [], "nobody knows that attempt"


def test_a_running_driver_that_nobody_asked_to_end_runs_on() -> None:
    held = places(1)
    assert held.started(DriverStarted(JOB, 1, 77)) == []


def test_a_driver_is_asked_again_only_to_end_sooner() -> None:
    held = places(1, state=DriverState.RUNNING)
    assert held.end(JOB, 1, 4.0) == [EndDriver(JOB, 1, 4.0)]
    assert held.end(JOB, 1, 4.0) == []
    assert held.end(JOB, 1, 9.0) == []
    assert held.end(JOB, 1, 1.0) == [EndDriver(JOB, 1, 1.0)]
    assert held.by_attempt[JOB, 1].stop_grace == 1.0
    held.ended(DriverEnded(JOB, 1))
    assert held.end(JOB, 1, 0.0) == []
    assert held.end(JOB, 5, 0.0) == []


def test_an_attempt_ends_with_all_older_ones_of_its_job() -> None:
    held = places(1, 2, 3, state=DriverState.RUNNING)
    held.by_attempt[OTHER, 1] = HeldDriver(OTHER, 1, 512, DriverState.RUNNING)
    assert held.end_until(JOB, 2) == [EndDriver(JOB, 1, 0.0), EndDriver(JOB, 2, 0.0)]
