"""The texts with which a job says why something has happened, what it waits for, and why it refuses a JobMaster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from emberkeep.jobs import events as ev
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.state import JobState
from tests.property.job_world import KILLED, POLICY, SUCCESS, JobWorld, TrueDriver, job_graph


def running() -> tuple[JobWorld, TrueDriver]:
    world = JobWorld()
    return world, world.to_running()


def starting() -> tuple[JobWorld, TrueDriver]:
    world = JobWorld()
    world.grant()
    world.write_attempt()
    return world, world.start()


def silent() -> JobWorld:
    world, _ = running()
    world.wait(POLICY.heartbeat_timeout)
    return world


def silent_with_its_task_manager() -> JobWorld:
    world, driver = running()
    world.tell(ev.TaskManagerLost(driver.place.instance))
    world.wait(POLICY.lease)
    return world


def never_registered() -> JobWorld:
    world, driver = starting()
    world.tell(ev.DriverListed(1, driver.place, 42))
    world.wait(POLICY.start_timeout)
    return world


def recovered_without_a_trace() -> JobWorld:
    world = JobWorld(stored_attempt=1)
    world.wait(POLICY.lease)
    return world


def vanished() -> JobWorld:
    world, driver = running()
    world.tell(ev.DriverVanished(1, driver.place.instance))
    return world


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (silent, "the driver has sent no heartbeat for too long; it was on task manager tm-1"),
        (
            silent_with_its_task_manager,
            "the driver has sent no heartbeat for too long; it was on task manager tm-1, which is lost",
        ),
        (never_registered, "the driver did not register in time; it was on task manager tm-1"),
        (recovered_without_a_trace, "the driver did not register in time and no task manager knows of it"),
        (vanished, "task manager tm-1 no longer lists the driver"),
    ],
)
def test_the_exception_of_a_lost_driver(lose: Callable[[], JobWorld], message: str) -> None:
    assert [entry.message for entry in lose().machine.state.history.exceptions()] == [message]


def without_graph() -> JobWorld:
    world = JobWorld(stored_attempt=1)
    world.restart(without_graph=True)
    return world


def listening() -> JobWorld:
    world = JobWorld(policy=replace(POLICY, listening=4.0))
    world.machine = JobMachine(JobState(graph=job_graph(), policy=world.policy, strategy=world.strategy))
    world.pending.clear()
    world.tell(ev.Begin(recovered=True))
    return world


def backing_off() -> JobWorld:
    world, driver = running()
    world.tell(ev.DriverExited(1, driver.place, KILLED))
    return world


def recording_an_attempt() -> JobWorld:
    world = JobWorld()
    world.grant()
    return world


def adopting() -> JobWorld:
    world, _ = running()
    world.tell(ev.AttemptSeen(5))
    return world


def succeeded() -> JobWorld:
    world, driver = running()
    world.tell(ev.DriverExited(1, driver.place, SUCCESS))
    return world


def stopped() -> JobWorld:
    world, _ = running()
    world.stop()
    return world


def cut_off() -> JobWorld:
    world, _ = running()
    world.hears_since = None
    world.wait(POLICY.heartbeat_timeout)
    return world


def cut_off_for_a_moment() -> JobWorld:
    world, _ = running()
    world.hears_since = None
    world.wait(POLICY.heartbeat_timeout - 0.5)
    return world


@pytest.mark.parametrize(
    ("world", "text"),
    [
        (JobWorld, ""),
        (without_graph, "its job graph: /graph cannot be read now"),
        (listening, "reports of task managers about its driver"),
        (backing_off, "the pause before its restart"),
        (recording_an_attempt, "the job store to record the next attempt"),
        (adopting, "the job store to record attempt 5: the store was restored from an older copy"),
        (succeeded, "the job store to record its result"),
        (stopped, "the end of its script: the job was stopped and is not restarted"),
        (
            cut_off,
            "contact with its driver: most task managers are silent, so this JobManager itself may be cut off",
        ),
        (cut_off_for_a_moment, ""),
        (lambda: starting()[0], "contact with the driver of attempt 1 on task manager tm-1"),
        (
            lambda: JobWorld(stored_attempt=3),
            "contact with the driver of attempt 3 on a task manager that is not known yet",
        ),
        (silent, "the end of the driver of attempt 1 on task manager tm-1"),
        (lambda: running()[0], ""),
    ],
)
def test_what_a_job_waits_for(world: Callable[[], JobWorld], text: str) -> None:
    assert world().machine.state.waiting() == text


def stopped_and_overdue(*, lost: bool) -> JobWorld:
    world, driver = running()
    world.stop()
    if lost:
        world.tell(ev.TaskManagerLost(driver.place.instance))
    while world.take(ev.StopDriver) is None and not world.machine.state.refusal(1):
        world.now += POLICY.heartbeat_timeout / 2
        world.tell(ev.JobMasterHeard(1))
        world.tell(ev.Tick())
        assert world.now < 10_000
    return world


def test_a_script_that_does_not_end_after_a_stop_must_end_itself_only_if_no_task_manager_can_end_it() -> None:
    assert stopped_and_overdue(lost=False).machine.state.refusal(1) == ""
    assert "cannot be reached to end the script" in stopped_and_overdue(lost=True).machine.state.refusal(1)


def test_a_job_that_was_stopped_refuses_no_driver_while_its_script_may_run() -> None:
    world, driver = running()
    world.stop()
    assert world.machine.state.refusal(1) == ""
    world.tell(ev.TaskManagerLost(driver.place.instance))
    assert world.machine.state.refusal(1) == ""
