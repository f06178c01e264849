"""What a job does not take back once it is decided, and what is only repeated."""

from __future__ import annotations

import pytest

from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.jobs.restart import FixedDelay, NoRestart, RestartStrategy
from emberkeep.jobs.transitions import Phase
from tests.property.job_world import KILLED, MOVED, POLICY, SUCCESS, JobWorld, TrueDriver, place


def silenced(strategy: RestartStrategy) -> tuple[JobWorld, TrueDriver]:
    """A job whose driver has sent no heartbeat for too long and is being ended."""
    world = JobWorld(strategy=strategy)
    driver = world.to_running()
    world.wait(POLICY.heartbeat_timeout)
    assert world.phase() is Phase.ENDING
    return world, driver


@pytest.mark.parametrize("outcome", [MOVED, KILLED])
def test_a_job_that_has_failed_stays_failed_however_its_driver_ends(outcome: AttemptOutcome) -> None:
    world, driver = silenced(NoRestart())
    assert world.status() is JobStatus.FAILING
    world.tell(ev.CancelRequested(grace=0.0))
    world.tell(ev.DriverExited(1, driver.place, outcome))
    world.write_result()
    assert world.status() is JobStatus.FAILED


def test_a_driver_that_moves_after_it_was_given_up_does_not_shorten_the_pause_before_the_restart() -> None:
    world, driver = silenced(FixedDelay(3, 5.0))
    world.tell(ev.DriverExited(1, driver.place, MOVED))
    world.wait(4.9)
    assert world.take(ev.RequestPlace) is None
    world.wait(0.1)
    assert world.take(ev.RequestPlace) is not None


def test_a_second_cancellation_can_only_shorten_the_grace_period() -> None:
    world = JobWorld()
    driver = world.to_running()
    world.tell(ev.CancelRequested())
    assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, POLICY.grace)
    for grace in (None, POLICY.grace * 2):
        world.tell(ev.CancelRequested(grace))
        assert world.take(ev.StopDriver) is None
    world.tell(ev.CancelRequested(2.0))
    assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 2.0)


def test_a_cancellation_does_not_hurry_the_driver_of_a_job_that_ends_otherwise() -> None:
    world, driver = silenced(NoRestart())
    assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 0.0)
    world.tell(ev.CancelRequested(grace=0.0))
    assert world.take(ev.StopDriver) is None


def test_another_attempt_follows_only_until_the_script_of_one_that_moves_has_ended() -> None:
    world = JobWorld()
    driver = world.to_running()
    follows = [world.machine.state.returns]
    for event in (ev.MoveDriver(1), ev.OutcomeReported(1, SUCCESS)):
        world.tell(event)
        follows.append(world.machine.state.returns)
    assert follows == [False, True, False]
    assert world.status() is JobStatus.RESTARTING
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    world.write_result()
    assert world.status() is JobStatus.FINISHED


def test_no_attempt_follows_one_that_moves_once_the_job_is_stopped() -> None:
    world = JobWorld()
    world.to_running()
    world.tell(ev.MoveDriver(1))
    world.tell(ev.StopRecorded())
    assert not world.machine.state.returns


@pytest.mark.parametrize("number", [0, 1])
def test_an_attempt_that_the_leader_knows_is_no_news(number: int) -> None:
    world = JobWorld()
    world.to_running()
    assert world.tell(ev.AttemptSeen(number)) == []
    assert (world.phase(), world.status()) == (Phase.RUNNING, JobStatus.RUNNING)


def test_an_older_attempt_is_no_news_while_the_next_one_is_recorded() -> None:
    world = JobWorld(strategy=FixedDelay(3, 0.0))
    driver = world.to_running()
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    world.wait(0.0)
    world.grant()
    assert world.phase() is Phase.RECORDING_ATTEMPT
    assert world.tell(ev.AttemptSeen(1)) == []
    world.write_attempt()
    assert world.take(ev.StartDriver) == ev.StartDriver(2, place(1))


def test_a_newer_attempt_ends_the_one_whose_driver_was_alive() -> None:
    world = JobWorld()
    world.to_running()
    assert ev.AttemptOver(1) in world.tell(ev.AttemptSeen(5))
    first = world.machine.state.history.attempts()[0]
    assert first.outcome is not None
    assert first.outcome.message == "attempt 5 has followed"


def test_a_newer_attempt_does_not_change_how_an_earlier_one_has_ended() -> None:
    world = JobWorld()
    driver = world.to_running()
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    assert ev.AttemptOver(1) not in world.tell(ev.AttemptSeen(5))
    assert world.machine.state.history.attempts()[0].outcome == KILLED


def test_a_task_manager_that_is_lost_after_its_driver_has_ended_changes_nothing() -> None:
    world = JobWorld()
    driver = world.to_running()
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    assert world.tell(ev.TaskManagerLost(driver.place.instance)) == []
    world.write_result()
    assert world.status() is JobStatus.FINISHED


def test_a_job_stands_where_its_newest_place_is_until_its_driver_is_gone() -> None:
    def stands(world: JobWorld) -> tuple[object, object]:
        home = world.machine.state.driver_home()
        return world.machine.state.stands_on(), home.instance if home is not None else None

    world = JobWorld()
    assert stands(world) == (None, None)
    world.grant(2)
    assert stands(world) == (place(2).instance, place(2).instance)
    world.write_attempt()
    assert stands(world) == (place(2).instance, place(2).instance)
    world.tell(ev.StartRefused(1, "no room"))
    assert world.machine.state.driver_home() is None
    world.wait(5.0)
    world.grant(3)
    assert stands(world) == (place(3).instance, place(3).instance)
