"""The owner's list and the JobMasters' copies of it under any order, loss and repetition of messages."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.errors import EmberkeepError
from emberkeep.blocklist import tracker as tracking
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.merge import covers, merged
from emberkeep.blocklist.model import (
    CAUSES_KEPT,
    PERMANENT,
    BlockAction,
    Blocked,
    BlockedNode,
    BlockedTaskManager,
    Blocklist,
    EvacuatedDrivers,
    Place,
    Report,
)
from emberkeep.blocklist.tracker import BlocklistTracker
from tests.campaign import examples

FEW_REMOVALS = 2  # remembered, so that some are forgotten
LONGEST = 60


@pytest.fixture(autouse=True)
def few_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "REMOVALS_KEPT", FEW_REMOVALS)


def entries(now_ms: int = 0, *, ids: tuple[str, ...] = ("a", "b")) -> st.SearchStrategy[Blocked]:
    return st.builds(
        lambda kind, name, action, start, length, causes, drivers: kind(
            id=name,
            action=action,
            start_ms=now_ms + start,
            end_ms=now_ms + length,
            causes=tuple(causes),
            drivers=drivers,
        ),
        st.sampled_from([BlockedNode, BlockedTaskManager]),
        st.sampled_from(ids),
        st.sampled_from(list(BlockAction)),
        st.integers(0, 5),
        st.one_of(st.integers(1, LONGEST), st.just(PERMANENT - now_ms)),
        st.lists(st.sampled_from(["disk", "slow", "tests"]), min_size=1, max_size=3, unique=True),
        st.sampled_from(list(EvacuatedDrivers)),
    )


def same_but_for_order(one: Blocked, other: Blocked) -> bool:
    plain = [
        (entry.place, entry.action, entry.start_ms, entry.end_ms, set(entry.causes), entry.drivers)
        for entry in (one, other)
    ]
    return plain[0] == plain[1]


@pytest.mark.req("BLK-13")
@given(entries(ids=("a",)), entries(ids=("a",)), entries(ids=("a",)))
def test_merging_is_idempotent_associative_and_commutative_but_for_the_order_of_causes(
    one: Blocked, two: Blocked, three: Blocked
) -> None:
    assert merged(one, one) == one
    if not one.place == two.place == three.place:
        return
    both = merged(one, two)
    assert merged(both, two) == both
    assert merged(both, one) == both
    assert covers(both, one)
    assert covers(both, two)
    assert same_but_for_order(both, merged(two, one))
    assert merged(both, three) == merged(one, merged(two, three))
    assert both.start_ms == min(one.start_ms, two.start_ms)
    assert both.end_ms == max(one.end_ms, two.end_ms)
    assert both.causes == tuple(dict.fromkeys((*one.causes, *two.causes)))[:CAUSES_KEPT]


@dataclass
class JobMaster:
    follower: BlocklistFollower = field(default_factory=BlocklistFollower)
    told: list[tuple[int, Blocklist]] = field(default_factory=list)  # lists under way to it, with their epochs
    said: list[tuple[int, tuple[Report, ...]]] = field(default_factory=list)  # its words under way


class Messages(RuleBasedStateMachine):
    """One owner, who may be succeeded by another over the same durable list, and JobMasters. Messages are never taken
    from the bag, so each may arrive late, again, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.epoch = 1
        self.owner = BlocklistTracker(Blocklist())
        self.masters = [JobMaster() for _ in range(3)]
        self.removed: dict[Place, int] = {}  # newest removal of each place, by revision

    # --- what the owner does ------------------------------------------------------------------------------------------

    @rule(data=st.data(), merge=st.booleans())
    def block(self, data: st.DataObject, merge: bool) -> None:
        entry = data.draw(entries(self.now))
        before = self.owner.blocklist
        known = {known.place: known for known in before.entries}.get(entry.place)
        try:
            made, was_merged = self.owner.put(entry, merge=merge)
        except EmberkeepError:
            assert known is not None
            assert not merge
            assert self.owner.blocklist == before, "what is refused changes nothing"
        else:
            assert was_merged == (known is not None)
            assert made == (entry if known is None else merged(known, entry))

    @precondition(lambda self: self.owner.blocklist.entries)
    @rule(data=st.data())
    def unblock(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.owner.blocklist.entries)).place
        self.owner.remove(place, self.now)
        self.removed[place] = self.owner.blocklist.revision

    @rule(seconds=st.integers(1, LONGEST))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        over = [entry for entry in self.owner.blocklist.entries if entry.end_ms <= self.now]
        for entry in over:
            self.owner.expire([entry], self.now)
            self.removed[entry.place] = self.owner.blocklist.revision
        assert all(entry.end_ms > self.now for entry in self.owner.blocklist.entries)

    @rule()
    def another_leads(self) -> None:
        self.epoch += 1
        self.owner = BlocklistTracker(self.owner.blocklist)

    # --- messages -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), master=st.integers(0, 2))
    def job_master_reports(self, data: st.DataObject, master: int) -> None:
        entry = data.draw(entries(self.now))
        news = self.masters[master].follower.report(entry)
        places = self.masters[master].follower.places
        assert places.is_blocked(entry.id, entry.id), "it acts by its own report at once"  # type: ignore[arg-type]
        assert not news or any(covers(report.entry, entry) for report in self.masters[master].follower.reports)

    @rule(master=st.integers(0, 2))
    def job_master_speaks(self, master: int) -> None:
        follower = self.masters[master].follower
        self.masters[master].said.append((follower.revision, follower.reports))

    @precondition(lambda self: any(master.said for master in self.masters))
    @rule(data=st.data())
    def owner_hears(self, data: st.DataObject) -> None:
        master = data.draw(st.sampled_from([master for master in self.masters if master.said]))
        self._hear(master, data.draw(st.sampled_from(master.said)))

    def _hear(self, master: JobMaster, said: tuple[int, tuple[Report, ...]]) -> None:
        revision, reports = said
        for report in reports:
            before = {entry.place for entry in self.owner.blocklist.entries}
            place = report.entry.place
            self.owner.report(report, self.now)
            after = {entry.place for entry in self.owner.blocklist.entries}
            if place in after - before:
                assert report.known >= self.removed.get(place, 0), "a removed entry does not come back by an old word"
                assert report.entry.end_ms > self.now
        if self.owner.blocklist.revision != revision:
            master.told.append((self.epoch, self.owner.blocklist))

    @precondition(lambda self: any(master.told for master in self.masters))
    @rule(data=st.data())
    def job_master_hears(self, data: st.DataObject) -> None:
        master = data.draw(st.sampled_from([master for master in self.masters if master.told]))
        epoch, blocklist = data.draw(st.sampled_from(master.told))
        before = master.follower.revision
        master.follower.take(epoch, blocklist)
        assert master.follower.revision >= before, "an old list changes nothing"

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def lists_are_small_and_consistent(self) -> None:
        blocklist = self.owner.blocklist
        places = [entry.place for entry in blocklist.entries]
        assert len(set(places)) == len(places)
        assert len(blocklist.removals) <= FEW_REMOVALS
        assert blocklist.floor <= min((removal.revision for removal in blocklist.removals), default=blocklist.revision)

    def teardown(self) -> None:
        """When messages come through, all know the same after two rounds, whatever was lost before."""
        for _ in range(3):
            for master in self.masters:
                self._hear(master, (master.follower.revision, master.follower.reports))
                if master.told:
                    master.follower.take(*master.told[-1])
        for master in self.masters:
            assert master.follower.revision == self.owner.blocklist.revision
            assert master.follower.reports == ()
            for entry in self.owner.blocklist.entries:
                assert master.follower.places.is_blocked(entry.id, entry.id)  # type: ignore[arg-type]


TestMessages = Messages.TestCase
TestMessages.settings = settings(max_examples=examples(38), stateful_step_count=40, deadline=None)
TestMessages = pytest.mark.req("BLK-7")(TestMessages)
