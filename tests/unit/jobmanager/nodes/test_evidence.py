"""Which failures of processes the fault watch takes as evidence against a node."""

from __future__ import annotations

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.blocklist.model import Place, PlaceKind, Removal
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.nodes.fault_watch import FaultWatch
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.messages.job_master_reports import ExecutorView
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState
from tests.unit.jobmanager.fakes import status
from tests.unit.slots.test_slot_manager import info

pytestmark = pytest.mark.req("BLK-19")

SETTINGS = {
    "blocklist.detection.jobs": "2",
    "blocklist.detection.max-share": "0.5",
    "blocklist.detection.proof-time": "10s",
    "blocklist.detection.pause-after-unblock": "20min",
}
JOBS = JobId("1" * 32), JobId("2" * 32)
BAD, GOOD = info("tm-1", node_id="bad"), info("tm-2", node_id="good")
BROKEN = "OSError: [Errno 5] Input/output error"
NO_SPACE = "OSError: [Errno 28] No space left on device"


def runs_on_the_good_node() -> ExecutorView:
    return ExecutorView(
        executor_id=ExecutorId("1"),
        allocation_id=AllocationId("a" * 32),
        task_manager=GOOD.id,
        host="good",
        state=ProcessState.RUNNING,
        registered=True,
        cores=1,
        heap_mb=512,
    )


def watch(*removals: Removal, now: float = 0.0, now_ms: int = 0) -> FaultWatch:
    made = FaultWatch(Configuration().with_texts(SETTINGS, "test"), removals, now, now_ms)
    for task_manager in (BAD, GOOD):
        made.stands(task_manager)
    return made


def blocked(made: FaultWatch, now: float) -> list[str]:
    """The nodes that are blocked once both jobs have worked on the good node for long enough."""
    for moment in (now, now + 10.0):
        for job_id in JOBS:
            made.take(job_id, 2, status(executors=(runs_on_the_good_node(),)), moment)
    return [entry.id for entry in made.entries({"bad", "good"}, BlockedPlaces(()), now + 10.0, 0)]


def ended(outcome: AttemptOutcome | None, state: ProcessState = ProcessState.EXITED) -> list[DriverReport]:
    """The report of both jobs' drivers."""
    return [DriverReport(job_id=job_id, attempt=1, state=state, outcome=outcome) for job_id in JOBS]


@pytest.mark.parametrize(
    ("reports", "nodes"),
    [
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=BROKEN)), ["bad"]),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=BROKEN)), ["bad"]),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="x", traceback=BROKEN)), ["bad"]),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message="its start took too long")), ["bad"]),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="killed by SIGKILL")), []),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message=BROKEN)), []),
        (ended(AttemptOutcome(exit_code=0)), []),
        (ended(None), []),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=NO_SPACE)), []),
        (ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=BROKEN), ProcessState.RUNNING), []),
    ],
)
def test_only_a_driver_that_its_node_has_failed_speaks_against_that_node(
    reports: list[DriverReport], nodes: list[str]
) -> None:
    made = watch()
    made.drivers_ended(BAD, reports, 0.0)
    assert blocked(made, 0.0) == nodes


@pytest.mark.parametrize(
    ("place", "by_hand", "seconds_ago", "nodes"),
    [
        (Place(PlaceKind.NODE, "bad"), True, 60, []),
        (Place(PlaceKind.NODE, "bad"), True, 2 * 3600, ["bad"]),
        (Place(PlaceKind.NODE, "bad"), True, -60, []),
        (Place(PlaceKind.NODE, "bad"), False, 60, ["bad"]),
        (Place(PlaceKind.TASK_MANAGER, "bad"), True, 60, ["bad"]),
        (Place(PlaceKind.NODE, "good"), True, 60, ["bad"]),
    ],
)
def test_a_node_that_an_operator_has_unblocked_is_respected_for_the_rest_of_its_pause(
    place: Place, by_hand: bool, seconds_ago: int, nodes: list[str]
) -> None:
    now_ms = 10_000_000
    removal = Removal(place=place, revision=1, at_ms=now_ms - 1000 * seconds_ago, by_hand=by_hand)
    made = watch(removal, now=5000.0, now_ms=now_ms)
    made.drivers_ended(BAD, ended(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=BROKEN)), 5000.0)
    assert blocked(made, 5000.0) == nodes
