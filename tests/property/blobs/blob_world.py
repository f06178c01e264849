"""What really happens to BLOBs around a server's machine: two stores, and who may count on what, told independently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKey, StoredBlob, permanent, transient
from emberkeep.blobs.server_machine import JOB, SUBMISSION, ServerMachine
from emberkeep.blobs.server_records import Deletion

OWNERS = tuple(JobId(f"{number:032x}") for number in (1, 2))
KEYS = (*(permanent(f"{n:064x}") for n in (1, 2)), *(transient(f"{n:064x}") for n in (3,)))
SIZE = 7

Place = tuple[JobId, BlobKey]


def content(key: BlobKey) -> BlobContent:
    return BlobContent(sha256=key.sha256, size=SIZE, kind=key.kind)


@dataclass
class Job:
    """What the world knows of one owner."""

    holders: dict[BlobKey, set[str]] = field(default_factory=dict)
    group: set[BlobKey] = field(default_factory=set)  # members, while it is open
    arrived: set[BlobKey] = field(default_factory=set)
    stirred: bool = False
    claims: int = 0
    artefacts: frozenset[BlobKey] | None = None  # None: not submitted
    recovering: bool = False
    ended: bool = False
    over: int = 0  # attempts up to this one

    def is_over(self, attempt: int) -> bool:
        return 0 < attempt <= self.over and not self.ended


@dataclass
class BlobWorld:
    """The machine under test, what it asked for, and the truth."""

    machine: ServerMachine = field(default_factory=ServerMachine)
    local: set[Place] = field(default_factory=set)
    ha: set[Place] = field(default_factory=set)
    told: set[Place] = field(default_factory=set)  # uploads that were acknowledged and not deleted since
    jobs: dict[JobId, Job] = field(default_factory=lambda: {owner: Job() for owner in OWNERS})
    uploads: dict[int, tuple[Place, set[str]]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)  # that uploads act for
    readers: list[tuple[Place, int]] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    turns: int = 0
    free_since: dict[Place, int] = field(default_factory=dict)  # turns that had been when nobody kept it any more
    delayed: set[Place] = field(default_factory=set)  # its deletion failed or had to wait for a reader
    postponed: set[Place] = field(default_factory=set)  # permanent, while nobody knew what the HA store holds
    listed: bool = True
    restarted: int = 0  # after how many turns
    strangers: set[JobId] = field(default_factory=set)  # found in the HA store, and nobody has named them since

    def __post_init__(self) -> None:
        self.machine.found_ha({})

    # --- who may count on what ----------------------------------------------------------------------------------------

    def holders(self, place: Place) -> set[str]:
        return self.jobs[place[0]].holders.get(place[1], set())

    def is_kept(self, place: Place) -> bool:
        """Whether it must not be deleted now, however long it waits."""
        job, key = self.jobs[place[0]], place[1]
        waits = key in job.group or (job.recovering and key.is_permanent)
        uploading = any(under_way == place for under_way, _ in self.uploads.values())
        return bool(self.holders(place)) or waits or uploading or place[0] in self.strangers

    def is_read(self, place: Place) -> bool:
        return any(read == place for read, _ in self.readers)

    def note(self, touched: Iterable[Place] = ()) -> None:
        """After each event: since when is each BLOB kept by nobody? ``touched`` were kept for a moment at least."""
        for place in touched:
            self.free_since.pop(place, None)
        for place in [(owner, key) for owner in OWNERS for key in KEYS]:
            if self.jobs[place[0]].ended or place not in self.told or self.is_kept(place):
                self.free_since.pop(place, None)
                self.postponed.discard(place)
            else:
                self.free_since.setdefault(place, self.turns)
        self.machine.check_invariants()
        for deletion in self.machine.clean_up.take():
            self._asked_to_delete(deletion)

    def _asked_to_delete(self, deletion: Deletion) -> None:
        self.deletions.append(deletion)
        job = self.jobs[deletion.owner]
        there = {place for place in self.local | self.ha if place[0] == deletion.owner}
        doomed = there if deletion.whole else {(deletion.owner, key) for key in deletion.keys}
        if deletion.whole:
            assert not any(place[0] == deletion.owner for place, _ in self.uploads.values()), "swept under an upload"
        if job.ended:
            return
        for place in doomed:
            assert not self.is_kept(place) or place not in self.told, f"{place} is kept, and deleted"
            assert not self.is_read(place), f"{place} is deleted while it is copied"
            if place in self.told:
                age = self.turns - self.free_since[place]
                assert age >= 2, f"{place} is deleted after {age} turns: that may be less than an interval"
                assert age == 2 or place in self.delayed | self.postponed, f"{place} lives for {age} turns"
        self.told -= doomed
        for place in doomed:
            self.free_since.pop(place, None)

    def check_ages(self) -> None:
        """Nobody's BLOB outlives its second turn, unless something was in the way."""
        for place, since in self.free_since.items():
            if place not in self.delayed | self.postponed:
                assert self.turns - since < 2, f"{place} is unreferenced for too long"

    def check_stores(self) -> None:
        """The machine believes nothing to be in a store that is not, of what somebody may rely on."""
        for owner, key in self.told - self.delayed:
            record = self.machine.state.owners[owner].records[key]
            assert not record.in_local or (owner, key) in self.local, f"{key} of {owner} is not in the local store"
            assert not record.in_ha or (owner, key) in self.ha, f"{key} of {owner} is not in the HA store"

    # --- the stores ---------------------------------------------------------------------------------------------------

    def carry_out(self, deletion: Deletion, *, works: bool, half: bool) -> None:
        self.deletions.remove(deletion)
        gone = {
            place
            for place in self.local | self.ha
            if place[0] == deletion.owner and (deletion.whole or place[1] in deletion.keys)
        }
        if works or half:
            self.local -= gone
        if works:
            self.ha -= gone
            self.delayed -= gone | {(deletion.owner, key) for key in deletion.keys}
            self.machine.clean_up.deleted(deletion)
        else:
            self.delayed |= gone
            self.machine.clean_up.not_deleted(deletion)
        self.note()

    def end_copy(self, place: Place) -> None:
        """One that has found nothing new."""
        number = next(number for read, number in self.readers if read == place)
        self.readers.remove((place, number))
        self.machine.end_read(*place, number)
        self.note()

    def listing(self, places: set[Place]) -> dict[JobId, list[StoredBlob]]:
        found: dict[JobId, list[StoredBlob]] = {}
        for owner, key in sorted(places):
            found.setdefault(owner, []).append(StoredBlob(key=key, size=SIZE, modified_ms=0))
        return found

    def restart_server(self, written: int) -> None:
        """The process dies and starts again: uploads, readers, counts and running deletions are gone. ``written``: of
        each upload the local store had it (1), or both stores (2), and nobody was told."""
        for place, _ in self.uploads.values():
            if written:
                self.local.add(place)
            if written == 2 and place[1].is_permanent:
                self.ha.add(place)
        self.machine = ServerMachine()
        # Numbers of uploads begin anew with the process.
        self.uploads, self.attempts = {}, {}
        self.readers, self.deletions, self.delayed, self.postponed = [], [], set(), set()
        for job in self.jobs.values():
            job.holders, job.group, job.claims, job.over = {}, set(), 0, 0
            job.recovering = job.artefacts is not None and not job.ended
        ended = [owner for owner, job in self.jobs.items() if job.ended]
        self.machine.recover([owner for owner, job in self.jobs.items() if job.recovering], ended)
        self.machine.found_local(self.listing(self.local))
        self.told = {place for place in self.local if not place[1].is_permanent}
        self.told = {place for place in self.told if not self.jobs[place[0]].ended}
        self.free_since, self.listed, self.restarted, self.strangers = {}, False, self.turns, set()
        self.note()

    def list_ha(self) -> None:
        self.listed = True
        self.told |= {place for place in self.ha if not self.jobs[place[0]].ended}
        self.strangers = {owner for owner, _ in self.ha if not self.jobs[owner].ended and not self._is_wanted(owner)}
        self.machine.found_ha(self.listing(self.ha))
        for place in self.told & self.local & self.ha:  # the local store's copy has been staged since the restart
            self.free_since.setdefault(place, self.restarted)
            self.postponed.add(place)
        self.note()

    def _is_wanted(self, owner: JobId) -> bool:
        """Whether its job is known, or somebody has named it since the start."""
        job = self.jobs[owner]
        busy = any(place[0] == owner for place, _ in [*self.uploads.values(), *self.readers])
        return job.recovering or bool(job.group) or job.claims > 0 or any(job.holders.values()) or busy

    def resubmit(self, owner: JobId) -> None:
        job = self.jobs[owner]
        assert job.artefacts is not None
        job.recovering = False
        self.submit(owner, job.artefacts)

    def submit(self, owner: JobId, keys: frozenset[BlobKey]) -> None:
        job = self.jobs[owner]
        job.artefacts, job.claims, job.group = keys, 0, set()
        self.strangers.discard(owner)
        for held in job.holders.values():
            held.discard(SUBMISSION)
        for key in keys:
            job.holders.setdefault(key, set()).add(JOB)
        self.machine.submit(owner, keys)
        self.note()
