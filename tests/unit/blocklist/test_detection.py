"""Which failures speak against a node, case by case; histories are in tests/simulation/test_detection.py."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from emberkeep.base.ids import JobId
from emberkeep.blocklist.detection import FAILURES_KEPT, JOBS_KEPT, DetectionLimits, FaultDetector
from emberkeep.blocklist.model import CAUSE_LENGTH, parse_cause
from emberkeep.blocklist.symptoms import Symptom, symptom_of

pytestmark = pytest.mark.req("BLK-19")

LIMITS = DetectionLimits(witnesses=2, max_share=0.25, window=600.0, proof=30.0, respect=3600.0)
NODES = tuple(f"node-{number}" for number in range(8))


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


class Rig:
    """A detector, and the shortest way to evidence."""

    def __init__(self, **limits: float) -> None:
        self.detector = FaultDetector(replace(LIMITS, **limits))  # type: ignore[arg-type]
        self.now = 0.0

    def fails(self, number: int, *nodes: str, symptom: Symptom = Symptom.IO_ERROR) -> None:
        for node in nodes:
            self.detector.failed(job(number), node, symptom, self.now)

    def works(self, number: int, *nodes: str, seconds: float = 30.0) -> None:
        """Its executors run there, and nowhere else, for so long."""
        self.detector.runs(job(number), nodes, self.now)
        self.now += seconds
        self.detector.runs(job(number), nodes, self.now)

    def blocks(self, nodes: Collection[str] = NODES, blocked: Collection[str] = ()) -> list[str]:
        return [suspicion.node_id for suspicion in self.detector.decide(nodes, frozenset(blocked), self.now)]


def two_witnesses(rig: Rig, node: str = "node-1", symptom: Symptom = Symptom.IO_ERROR) -> None:
    for number in (1, 2):
        rig.fails(number, node, symptom=symptom)
    for number in (1, 2):
        rig.works(number, "node-2")


def test_a_node_where_several_jobs_fail_that_work_elsewhere_is_blocked_and_it_is_said_why() -> None:
    rig = Rig()
    two_witnesses(rig)
    (suspicion,) = rig.detector.decide(NODES, frozenset(), rig.now)
    assert suspicion.node_id == "node-1"
    assert suspicion.cause == (
        "detected: input/output error: processes of 2 jobs (00000000, 00000000) failed here 2 times within 600 s, "
        "and work on other nodes"
    )
    assert parse_cause(suspicion.cause) == suspicion.cause


def test_one_job_is_no_witness_however_often_it_fails() -> None:
    rig = Rig()
    for _ in range(3 * FAILURES_KEPT):
        rig.fails(1, "node-1")
    rig.works(1, "node-2")
    assert not rig.blocks()


def test_jobs_that_work_nowhere_speak_against_no_node() -> None:
    rig = Rig()
    for number in range(20):
        rig.fails(number, "node-1")
    rig.now += 60.0
    assert not rig.blocks()


def test_jobs_that_fail_everywhere_speak_against_no_node() -> None:
    rig = Rig()
    for number in range(20):
        rig.fails(number, "node-1", "node-2", "node-3")
        rig.works(number, "node-4")
    assert not rig.blocks(), "it works on one node, and fails on three"


def test_where_a_job_has_failed_it_does_not_work_however_long_another_executor_of_it_runs_there() -> None:
    rig = Rig()
    for number in (1, 2):
        rig.fails(number, "node-1", "node-2")
        rig.works(number, "node-2", seconds=300.0)
    assert not rig.blocks()


def test_it_takes_a_while_until_a_job_works_unless_it_succeeds() -> None:
    rig = Rig()
    for number in (1, 2):
        rig.fails(number, "node-1")
        rig.works(number, "node-2", seconds=29.0)
    assert not rig.blocks()
    rig.detector.succeeded(job(1))
    assert not rig.blocks()
    rig.detector.succeeded(job(2))
    assert rig.blocks() == ["node-1"]


def test_what_is_old_does_not_count() -> None:
    rig = Rig()
    rig.fails(1, "node-1")
    rig.works(1, "node-2", seconds=601.0)
    rig.fails(2, "node-1")
    rig.works(2, "node-2")
    assert not rig.blocks()


def test_never_more_than_the_share_of_all_nodes() -> None:
    rig = Rig()
    for node in ("node-1", "node-3", "node-5"):
        two_witnesses(rig, node, Symptom.IO_ERROR)
        rig.detector.runs(job(1), ("node-2", "node-4", "node-6"), rig.now)
        rig.detector.runs(job(2), ("node-2", "node-4", "node-6"), rig.now)
    rig.now += 30.0
    for number in (1, 2):
        rig.detector.runs(job(number), ("node-2", "node-4", "node-6"), rig.now)
    assert rig.blocks() == ["node-1", "node-3"], "2 of 8"
    assert rig.blocks(blocked=["node-7"]) == ["node-1"], "blocked by hand, it counts too"
    assert not rig.blocks(blocked=["node-7", "node-6"])
    assert not rig.blocks(nodes=NODES[:3]), "a quarter of three is none"
    taken_away = ("node-6", "node-7")
    left = [node for node in NODES if node not in taken_away]
    assert not rig.blocks(nodes=left, blocked=taken_away), "that makes no room for others"
    assert rig.blocks(nodes=[*left, "a", "b", "c", "d"], blocked=taken_away) == ["node-1"], "3 of 12"
    assert not rig.blocks(nodes=left, blocked=["gone", "too"]), "nor do such as were never there"


def test_the_node_with_the_most_witnesses_is_blocked_first() -> None:
    rig = Rig(max_share=0.125)
    two_witnesses(rig, "node-1")
    for number in (3, 4, 5):
        rig.fails(number, "node-3")
        rig.works(number, "node-2")
    assert rig.blocks() == ["node-3"], "1 of 8"


def test_what_was_before_a_block_or_an_unblock_is_forgotten() -> None:
    rig = Rig()
    two_witnesses(rig)
    assert not rig.blocks(blocked=["node-1"])
    assert not rig.blocks(), "it has timed out, and nothing has failed since"
    two_witnesses(rig)
    rig.detector.unblocked("node-1", rig.now)
    two_witnesses(rig)
    assert not rig.blocks(), "somebody wants it to be used"
    rig.now += 3600.0
    two_witnesses(rig)
    assert rig.blocks() == ["node-1"]


def test_whoever_blocks_a_node_does_not_want_it_to_be_used_any_more() -> None:
    rig = Rig()
    rig.detector.unblocked("node-1", rig.now)
    assert not rig.blocks(blocked=["node-1"])
    two_witnesses(rig)
    assert rig.blocks() == ["node-1"], "its block has timed out, and it is still bad"


def test_a_node_that_is_not_there_is_not_blocked() -> None:
    rig = Rig()
    two_witnesses(rig, "gone")
    assert not rig.blocks()


def test_what_is_kept_is_bounded_and_so_is_the_cause() -> None:
    rig = Rig()
    for number in range(JOBS_KEPT + 10):
        rig.fails(number, "node-1")
        rig.detector.runs(job(number), ("node-2",), rig.now)
    rig.now += 30.0
    for number in range(JOBS_KEPT + 10):
        rig.detector.runs(job(number), ("node-2",), rig.now)
    (suspicion,) = rig.detector.decide(NODES, frozenset(), rig.now)
    assert f"processes of {JOBS_KEPT} jobs" in suspicion.cause
    assert len(suspicion.cause) <= CAUSE_LENGTH


@pytest.mark.parametrize(
    ("text", "started", "expected"),
    [
        ("java.io.IOException: No space left on device", True, None),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", False, None),
        ("OSError: [Errno 122] Disk quota exceeded", True, None),
        ("OSError: [Errno 12] Cannot allocate memory", False, None),
        ("cannot write x: Input/output error", False, Symptom.IO_ERROR),
        ("[Errno 30] Read-only file system: 'x'", True, Symptom.READ_ONLY),
        ("There is insufficient memory for the Java Runtime Environment to continue.", True, None),
        ("its start took too long", False, Symptom.NOT_STARTED),
        ("ended with exit code 1: ValueError: space", True, None),
        ("was killed by signal 9", True, None),
    ],
)
def test_what_a_process_said_speaks_against_the_node_or_not(text: str, started: bool, expected: Symptom | None) -> None:
    assert symptom_of(text, started=started) is expected
