"""A restart of a driver that makes no progress: it counts as a lost driver, whose end is enforced."""

from __future__ import annotations

import pytest

from emberkeep.jobs import events as ev
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.jobs.restart import FixedDelay, NoRestart
from emberkeep.jobs.transitions import Phase
from tests.property.job_world import KILLED, SUCCESS, JobWorld

REASON = "restarted by the watchdog: no micro-batch was committed for 900 s"


def test_the_driver_is_ended_at_once_and_the_next_attempt_waits_for_its_end() -> None:
    world = JobWorld(strategy=FixedDelay(3, 5.0))
    driver = world.to_running()
    world.tell(ev.RestartDriver(1, REASON))
    assert (world.phase(), world.status()) == (Phase.ENDING, JobStatus.RESTARTING)
    assert world.take(ev.StopDriver) == ev.StopDriver(1, driver.place, 0.0)
    world.wait(5.0)
    assert world.take(ev.RequestPlace) is None
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    world.wait(5.0)
    world.to_running()
    first, _ = world.machine.state.history.attempts()
    assert first.outcome is not None
    assert (first.outcome.kind, first.outcome.message) == (FailureKind.LOST, REASON)


def test_its_job_master_is_refused_so_that_a_driver_out_of_reach_ends_itself() -> None:
    world = JobWorld()
    world.to_running()
    world.tell(ev.RestartDriver(1, REASON))
    assert "abandoned" in world.machine.state.refusal(1)


def test_the_restart_strategy_may_end_the_job_instead() -> None:
    world = JobWorld(strategy=NoRestart())
    driver = world.to_running()
    world.tell(ev.RestartDriver(1, REASON))
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    world.write_result()
    assert world.status() is JobStatus.FAILED
    assert world.stored_result is not None
    assert world.stored_result.root_cause == f"{REASON} (not restarted: restart-strategy.type is none)"


@pytest.mark.parametrize("attempt", [0, 2])
def test_another_attempt_is_not_restarted(attempt: int) -> None:
    world = JobWorld()
    world.to_running()
    assert world.tell(ev.RestartDriver(attempt, REASON)) == []
    assert world.phase() is Phase.RUNNING


def test_a_job_that_was_stopped_is_not_restarted() -> None:
    world = JobWorld()
    driver = world.to_running()
    world.stop()
    assert world.tell(ev.RestartDriver(1, REASON)) == []
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    world.write_result()
    assert world.status() is JobStatus.FINISHED
