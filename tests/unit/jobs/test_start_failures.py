"""A driver that cannot be started says why, is tried elsewhere, and is not started for ever."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.ids import JobId
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.restart import FixedDelay
from emberkeep.jobs.start_failures import StartFailures
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.model import ResourceProfile
from emberkeep.taskmanager.ports import DriverKey
from tests.property.job_world import KILLED, POLICY, JobWorld, place
from tests.unit.slots.test_slot_manager import Rig

pytestmark = pytest.mark.req("SAFE-22")

MOST = 3
NO_JAVA = AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message="no Java runtime found", lasting=True)
BROKEN = AttemptOutcome(
    exit_code=1,
    kind=FailureKind.LOST,
    message="the driver process ended with exit code 1 without a result",
    traceback="Traceback (most recent call last):\nImportError: no module named 'structlog'",
    lasting=True,
)
NO_STORE = AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message="the HA store does not answer")


def world() -> JobWorld:
    return JobWorld(
        strategy=FixedDelay(1000, 1.0), policy=dataclasses.replace(POLICY, start_attempts=MOST, place_timeout=0)
    )


def attempt(job: JobWorld, outcome: AttemptOutcome, node: int = 1, *, only: bool = False) -> None:
    """One attempt that ends before its JobMaster has registered."""
    assert job.take(ev.RequestPlace) is not None
    job.tell(ev.PlaceGranted(place(node), only_node=only))
    job.write_attempt()
    driver = job.start()
    driver.alive = False
    job.tell(ev.DriverExited(driver.attempt, place(node), outcome))
    if job.status() is JobStatus.RESTARTING:
        job.wait(1.0)


@pytest.mark.parametrize("outcome", [NO_JAVA, BROKEN])
def test_the_only_node_cannot_start_it(outcome: AttemptOutcome) -> None:
    job = world()
    for number in range(MOST):
        assert job.status() is not JobStatus.FAILING
        attempt(job, outcome, only=number > 0)
    job.write_result()
    assert job.status() is JobStatus.FAILED
    assert job.stored_result is not None
    assert job.stored_result.root_cause.startswith(outcome.message)
    assert "3 starts in a row failed for this reason, on the only node with room for it" in job.stored_result.root_cause


def test_two_nodes_cannot_start_it() -> None:
    job = world()
    for node in (1, 2, 1):
        attempt(job, NO_JAVA, node)
    assert job.status() is JobStatus.FAILING


def test_a_reason_that_may_lie_on_one_node_fails_no_job() -> None:
    job = world()
    for _ in range(5 * MOST):
        attempt(job, NO_JAVA)
        assert job.machine.state.starts.nodes == {"tm-1"}
    job.to_running(2)
    assert job.status() is JobStatus.RUNNING


@pytest.mark.parametrize("between", [KILLED, NO_STORE])
def test_what_may_pass_is_no_reason_to_give_up(between: AttemptOutcome) -> None:
    job = world()
    for _ in range(MOST):
        attempt(job, NO_JAVA, only=True)
        attempt(job, between, only=True)
    for _ in range(3 * MOST):
        attempt(job, between, only=True)
    assert job.status() is JobStatus.RESTARTING


def test_a_driver_that_came_up_begins_anew() -> None:
    job = world()
    for _ in range(MOST - 1):
        attempt(job, NO_JAVA, only=True)
    driver = job.to_running()
    driver.alive = False
    job.tell(ev.DriverExited(driver.attempt, driver.place, BROKEN))
    assert job.status() is JobStatus.RESTARTING
    assert not job.machine.state.starts.nodes


def test_reasons_are_told_apart_but_not_by_their_numbers() -> None:
    starts = StartFailures(2)
    assert not starts.failed("port 4041 is taken", "a", only_node=True)
    assert not starts.failed("no Java", "a", only_node=True)
    assert starts.failed("no Java", "a", only_node=True)
    verdict = starts.failed("no Java", "b", only_node=False)
    assert verdict.startswith("3 starts in a row failed for this reason, on 2 nodes")
    starts.ended_otherwise()
    assert not starts.failed("attempt 1: no", "a", only_node=True)
    assert starts.failed("attempt 2: no", "a", only_node=True)
    unlimited = StartFailures(0)
    assert not any(unlimited.failed("no Java", "a", only_node=True) for _ in range(1000))


def test_the_next_driver_is_placed_elsewhere() -> None:
    rig = Rig()
    rig.add("large", total=ResourceProfile(cores=4, memory_mb=16384))
    rig.add("small")
    job = rig.job()
    rig.state("large", size=1000)
    assert granted(rig, job) == ("large", False)
    assert granted(rig, job, "large") == ("small", False)
    assert granted(rig, job, "large", "small") == ("large", False)
    needs_much = 10_000  # MiB: no other node could take it
    assert granted(rig, job, "large", memory_mb=needs_much) == ("large", True)
    rig.add("huge", total=ResourceProfile(cores=4, memory_mb=16384), driver_places=1)
    taken = rig.job()
    assert granted(rig, taken, "large", memory_mb=needs_much) == ("huge", False)
    assert granted(rig, job, "large", memory_mb=needs_much) == ("large", False), "another one could, later"


def granted(rig: Rig, job: JobId, *shunned: str, memory_mb: int = 1024) -> tuple[str, bool]:
    rig.slots.jobs.request_place(job, DriverNeed(memory_mb, "", frozenset(shunned)), 2, 0.0)
    (found,) = rig.slots.match(0.0, lambda: next(rig.ids)).places
    return found.info.id, found.only_node


def test_an_end_without_a_result_names_what_was_written_last_and_where(tmp_path: Path) -> None:
    places = ProcessPlaces(WorkingDirectory(tmp_path))
    key = DriverKey(job_id=JobId("a" * 32), attempt=2)
    log = places.stderr(key)
    log.parent.mkdir(parents=True)
    log.write_text("Traceback (most recent call last):\n  …\nImportError: planted\n")
    outcome = places.outcome(key, 1)
    assert outcome.message.endswith(f"with exit code 1 without a result: ImportError: planted (see {log})")
    assert outcome.lasting
    assert outcome.traceback.startswith("The end of its output:\nTraceback (most recent call last):\n")
    killed = places.outcome(key, -9)
    assert "planted" not in killed.message
    assert not killed.lasting
