"""The BLOB server's references and clean-up under any order of events: what must never happen."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.server_machine import SUBMISSION
from tests.campaign import examples
from tests.property.blobs.blob_world import KEYS, OWNERS, SIZE, BlobWorld, Place, content

owners, keys = st.sampled_from(OWNERS), st.sampled_from(KEYS)
permanents = st.sampled_from([key for key in KEYS if key.is_permanent])
receivers = st.sampled_from(["receiver-1", "receiver-2"])


class BlobLife(RuleBasedStateMachine):
    """Clients that upload, submit, vanish; jobs that restart and end; stores that fail; a server that is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.world = BlobWorld()

    def _may_upload(self, owner: JobId, key: BlobKey) -> bool:
        """What the server itself sees to before it begins an upload."""
        return (self.world.listed or not key.is_permanent) and not self.world.machine.state.is_blocked(owner, key)

    # --- clients ------------------------------------------------------------------------------------------------------

    @rule(owner=owners, members=st.sets(permanents, min_size=1))
    def group_is_announced(self, owner: JobId, members: set[BlobKey]) -> None:
        world, job = self.world, self.world.jobs[owner]
        if not world.listed:
            return
        try:
            missing = world.machine.uploads.open_group(owner, [content(key) for key in sorted(members)])
        except Conflict:
            assert job.ended
            return
        assert not job.ended
        assert all((owner, key) in world.told for key in members - set(missing)), "what is not there is not asked for"
        world.strangers.discard(owner)
        # Its client is told to upload again what only waits for its deletion: nobody counts on that any more.
        world.told -= {(owner, key) for key in missing} & world.delayed
        before = job.group
        job.group, job.stirred = (set(members), True) if missing else (set(), False)
        job.arrived = members - set(missing)
        world.note(touched=[(owner, key) for key in members | before])

    @rule(owner=owners, key=keys, holders=st.sets(receivers), attempt=st.integers(0, 2))
    def upload_begins(self, owner: JobId, key: BlobKey, holders: set[str], attempt: int) -> None:
        world = self.world
        if not self._may_upload(owner, key):
            return
        holders, attempt = (set(), 0) if key.is_permanent else (holders, attempt)
        job = world.jobs[owner]
        try:
            number = world.machine.uploads.begin(owner, key, holders, attempt)
        except Conflict:
            assert job.ended or job.is_over(attempt)
            return
        assert not job.ended
        assert not job.is_over(attempt)
        world.strangers.discard(owner)
        world.uploads[number] = ((owner, key), holders)
        world.attempts[number] = attempt
        if (owner, key) in world.delayed:
            world.told.discard((owner, key))
            world.delayed.discard((owner, key))
        world.note()

    @precondition(lambda self: self.world.uploads)
    @rule(data=st.data())
    def upload_is_stored(self, data: st.DataObject) -> None:
        self._store(data.draw(st.sampled_from(list(self.world.uploads))))

    def _store(self, number: int) -> None:
        world = self.world
        place, holders = world.uploads.pop(number)
        self._write(place)
        job = world.jobs[place[0]]
        refused = job.ended or job.is_over(world.attempts.get(number, 0))
        assert world.machine.uploads.stored(number, SIZE) is not refused, (
            "uploads for what has ended are refused, no others"
        )
        if not refused:
            world.told.add(place)
            if holders:
                job.holders.setdefault(place[1], set()).update(holders)
            self._arrived(place)
        world.note(touched=[place])

    def _write(self, place: Place) -> None:
        self.world.local.add(place)
        if place[1].is_permanent:
            self.world.ha.add(place)

    def _arrived(self, place: Place) -> None:
        owner, key = place
        job = self.world.jobs[owner]
        if key in job.group:
            job.arrived.add(key)
            job.stirred = True
            if job.arrived >= job.group:
                touched, job.group = job.group, set()
                self.world.note(touched=[(owner, member) for member in touched])

    @precondition(lambda self: self.world.uploads)
    @rule(data=st.data(), leftovers=st.booleans())
    def upload_fails(self, data: st.DataObject, leftovers: bool) -> None:
        world = self.world
        number = data.draw(st.sampled_from(list(world.uploads)))
        place, _ = world.uploads.pop(number)
        if leftovers:
            world.local.add(place)
        world.machine.uploads.failed(number, leftovers=leftovers)
        world.note(touched=[place])

    @rule(owner=owners, named=st.sets(permanents), times=st.integers(1, 2))
    def submission_claims(self, owner: JobId, named: set[BlobKey], times: int = 1) -> None:
        for _ in range(times):
            self._claim(owner, named)

    def _claim(self, owner: JobId, named: set[BlobKey]) -> None:
        world, job = self.world, self.world.jobs[owner]
        if not world.listed:
            return
        try:
            world.machine.claim(owner, [content(key) for key in sorted(named)])
        except NotUploaded:
            assert job.ended or not all((owner, key) in world.told - world.delayed for key in named)
            return
        if job.ended:
            assert not named
            world.machine.withdraw(owner)
            return
        assert all((owner, key) in world.told for key in named)
        world.strangers.discard(owner)
        job.claims += 1
        for key in named:
            job.holders.setdefault(key, set()).add(SUBMISSION)
        world.note()

    @rule(owner=owners)
    def submission_is_refused(self, owner: JobId) -> None:
        world, job = self.world, self.world.jobs[owner]
        job.claims = max(0, job.claims - 1)
        if job.claims == 0:
            for held in job.holders.values():
                held.discard(SUBMISSION)
        world.machine.withdraw(owner)
        world.note()

    @rule(owner=owners)
    def job_is_submitted(self, owner: JobId) -> None:
        job = self.world.jobs[owner]
        if job.claims > 0 and not job.ended and job.artefacts is None:
            self.world.submit(owner, frozenset(key for key, held in job.holders.items() if SUBMISSION in held))

    @rule(owner=owners, members=st.sets(permanents, min_size=1), others=st.sets(keys))
    def all_goes_well(self, owner: JobId, members: set[BlobKey], others: set[BlobKey]) -> None:
        """A job is there, with BLOBs that it names and others, so that what follows starts from everywhere."""
        world, job = self.world, self.world.jobs[owner]
        if job.ended or job.artefacts is not None:
            return
        for key in sorted(members | others):
            if (owner, key) not in world.told and self._may_upload(owner, key):
                number = world.machine.uploads.begin(owner, key)
                world.strangers.discard(owner)
                world.uploads[number] = ((owner, key), set())
                self._store(number)
        self.submission_claims(owner, members)
        self.job_is_submitted(owner)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @rule(owner=owners, key=keys, receiver=receivers)
    def is_picked_up(self, owner: JobId, key: BlobKey, receiver: str) -> None:
        world, job = self.world, self.world.jobs[owner]
        try:
            world.machine.hold(owner, key, [receiver])
        except Absent:
            lost = (owner, key) not in world.told or (owner, key) in world.delayed
            assert job.ended or lost, "what is there can be picked up"
            return
        assert not job.ended
        job.holders.setdefault(key, set()).add(receiver)
        world.note()

    @rule(owner=owners, key=keys, receiver=receivers, times=st.integers(1, 3), attempt=st.integers(0, 2))
    def is_released(self, owner: JobId, key: BlobKey, receiver: str, times: int, attempt: int) -> None:
        for _ in range(times):
            try:
                self.world.machine.release(owner, key, receiver, attempt)
            except Conflict:
                assert self.world.jobs[owner].is_over(attempt)
                return
        assert not self.world.jobs[owner].is_over(attempt)
        self.world.jobs[owner].holders.get(key, set()).discard(receiver)
        self.world.note()

    @rule(owner=owners, attempt=st.integers(1, 2))
    def attempt_fails(self, owner: JobId, attempt: int) -> None:
        world = self.world
        world.machine.restart(owner, attempt)
        world.jobs[owner].over = max(world.jobs[owner].over, attempt)
        for key, held in world.jobs[owner].holders.items():
            if not key.is_permanent:
                held.clear()
        for place, holders in world.uploads.values():
            if place[0] == owner and not place[1].is_permanent:
                holders.clear()
        world.note()

    @rule(owner=owners, really=st.integers(0, 2))
    def job_ends(self, owner: JobId, really: int) -> None:
        job = self.world.jobs[owner]
        if really == 0 and job.artefacts is not None and not job.recovering:
            job.ended, job.group, job.claims = True, set(), 0
            job.holders.clear()
            self.world.machine.end(owner)
            self.world.told = {place for place in self.world.told if place[0] != owner}
            self.world.note()

    # --- the server ---------------------------------------------------------------------------------------------------

    @rule()
    def interval_is_over(self) -> None:
        world = self.world
        world.turns += 1
        ages = {place: world.turns - since for place, since in world.free_since.items()}
        world.delayed |= {place for place, _ in world.readers if ages.get(place) == 2}
        if not world.listed:
            world.postponed |= {place for place in world.free_since if place[1].is_permanent}
        world.machine.turn()
        abandoned = []
        for owner, job in world.jobs.items():
            uploading = any(place[0] == owner and place[1] in job.group for place, _ in world.uploads.values())
            if job.group and not job.stirred and not uploading:
                abandoned += [(owner, key) for key in job.group]
                job.group = set()
            job.stirred = False
        world.note(touched=abandoned)
        world.check_ages()

    @precondition(lambda self: self.world.deletions)
    @rule(data=st.data(), works=st.sampled_from([True, True, False]), half=st.booleans())
    def deletion_is_done(self, data: st.DataObject, works: bool, half: bool) -> None:
        self.world.carry_out(data.draw(st.sampled_from(self.world.deletions)), works=works, half=half)

    @rule(owner=owners, key=keys)
    def copy_begins(self, owner: JobId, key: BlobKey) -> None:
        try:
            number = self.world.machine.begin_read(owner, key)
        except Absent:
            return
        self.world.readers.append(((owner, key), number))
        self.world.note()

    @precondition(lambda self: self.world.readers)
    @rule(data=st.data(), dropped=st.booleans())
    def copy_ends(self, data: st.DataObject, dropped: bool) -> None:
        """``dropped``: the local copy was damaged, and the HA store has one, or an upload has replaced it since."""
        world = self.world
        place, number = data.draw(st.sampled_from(world.readers))
        world.readers.remove((place, number))
        record = world.machine.state.owners[place[0]].records[place[1]]
        dropped = dropped and (record.in_ha or record.stored > number)
        if dropped and record.stored == number:
            world.local.discard(place)
        world.machine.end_read(*place, number, in_local=False if dropped else None)
        world.note()

    @rule(really=st.integers(0, 3), written=st.integers(0, 2))
    def server_is_killed(self, really: int, written: int) -> None:
        if really == 0:
            self.world.restart_server(written)

    @precondition(lambda self: not self.world.listed)
    @rule()
    def ha_store_answers(self) -> None:
        self.world.list_ha()

    @precondition(lambda self: self.world.strangers)
    @rule(data=st.data())
    def stranger_is_given_up(self, data: st.DataObject) -> None:
        self._give_up(data.draw(st.sampled_from(sorted(self.world.strangers))))

    def _give_up(self, owner: JobId) -> None:
        self.world.strangers.discard(owner)
        self.world.machine.give_up([owner])
        self.world.note()

    @precondition(lambda self: any(job.recovering for job in self.world.jobs.values()))
    @rule()
    def jobs_are_recovered(self) -> None:
        for owner, job in self.world.jobs.items():
            if job.recovering:
                self.world.resubmit(owner)

    # --- truths -------------------------------------------------------------------------------------------------------

    @invariant()
    def what_is_referenced_is_there(self) -> None:
        world = self.world
        for owner, job in world.jobs.items():
            for key in job.artefacts or ():
                assert job.ended or (owner, key) in world.ha, f"{key} of the unfinished job {owner} is lost"
        for place in world.told - world.delayed:
            assert place in world.local | world.ha, f"{place} was acknowledged, and is lost"
        world.check_stores()

    @invariant()
    def counts_are_the_worlds(self) -> None:
        world = self.world
        for owner, job in world.jobs.items():
            known = world.machine.state.owners.get(owner)
            for key in KEYS:
                record = None if known is None else known.records.get(key)
                assert (record.holders if record else set()) == job.holders.get(key, set())

    def teardown(self) -> None:
        """Nothing more happens: two intervals later only what is referenced is left, in both stores."""
        world = self.world
        if not world.listed:
            world.list_ha()
        self.jobs_are_recovered()
        for owner in sorted(world.strangers):
            self._give_up(owner)
        for number, (place, _) in list(world.uploads.items()):
            del world.uploads[number]
            world.machine.uploads.failed(number, leftovers=False)
            world.note(touched=[place])
        while world.readers:
            world.end_copy(world.readers[-1][0])
        for _ in range(4):  # two for groups to be abandoned, two for their BLOBs
            self.interval_is_over()
            while world.deletions:
                world.carry_out(world.deletions[0], works=True, half=False)
        left = world.local | world.ha
        assert left == {place for place in left if world.holders(place)}, "the unreferenced are gone"
        assert all(not job.ended or owner not in world.machine.state.owners for owner, job in world.jobs.items())


