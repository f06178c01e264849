"""A BLOB cache's references under any order of retrievals, failures, releases and clean-ups.

The model beside it knows each task's uses and, for what nobody uses, how many clean-ups have passed since.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.ids import JobId
from emberkeep.blobs.cache_machine import CacheMachine, Claim
from emberkeep.blobs.model import BlobKey, permanent, transient
from tests.campaign import examples

pytestmark = [
    pytest.mark.req("BLOB-9"),
    pytest.mark.req("BLOB-10"),
    pytest.mark.req("BLOB-11"),
    pytest.mark.req("BLOB-13"),
]

OWNERS = [JobId("a" * 32), JobId("b" * 32)]
KEYS = [permanent("1" * 64), permanent("2" * 64), transient("1" * 64)]
HOLDERS = ["driver", "executor-1", "executor-2"]
some_owner = st.sampled_from(OWNERS)
some_key = st.sampled_from(KEYS)
some_holder = st.sampled_from(HOLDERS)
Place = tuple[JobId, BlobKey]


@dataclasses.dataclass
class Flight:
    """A retrieval under way; ``released``: its holder has ended meanwhile."""

    claim: Claim
    holder: str | None  # None: the transfer
    released: bool = False


@dataclasses.dataclass
class Blob:
    holders: set[str] = dataclasses.field(default_factory=set)
    flights: list[Flight] = dataclasses.field(default_factory=list)
    on_disk: bool = False
    turns_unused: int = 0

    @property
    def used(self) -> bool:
        return bool(self.holders or self.flights)


class CacheWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = CacheMachine()
        self.blobs: dict[Place, Blob] = {(owner, key): Blob() for owner in OWNERS for key in KEYS}

    def flights(self) -> list[tuple[Blob, Flight]]:
        return [(blob, flight) for blob in self.blobs.values() for flight in blob.flights]

    @rule(owner=some_owner, keys=st.sets(some_key))
    def a_restart_finds_files(self, owner: JobId, keys: set[BlobKey]) -> None:
        self.machine.found(owner, sorted(keys))
        for key in keys:
            blob = self.blobs[owner, key]
            blob.turns_unused = blob.turns_unused if blob.on_disk else 0
            blob.on_disk = True

    @rule(owner=some_owner, key=some_key, holder=st.none() | some_holder)
    def a_task_asks(self, owner: JobId, key: BlobKey, holder: str | None) -> None:
        claim = self.machine.claim(owner, key, holder)
        self.blobs[owner, key].flights.append(Flight(claim, holder))

    @precondition(lambda self: self.flights())
    @rule(data=st.data())
    def it_gets_the_file(self, data: st.DataObject) -> None:
        blob, flight = data.draw(st.sampled_from(self.flights()))
        self.machine.hold(flight.claim)
        blob.flights.remove(flight)
        blob.on_disk = True
        if flight.holder is not None and not flight.released:
            blob.holders.add(flight.holder)
        blob.turns_unused = 0

    @precondition(lambda self: self.flights())
    @rule(data=st.data())
    def it_fails_or_is_cancelled(self, data: st.DataObject) -> None:
        blob, flight = data.draw(st.sampled_from(self.flights()))
        self.machine.give_up(flight.claim)
        blob.flights.remove(flight)
        blob.turns_unused = 0

    @rule(owner=some_owner, key=some_key, holder=some_holder)
    def a_task_releases(self, owner: JobId, key: BlobKey, holder: str) -> None:
        self.machine.release(owner, key, holder)
        self.model_release(self.blobs[owner, key], holder)

    @rule(owner=some_owner, holder=some_holder)
    def a_task_ends(self, owner: JobId, holder: str) -> None:
        self.machine.release_all(owner, holder)
        for key in KEYS:
            self.model_release(self.blobs[owner, key], holder)

    def model_release(self, blob: Blob, holder: str) -> None:
        was_used = blob.used
        blob.holders.discard(holder)
        for flight in blob.flights:
            flight.released = flight.released or flight.holder == holder
        if was_used:
            blob.turns_unused = 0

    @rule()
    def an_interval_passes(self) -> None:
        deletions = self.machine.turn()
        assert len({deletion.owner for deletion in deletions}) == len(deletions), "an owner is swept once"
        deleted = {(deletion.owner, key) for deletion in deletions for key in deletion.keys}
        for place, blob in self.blobs.items():
            if blob.used:
                assert place not in deleted, "deleted under its users"
                continue
            if blob.on_disk:
                blob.turns_unused += 1
                assert (place in deleted) == (blob.turns_unused == 2), "lives one to two intervals"
            if place in deleted:
                self.blobs[place] = Blob()
        for deletion in deletions:
            left = [blob for (owner, _), blob in self.blobs.items() if owner == deletion.owner]
            needed = any(blob.used or blob.on_disk for blob in left)
            assert deletion.whole == (not needed), "a directory goes as a whole only with all that is in it"

    @invariant()
    def counts_are_true(self) -> None:
        for (owner, key), blob in self.blobs.items():
            assert self.machine.references(owner, key) == len(blob.holders) >= 0
            assert self.machine.may_be_stored(owner, key) == blob.on_disk


TestCacheWorld = CacheWorld.TestCase
TestCacheWorld.settings = settings(max_examples=examples(50), stateful_step_count=50, deadline=None)
