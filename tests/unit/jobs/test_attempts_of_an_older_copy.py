"""A job whose store was put back from an older copy: what others have begun since is adopted, and never repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from emberkeep.jobs import events as ev
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase
from tests.property.job_world import KILLED, POLICY, SUCCESS, JobWorld, job_graph, place

pytestmark = pytest.mark.req("SAFE-6")

NEWEST = 5


def adopted(world: JobWorld) -> None:
    """The store takes the number."""
    effect = world.take(ev.AdoptAttempt)
    assert effect == ev.AdoptAttempt(NEWEST)
    world.stored_attempt = NEWEST
    world.tell(ev.AttemptRecorded())


def placing() -> JobWorld:
    return JobWorld()


def writing() -> JobWorld:
    world = JobWorld()
    world.grant()
    return world


def starting() -> JobWorld:
    world = JobWorld(stored_attempt=1)
    assert world.phase() is Phase.STARTING
    return world


def running() -> JobWorld:
    world = JobWorld()
    world.to_running()
    return world


def backing_off() -> JobWorld:
    world = running()
    world.tell(ev.DriverExited(1, place(1), KILLED))
    assert world.phase() is Phase.BACKING_OFF
    return world


def ending() -> JobWorld:
    world = running()
    world.tell(ev.MoveDriver(1))
    assert world.phase() is Phase.ENDING
    return world


@pytest.mark.parametrize("begin", [placing, writing, starting, running, backing_off, ending])
def test_a_newer_attempt_goes_on_whatever_this_leader_was_about_to_do(begin: Callable[[], JobWorld]) -> None:
    world = begin()
    world.tell(ev.AttemptSeen(NEWEST))
    assert world.machine.state.refusal(NEWEST) == ""
    assert world.machine.state.refusal(1)
    world.tell(ev.JobMasterRegistered(NEWEST, place(2).task_manager, 42))
    if world.take(ev.RecordAttempt):
        world.tell(ev.AttemptUnknown())
    adopted(world)
    assert (world.phase(), world.status()) == (Phase.RUNNING, JobStatus.RUNNING)
    assert not [effect for effect in world.asked if effect == ev.StartDriver(NEWEST, place(1))]
    world.tell(ev.DriverExited(NEWEST, place(2), KILLED))
    world.wait(60.0)
    world.grant(2)
    assert world.take(ev.RecordAttempt) == ev.RecordAttempt(NEWEST + 1)


def test_a_place_that_was_granted_before_its_withdrawal_arrived_is_not_used() -> None:
    world = placing()
    world.tell(ev.AttemptSeen(NEWEST))
    assert world.tell(ev.PlaceGranted(place(1))) == []
    adopted(world)
    assert world.machine.state.attempt == NEWEST


@pytest.mark.parametrize("known", [True, False], ids=["written", "not known"])
def test_the_number_that_is_being_written_may_be_in_use(known: bool) -> None:
    world = writing()
    world.tell(ev.AttemptSeen(1))
    world.write_attempt(known=known)
    if not known:
        assert world.take(ev.AdoptAttempt) == ev.AdoptAttempt(1)
        world.tell(ev.AttemptRecorded())
    assert world.phase() is Phase.STARTING
    assert world.take(ev.StartDriver) is None
    assert world.machine.state.refusal(1) == ""


def test_an_end_that_comes_before_the_number_is_written_is_judged_afterwards() -> None:
    world = starting()
    world.tell(ev.AttemptSeen(NEWEST))
    world.tell(ev.DriverExited(NEWEST, place(2), SUCCESS))
    assert world.machine.state.verdict is None
    adopted(world)
    world.write_result()
    assert world.status() is JobStatus.FINISHED


def test_one_that_is_cancelled_meanwhile_is_ended() -> None:
    world = starting()
    world.tell(ev.AttemptSeen(NEWEST))
    world.tell(ev.DriverListed(NEWEST, place(2), 42))
    world.tell(ev.CancelRequested())
    adopted(world)
    stop = world.take(ev.StopDriver)
    assert isinstance(stop, ev.StopDriver)
    assert (stop.attempt, stop.place) == (NEWEST, place(2))
    world.tell(ev.DriverExited(NEWEST, place(2), KILLED))
    world.write_result()
    assert world.status() is JobStatus.CANCELED


def test_nothing_is_written_before_the_graph_can_be_read() -> None:
    world = JobWorld(stored_attempt=1)
    world.restart(without_graph=True)
    world.tell(ev.AttemptSeen(NEWEST))
    assert world.machine.state.refusal(NEWEST) == ""
    world.tell(ev.JobMasterRegistered(NEWEST, place(2).task_manager, 42))
    world.read_graph()
    adopted(world)
    assert world.phase() is Phase.RUNNING


def test_no_number_is_given_before_task_managers_had_time_to_tell_theirs() -> None:
    world = JobWorld(policy=replace(POLICY, listening=4.0))
    world.machine = JobMachine(JobState(graph=job_graph(), policy=world.policy, strategy=world.strategy))
    world.pending.clear()
    world.tell(ev.Begin(recovered=True))
    assert world.take(ev.RequestPlace) is None
    assert "task managers" in world.machine.state.waiting()
    world.wait(4.0)
    assert world.take(ev.RequestPlace) is not None


def test_two_drivers_of_one_attempt_both_end_and_the_next_number_follows() -> None:
    """Its task manager could not be heard when this leader gave the number."""
    world = JobWorld()
    driver = world.to_running(1)
    world.tell(ev.DriverListed(1, place(2), 43))
    assert world.take(ev.AttemptOver) == ev.AttemptOver(1)
    assert world.machine.state.refusal(1)
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    world.wait(60.0)
    world.grant(3)
    assert world.take(ev.RecordAttempt) == ev.RecordAttempt(2)