TestBlobLife = BlobLife.TestCase
TestBlobLife.settings = settings(
    max_examples=examples(75), stateful_step_count=50, deadline=None, report_multiple_bugs=False
)
TestBlobLife.pytestmark = [  # type: ignore[attr-defined]
    pytest.mark.req(f"BLOB-{number}") for number in (6, 9, 10, 11, 14, 15, 17, 18, 19)
]


def test_what_waits_for_its_deletion_is_missing_for_a_new_group() -> None:
    life, owner, key = BlobLife(), OWNERS[0], KEYS[0]
    life.upload_begins(owner=owner, key=key, holders=set(), attempt=0)
    life._store(1)
    life.copy_begins(owner=owner, key=key)
    for _ in range(2):
        life.interval_is_over()
    life.group_is_announced(owner=owner, members={key})
    life.world.end_copy((owner, key))
    life.interval_is_over()
    assert [deletion.keys for deletion in life.world.deletions] == [(key,)]
    life.teardown()


def test_an_upload_after_a_restart_is_none_of_an_attempt_before_it() -> None:
    """Found by a campaign: the world took it for the one that had its number before the server's restart."""
    life, owner, (first, _, transient) = BlobLife(), OWNERS[0], KEYS
    life.upload_begins(owner=owner, key=transient, holders=set(), attempt=1)
    life.server_is_killed(really=0, written=0)
    life.ha_store_answers()
    life.attempt_fails(owner=owner, attempt=1)
    life.all_goes_well(owner=owner, members={first}, others=set())
    assert (owner, first) in life.world.told
    life.teardown()
