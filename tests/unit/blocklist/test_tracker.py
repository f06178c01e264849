"""The list as its owner changes it, and what outsiders may put into it."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist import tracker as tracking
from emberkeep.blocklist.ends import Ends
from emberkeep.blocklist.follower import REPORTS_KEPT, BlocklistFollower
from emberkeep.blocklist.model import (
    PERMANENT,
    BlockAction,
    BlockedNode,
    BlockedTaskManager,
    Blocklist,
    Report,
    check_entry,
    parse_cause,
    parse_end,
    parse_node_id,
)
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import BlocklistTracker

MARK, EVACUATE = BlockAction.MARK_BLOCKED, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS


def node(name: str, action: BlockAction = MARK, end_ms: int = PERMANENT, cause: str = "disk") -> BlockedNode:
    return BlockedNode(id=name, action=action, start_ms=1, end_ms=end_ms, causes=(cause,))


def task_manager(name: str, action: BlockAction = MARK) -> BlockedTaskManager:
    return BlockedTaskManager(id=name, action=action, start_ms=1, causes=("slow",))


@pytest.mark.req("BLK-3")
def test_a_task_manager_is_blocked_by_its_own_entry_or_its_nodes() -> None:
    places = BlockedPlaces([node("n1"), task_manager("tm-2", EVACUATE), node("n3", EVACUATE)])

    def state(name: str, where: str) -> tuple[bool, bool]:
        return places.is_blocked(TaskManagerId(name), where), places.is_evacuated(TaskManagerId(name), where)

    assert state("tm-1", "n1") == (True, False)
    assert state("tm-2", "n2") == (True, True)
    assert state("tm-2", "n1") == (True, True), "the stronger of both counts"
    assert state("tm-3", "n3") == (True, True)
    assert state("n1", "tm-2") == (False, False), "a node's id is no task manager's"
    assert state("tm-4", "n4") == (False, False)


@pytest.mark.req("BLK-5")
def test_added_merged_and_refused() -> None:
    tracker = BlocklistTracker(Blocklist())
    assert tracker.put(node("n1"), merge=False) == (node("n1"), False)
    assert tracker.put(task_manager("n1"), merge=False) == (task_manager("n1"), False)
    before = tracker.blocklist
    with pytest.raises(Conflict, match="node n1 is blocked already: disk"):
        tracker.put(node("n1", EVACUATE), merge=False)
    assert tracker.blocklist == before
    merged, was_merged = tracker.put(node("n1", EVACUATE, cause="fan"), merge=True)
    assert was_merged
    assert (merged.action, merged.cause) == (EVACUATE, "disk; fan")
    assert tracker.blocked_nodes() == (merged,)
    unchanged = tracker.blocklist
    tracker.put(node("n1", cause="fan"), merge=True)
    assert tracker.blocklist == unchanged, "what adds nothing is no change"


@pytest.mark.req("BLK-4")
def test_entries_end_at_their_end() -> None:
    tracker = BlocklistTracker(Blocklist())
    for entry in (node("n1", end_ms=20), node("n2", end_ms=10), node("n3")):
        tracker.put(entry, merge=False)
    ends = Ends()

    def ended(now_ms: int) -> list[str]:
        over = ends.over(tracker.blocklist.entries, now_ms, now_ms / 1000)
        tracker.expire(over, now_ms)
        return [entry.id for entry in over]

    assert [ended(now_ms) for now_ms in (9, 10, 25, 10**15)] == [[], ["n2"], ["n1"], []]
    assert [entry.id for entry in tracker.blocked_nodes()] == ["n3"]


def test_what_is_not_there_cannot_be_removed() -> None:
    tracker = BlocklistTracker(Blocklist())
    tracker.put(node("n1"), merge=False)
    with pytest.raises(Absent, match="task manager n1 is not blocked"):
        tracker.remove(task_manager("n1").place, 1)
    assert tracker.remove(node("n1").place, 1) == node("n1")
    with pytest.raises(Absent):
        tracker.remove(node("n1").place, 2)


@pytest.mark.req("BLK-17")
def test_the_next_owner_knows_who_was_unblocked_by_hand_and_when() -> None:
    tracker = BlocklistTracker(Blocklist())
    for entry in (node("n1"), node("n2", end_ms=10)):
        tracker.put(entry, merge=False)
    tracker.remove(node("n1").place, 7)
    tracker.expire([entry for entry in tracker.blocklist.entries if entry.id == "n2"], 11)
    tracker = BlocklistTracker(tracker.blocklist)
    removals = {removal.place.id: (removal.by_hand, removal.at_ms) for removal in tracker.blocklist.removals}
    assert removals == {"n1": (True, 7), "n2": (False, 11)}
    tracker.put(node("n1", end_ms=20), merge=False)
    tracker.expire(tracker.blocklist.entries, 20)
    (_, removal) = tracker.blocklist.removals
    assert (removal.place.id, removal.by_hand) == ("n1", False), "the newest one counts"


@pytest.mark.req("BLK-17")
def test_a_list_from_before_reasons_were_noted_is_read() -> None:
    old = b'{"revision":2,"entries":[],"removals":[{"place":{"kind":"node","id":"n1"},"revision":2}],"floor":0}'
    (removal,) = msgspec.json.decode(old, type=Blocklist).removals
    assert (removal.place, removal.by_hand, removal.at_ms) == (node("n1").place, False, 0)


def test_a_report_that_is_over_is_answered_by_a_removal() -> None:
    tracker, follower = BlocklistTracker(Blocklist()), BlocklistFollower()
    follower.report(node("n1", end_ms=10))
    assert tracker.report(follower.reports[0], now_ms=10)
    assert tracker.blocklist.entries == ()
    assert follower.take(1, tracker.blocklist)
    assert follower.reports == ()
    assert not follower.places.is_blocked(TaskManagerId("x"), "n1")


@pytest.mark.req("BLK-4")
@pytest.mark.parametrize("jump_ms", [10**12, -(10**12)])
def test_a_clock_that_jumps_neither_ends_an_entry_nor_makes_it_longer(jump_ms: int) -> None:
    ends, first, second = Ends(), node("n1", end_ms=5_000), node("n2", end_ms=jump_ms + 9_000)
    assert ends.over([first], 1_000, 0.0) == []
    assert ends.over([first, second], jump_ms + 2_000, 1.0) == []
    assert ends.over([first, second], jump_ms + 4_999, 3.999) == []
    assert ends.over([first, second], jump_ms + 5_000, 4.0) == [first]
    assert ends.over([second], jump_ms + 9_000, 8.0) == [second]
    later = node("n2", end_ms=jump_ms + 20_000)
    assert ends.over([later], jump_ms + 9_000, 8.0) == [], "it was made longer"


@pytest.mark.req("BLK-4")
def test_a_follower_lets_entries_lapse_by_itself() -> None:
    tracker, follower = BlocklistTracker(Blocklist()), BlocklistFollower()
    tracker.put(node("n1", end_ms=100), merge=False)
    tracker.put(node("n2"), merge=False)
    follower.take(1, tracker.blocklist)
    follower.report(node("n3", end_ms=200))

    def blocked() -> list[str]:
        return [name for name in ("n1", "n2", "n3") if follower.places.is_blocked(TaskManagerId("x"), name)]

    assert not follower.lapse(0, 0.0)
    assert not follower.lapse(99, 0.099)
    assert blocked() == ["n1", "n2", "n3"]
    assert follower.lapse(100, 0.1), "no leader has removed it"
    assert blocked() == ["n2", "n3"]
    assert not follower.lapse(150, 0.15)
    assert follower.lapse(200, 0.2)
    assert blocked() == ["n2"]
    assert not follower.lapse(50, 0.25), "the host's clock was set back"
    assert blocked() == ["n2"]


def test_the_list_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "LIST_BYTES", 400)
    tracker = BlocklistTracker(Blocklist())
    added = 0
    with pytest.raises(RetryLater, match="full"):  # noqa: PT012 - some of them fit
        for number in range(100):
            tracker.put(node(f"n{number}"), merge=False)
            added += 1
    assert 1 < added < 10
    before = tracker.blocklist
    assert len(before.entries) == added
    with pytest.raises(RetryLater):
        tracker.report(Report(entry=node("other"), known=0), now_ms=1)
    assert tracker.blocklist == before
    tracker.remove(before.entries[0].place, 1)
    assert len(tracker.blocklist.entries) == added - 1


def test_a_job_master_does_not_report_without_bound() -> None:
    follower = BlocklistFollower()
    for number in range(REPORTS_KEPT):
        assert follower.report(node(f"n{number}"))
    with pytest.raises(RetryLater):
        follower.report(node("other"))
    assert not follower.report(node("n0")), "it has said so"
    assert follower.report(node("n0", EVACUATE))
    assert len(follower.reports) == REPORTS_KEPT


@pytest.mark.parametrize("text", ["", " ", " a", "a ", "a\nb", "a\x00", "x" * 254])
def test_what_is_no_node_id(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_node_id(text)
    assert refused.value.field == "nodeid"


def test_entries_of_other_processes_are_checked() -> None:
    for entry in (node("n1"), task_manager("tm-1")):
        check_entry(entry)
    for entry in (node(" n1"), task_manager("a b"), node("n1", cause=""), node("n1", cause="x" * 501)):
        with pytest.raises(InvalidInput):
            check_entry(entry)
    with pytest.raises(InvalidInput):
        check_entry(BlockedNode(id="n1", action=MARK, start_ms=1, causes=()))


def test_what_outsiders_say_is_checked() -> None:
    assert parse_node_id("rack 7/ä") == "rack 7/ä"
    assert parse_cause("  disk \n is  full ") == "disk is full"
    assert (parse_end(None, 5), parse_end(6, 5), parse_end(PERMANENT, 5)) == (PERMANENT, 6, PERMANENT)
    for end in (5, 4, -1, PERMANENT + 1):
        with pytest.raises(InvalidInput):
            parse_end(end, 5)
