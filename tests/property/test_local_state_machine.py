"""What must never happen to local copies, whatever becomes of slots and attempts."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.machine import DropAllocation, DropJob, Effect, HandOver, Ownership

JOBS = st.sampled_from([JobId(digit * 32) for digit in "12"])
ALLOCATIONS = st.sampled_from([AllocationId(digit * 32) for digit in "abcde"])
TIMEOUT = 50.0


class World(RuleBasedStateMachine):
    """A disk that does what it is told, and the slots as the task manager knows them."""

    def __init__(self) -> None:
        super().__init__()
        self.ownership = Ownership(TIMEOUT)
        self.now = 0.0
        self.held: set[tuple[JobId, AllocationId]] = set()
        self.used: set[tuple[JobId, AllocationId]] = set()  # allocations are never given out twice
        self.disk: dict[int, tuple[JobId, AllocationId]] = {}  # copies and whose they are
        self.kept: set[int] = set()  # copies that a slot wrote which has not been given back since
        self.copies = 0

    def apply(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case HandOver(job, source, target):
                    assert (job, target) in self.held
                    assert (job, source) not in self.held
                    for copy, owner in self.disk.items():
                        if owner == (job, source):
                            self.disk[copy] = (job, target)
                case DropAllocation(job, allocation):
                    assert (job, allocation) not in self.held
                    self.drop(lambda owner, gone=(job, allocation): owner == gone)
                case DropJob(job):
                    self.drop(lambda owner, job=job: owner[0] == job)

    def drop(self, wanted) -> None:  # type: ignore[no-untyped-def]
        for copy in [copy for copy, owner in self.disk.items() if wanted(owner)]:
            del self.disk[copy]

    @rule(job=JOBS, allocation=ALLOCATIONS)
    def begin(self, job: JobId, allocation: AllocationId) -> None:
        if (job, allocation) not in self.used:
            self.used.add((job, allocation))
            self.held.add((job, allocation))
            self.apply(self.ownership.begun(job, allocation))

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        if self.ownership.held:
            owner = data.draw(st.sampled_from(sorted(self.ownership.held)))
            self.copies += 1
            self.disk[self.copies] = owner
            self.kept.add(self.copies)

    @rule(data=st.data(), over=st.booleans())
    def free(self, data: st.DataObject, over: bool) -> None:
        if self.held:
            job, allocation = data.draw(st.sampled_from(sorted(self.held)))
            self.held.discard((job, allocation))
            if not over:
                self.kept -= {copy for copy, owner in self.disk.items() if owner == (job, allocation)}
            self.apply(self.ownership.freed(job, allocation, may_return=over))
            assert over or (job, allocation) not in self.disk.values()

    @rule(job=JOBS)
    def forget(self, job: JobId) -> None:
        if not any(owner == job for owner, _ in self.held):
            self.kept -= {copy for copy, owner in self.disk.items() if owner[0] == job}
            self.apply(self.ownership.forgotten(job))
            assert not any(owner == job for owner, _ in self.disk.values())

    @rule(seconds=st.floats(0.0, 80.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.apply(self.ownership.expired(self.now))

    @rule()
    def restart(self) -> None:
        self.ownership = Ownership(TIMEOUT)
        for job, allocation in sorted(self.held):
            self.apply(self.ownership.recovered(job, allocation))
        self.ownership.found(dict.fromkeys(self.disk.values()), self.now)
        self.kept = {copy for copy in self.kept if self.disk.get(copy) in self.held}

    @rule()
    def sweep(self) -> None:
        self.apply(self.ownership.orphans(list(self.disk.values())))

    @invariant()
    def the_gateway_keeps_for_the_slots_there_are(self) -> None:
        assert self.ownership.held == self.held

    @invariant()
    def what_a_living_job_wrote_is_there(self) -> None:
        assert self.kept <= set(self.disk)


TestOwnership = World.TestCase
