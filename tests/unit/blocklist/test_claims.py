"""What the driver of one job may put on the list of all jobs."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import JobId
from emberkeep.blocklist.claims import Claimant, ClaimLimits, admitted, claim_prefix
from emberkeep.blocklist.model import (
    CAUSES_KEPT,
    PERMANENT,
    PLATFORM_CAUSE,
    BlockAction,
    Blocked,
    BlockedNode,
    BlockedTaskManager,
    Blocklist,
    EvacuatedDrivers,
    Report,
)
from emberkeep.blocklist.tracker import BlocklistTracker

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
NODES = tuple(f"n{number}" for number in range(10))
LIMITS = ClaimLimits(max_share=0.2, seconds=60.0)
NOW = 1_000_000


def claim(node_id: str = "n1", job_id: JobId = JOB, end_ms: int = NOW + 60_000) -> BlockedNode:
    cause = f"{claim_prefix(job_id)}its tasks fail here"
    return BlockedNode(id=node_id, action=BlockAction.MARK_BLOCKED, start_ms=NOW, end_ms=end_ms, causes=(cause,))


def admit(entry: Blocked, *listed: Blocked, job_id: JobId = JOB, hosts: tuple[str, ...] = NODES[:5]) -> Blocked | None:
    claimant = Claimant(job_id, frozenset(hosts), frozenset(NODES))
    taken = admitted(Report(entry=entry, known=0), claimant, LIMITS, Blocklist(entries=listed), NOW)
    return None if taken is None else taken.entry


@pytest.mark.req("BLK-7")
def test_what_an_honest_driver_reports_is_taken_as_it_is() -> None:
    assert admit(claim()) == claim()


@pytest.mark.parametrize(
    "entry",
    [
        msgspec.structs.replace(claim(), action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS),
        msgspec.structs.replace(claim(), drivers=EvacuatedDrivers.RESTART),
        msgspec.structs.replace(claim(), causes=("maintenance",)),
        msgspec.structs.replace(claim(), causes=(*claim().causes, "maintenance")),
        claim(job_id=OTHER),
        claim("n7"),  # the job has no slot there
        claim("unknown"),
        BlockedTaskManager(id="n1", action=BlockAction.MARK_BLOCKED, start_ms=NOW, causes=claim().causes),
    ],
)
def test_a_claim_never_evacuates_and_is_about_a_node_where_the_job_runs(entry: Blocked) -> None:
    assert admit(entry) is None


def test_a_claim_blocks_no_more_of_the_cluster_than_detection_may() -> None:
    by_operator = BlockedNode(id="gone", action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("repair",))
    assert admit(claim(), claim("n2")) is not None
    assert admit(claim(), claim("n2"), claim("n3")) is None
    assert admit(claim(), claim("n2"), by_operator) is None, "blocked nodes count while they are away"


@pytest.mark.parametrize(("start", "end"), [(-(2**63), PERMANENT), (PERMANENT, PERMANENT)])
def test_a_claim_ends_after_the_duration_of_a_detection(start: int, end: int) -> None:
    assert admit(msgspec.structs.replace(claim(), start_ms=start, end_ms=end)) == claim()


def test_a_job_adds_its_cause_once_so_it_cannot_prolong_the_entry() -> None:
    assert admit(claim(), claim()) is None
    assert admit(claim(job_id=OTHER), claim(), job_id=OTHER) is not None
    full = msgspec.structs.replace(claim(), causes=tuple(f"cause {number}" for number in range(CAUSES_KEPT)))
    assert admit(claim(), full) is None


@pytest.mark.req("BLK-20")
def test_a_claim_does_not_keep_a_node_blocked_after_the_platform_has_put_it_into_service_again() -> None:
    """The platform's entry has no end, and only its own cause lets it be removed."""
    outage = BlockedNode(id="n1", action=BlockAction.MARK_BLOCKED, start_ms=NOW, causes=(f"{PLATFORM_CAUSE}disk",))
    tracker = BlocklistTracker(Blocklist(entries=(outage,)))
    claimant = Claimant(JOB, frozenset(NODES), frozenset(NODES))
    taken = admitted(Report(entry=claim(), known=0), claimant, LIMITS, tracker.blocklist, NOW)
    if taken is not None:
        tracker.report(taken, NOW)
    tracker.withdraw(outage.place, NOW + 1)
    tracker.expire([entry for entry in tracker.blocklist.entries if entry.end_ms <= NOW + 60_000], NOW + 60_000)
    assert tracker.blocklist.entries == ()
    by_operator = msgspec.structs.replace(outage, causes=(*outage.causes, "fan is loud"))
    assert admit(claim(), by_operator) is not None
