"""The standby pool of a task manager: how many standby processes it keeps, with which profiles, and when it warms them.

The pool learns the profiles from what jobs ask for. It warms one process at a time, and only while no process of a job
starts. Its memory is what slots and drivers leave free: if these need more, the pool ends its own processes. A profile
whose processes fail is tried less and less often, and does not delay other profiles.

Beyond that, it keeps one driver for each job that has a *reserved standby* here. Such a process belongs to its job from
its start, or from the moment when the pool picks it among the ready ones. No other job gets it. It comes before the
other processes where memory is short, and is ended once its job no longer needs it here. For each such job, the pool
also keeps one executor more than otherwise: a node that takes over from a lost one starts more of them at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping

from emberkeep.base.errors import IllegalTransition
from emberkeep.base.ids import JobId
from emberkeep.slots.standbys.back_off import BackOff, Cause
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
    Prepared,
    PrepareStandby,
    Reserve,
    StandbyEffect,
    StandbyEnded,
    StandbyEvent,
    StandbyKind,
    StandbyProfile,
    StandbyTaken,
    StartStandby,
    TakeEnded,
    Warmed,
)
from emberkeep.slots.standbys.members import Standby, StandbyMembers, StandbyState

REMEMBERED = 20  # newest requests of each kind, from which the pool learns profiles
PRESSURE_SECONDS = 10.0  # a reserved slot may be about to take a standby, so the pool waits before it gives memory back


class StandbyPool:
    """Decides which standby processes one task manager keeps.

    - ``sizes``: number of processes to keep for any job without reserved standbys, by kind. A pool that keeps no
      drivers has no reserved standbys either.
    - ``defaults``: profiles that the pool keeps before any job has asked for others.
    - ``slots``: of the task manager. Reserved standbys do not make the pool keep more executors than these.
    """

    def __init__(
        self, sizes: dict[StandbyKind, int], defaults: dict[StandbyKind, StandbyProfile], slots: int = 1
    ) -> None:
        self.sizes = sizes
        self._slots = slots
        self._asked: dict[StandbyKind, deque[StandbyProfile]] = {
            kind: deque([profile], maxlen=REMEMBERED) for kind, profile in defaults.items()
        }
        self._members = StandbyMembers()
        self._back_off = BackOff()
        self._free_mb = 0
        self._is_busy = True  # until the first look
        self._over_since: float | None = None
        self._reserved: Mapping[JobId, StandbyProfile] = {}

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def memory_mb(self) -> int:
        """MiB of all processes of the pool."""
        return self._members.memory_mb

    def size(self, kind: StandbyKind) -> int:
        """Return how many processes of a kind the pool keeps for any job."""
        size = self.sizes.get(kind, 0)
        if kind is StandbyKind.EXECUTOR and size:
            size += max(0, min(len(self._reserved), self._slots - size))
        return size

    def standbys(self) -> tuple[Standby, ...]:
        """Return the processes of the pool, the oldest first."""
        return tuple(self._members)

    def count_ready(self) -> Counter[StandbyKind]:
        """Return how many processes of each kind any job can take now."""
        return Counter(standby.profile.kind for standby in self._members.ready_for_any())

    def ready(self, profile: StandbyProfile, job_id: JobId | None = None) -> str | None:
        """Return the id of a process that a job with this profile can take; None if no process fits.

        The job's reserved standby comes first.
        """
        able = [
            s for s in self._members.in_state(StandbyState.READY) if s.profile == profile and s.job_id in (None, job_id)
        ]
        return min(able, key=lambda standby: standby.job_id is None).standby_id if able else None

    def why_none(self, profile: StandbyProfile, job_id: JobId | None = None) -> str:
        """Return in words why ``ready`` returns None; "" if the pool keeps no process of this kind."""
        kind = profile.kind
        if not self.sizes.get(kind):
            return ""
        if any(s.job_id is not None and s.job_id == job_id for s in self._members.in_state(StandbyState.PREPARING)):
            return f"the standby {kind.value} was still importing what the job needs"
        if any(
            s.profile == profile and s.job_id in (None, job_id) for s in self._members.in_state(StandbyState.WARMING)
        ):
            return f"the standby {kind.value} was still warming up"
        if (profile, None) in self._back_off or (profile, job_id) in self._back_off:
            return f"the last such standby {kind.value} has failed; see the task manager's log"
        if any(standby.profile.kind is kind for standby in self._members.ready_for_any()):
            options = f" and the options {' '.join(profile.java_options)}" if profile.java_options else ""
            return f"no standby {kind.value} has a heap of {profile.heap_mb} MiB{options} yet"
        return f"no standby {kind.value} was ready"

    def reserved(self) -> dict[JobId, str]:
        """Return the jobs that have a reserved standby here, and why it is not ready; "" if it is."""
        return {job_id: self._why_not_ready(job_id, profile) for job_id, profile in self._reserved.items()}

    def _why_not_ready(self, job_id: JobId, profile: StandbyProfile) -> str:
        standby = self._members.of(job_id)
        if standby is not None and standby.profile == profile:
            match standby.state:
                case StandbyState.READY:
                    return ""
                case StandbyState.WARMING:
                    return "it is still warming up"
                case StandbyState.PREPARING:
                    return "it still imports what the job needs"
        if (profile, job_id) in self._back_off:
            return "the last one has failed; see the task manager's log"
        if self.memory_mb + profile.memory_mb > self._free_mb:
            return f"slots and drivers leave too little memory: it needs {profile.memory_mb} MiB"
        return "it has not been started yet"

    # --- changes ------------------------------------------------------------------------------------------------------

    def handle(self, event: StandbyEvent, now: float) -> list[StandbyEffect]:
        """Return what to do after an event. Raises IllegalTransition for a process that cannot have this event."""
        effects: list[StandbyEffect] = []
        match event:
            case Asked():
                if event.fits:
                    self._asked.setdefault(event.profile.kind, deque(maxlen=REMEMBERED)).append(event.profile)
            case Reserve():
                self._reserved = event.profiles if self.sizes.get(StandbyKind.DRIVER) else {}
            case Warmed():
                effects += self._warmed(event.standby_id)
            case Prepared():
                self._prepared(event.standby_id)
            case StandbyTaken():
                self._taken(event.standby_id)
            case TakeEnded(failed=True):
                self._failed((event.profile, event.job_id), now)
            case TakeEnded():
                # Only this proves that such processes work: one that fails soon after its warm-up would be warmed again
                # and again otherwise.
                self._back_off.worked((event.profile, event.job_id))
            case StandbyEnded():
                self._ended(event, now)
            case Look():
                self._free_mb, self._is_busy = event.free_mb, event.is_busy
        return [*effects, *self._withdraw(), *self._give_back(now), *self._reserve(now), *self._refill(now)]

    def _warmed(self, standby_id: str) -> Iterator[StandbyEffect]:
        standby = self._members.get(standby_id)
        if standby is None or standby.state is not StandbyState.WARMING:
            return  # it was ended in the meantime
        if standby.job_id is None:
            standby.state = StandbyState.READY
        else:
            yield self._prepared_for(standby, standby.job_id)

    def _prepared(self, standby_id: str) -> None:
        standby = self._members.get(standby_id)
        if standby is not None and standby.state is StandbyState.PREPARING:
            standby.state = StandbyState.READY

    def _taken(self, standby_id: str) -> None:
        standby = self._members.get(standby_id)
        if standby is None or standby.state is not StandbyState.READY:
            raise IllegalTransition("standby pool", "absent" if standby is None else standby.state.value, "taken", ())
        self._members.pop(standby_id)

    def _ended(self, event: StandbyEnded, now: float) -> None:
        standby = self._members.pop(event.standby_id)
        if standby is None or standby.state is StandbyState.ENDING:
            return
        self._failed((standby.profile, standby.job_id), now)

    def _failed(self, cause: Cause, now: float) -> None:
        """Count a failure, and wait before the next such process."""
        known: set[Cause] = {(profile, None) for asked in self._asked.values() for profile in asked}
        self._back_off.failed(cause, now, known | {(profile, job_id) for job_id, profile in self._reserved.items()})

    def _withdraw(self) -> Iterator[StandbyEffect]:
        """End the processes whose jobs no longer need them here. No other job may get what a job has imported.

        End the executors beyond the size, too: first those that jobs ask for least, and the newest of them.
        """
        for standby in self._members.living():
            if standby.job_id is not None and self._reserved.get(standby.job_id) != standby.profile:
                yield self._end(standby, "its job needs it no longer")
        for kind in self.sizes:
            wanted = self._wanted(kind)
            able = self._members.living_for_any(kind)
            able.sort(key=lambda standby: standby.profile not in wanted)
            for standby in able[self.size(kind) :]:
                yield self._end(standby, "no reserved standby needs it any longer")

    def _give_back(self, now: float) -> Iterator[StandbyEffect]:
        """End processes, the least useful first, if they have used reserved memory for a while."""
        if self._excess() <= 0:
            self._over_since = None
            return
        if self._over_since is None:
            self._over_since = now
        if now - self._over_since < PRESSURE_SECONDS:
            return
        warm = [*reversed(self._members.in_state(StandbyState.READY)), *self._members.in_state(StandbyState.PREPARING)]
        warm.sort(key=lambda standby: standby.job_id is not None)  # what is reserved is the most useful
        for standby in (*self._members.in_state(StandbyState.WARMING), *warm):
            if self._excess() <= 0:
                return
            yield self._end(standby, "slots and drivers need its memory")

    def _reserve(self, now: float) -> Iterator[StandbyEffect]:
        """Reserve processes that are ready, for jobs without a reserved standby, unless jobs need the machine."""
        if self._is_busy:
            return
        for job_id, profile in self._lacking(now):
            standby = next((each for each in self._members.ready_for_any() if each.profile == profile), None)
            if standby is not None:
                standby.job_id = job_id
                yield self._prepared_for(standby, job_id)

    def _prepared_for(self, standby: Standby, job_id: JobId) -> PrepareStandby:
        standby.state = StandbyState.PREPARING
        # An import may be what has failed. Without it, the job still gets a warm process.
        return PrepareStandby(standby.standby_id, job_id, imports=(standby.profile, job_id) not in self._back_off)

    def _lacking(self, now: float) -> list[tuple[JobId, StandbyProfile]]:
        """Return the jobs that have no reserved standby, and whose last one has not failed a moment ago."""
        return [
            (job_id, profile)
            for job_id, profile in self._reserved.items()
            if self._members.of(job_id) is None and not self._back_off.pauses((profile, job_id), now)
        ]

    def _refill(self, now: float) -> Iterator[StandbyEffect]:
        """Start one process if one is missing and neither jobs nor another warm-up need the machine.

        Reserved standbys come first. A ready process that is no longer wanted, or not as much, is ended first if the
        missing one needs its place.
        """
        if self._is_busy or self._members.in_state(StandbyState.WARMING) or self._over_since is not None:
            return
        for job_id, profile in self._lacking(now):
            if self.memory_mb + profile.memory_mb <= self._free_mb:
                yield StartStandby(self._members.start(profile, job_id).standby_id, profile)
                return
            missing_mb = self._excess() + profile.memory_mb
            several = _together_large_enough(self._members.ready_for_any(), missing_mb)
            for standby in several:
                yield self._end(standby, "a job's reserved standby needs its memory")
            if several or missing_mb <= 0:
                return  # it is started once these, or others that are ending, have gone
        for kind in self.sizes:
            members = self._members.for_any(kind)
            present = Counter(standby.profile for standby in members)
            wanted = self._wanted(kind)
            for profile in (wanted - present).elements():
                if self._back_off.pauses((profile, None), now):
                    continue
                if len(members) < self.size(kind) and self.memory_mb + profile.memory_mb <= self._free_mb:
                    yield StartStandby(self._members.start(profile, None).standby_id, profile)
                    return
                surplus = [s for s in self._members.ready_for_any() if s.profile in present - wanted]
                replaced = _large_enough(surplus, self.memory_mb + profile.memory_mb - self._free_mb)
                if replaced is not None:
                    yield self._end(replaced, "jobs ask for other processes now")
                    return

    def _wanted(self, kind: StandbyKind) -> Counter[StandbyProfile]:
        """Return the profiles to keep: those that jobs asked for most often lately, the newest first among equals."""
        asked = self._asked.get(kind)
        size = self.size(kind)
        if not asked or size == 0:
            return Counter()
        counts = Counter(reversed(asked))
        ranked = [profile for profile, _ in counts.most_common()]
        return Counter(ranked[number % len(ranked)] for number in range(size))

    def _end(self, standby: Standby, reason: str) -> EndStandby:
        standby.state = StandbyState.ENDING
        return EndStandby(standby.standby_id, reason)

    def _excess(self) -> int:
        return sum(standby.profile.memory_mb for standby in self._members.living()) - self._free_mb

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        self._members.check_invariants({kind: self.size(kind) for kind in StandbyKind})


def _large_enough(able: list[Standby], memory_mb: int) -> Standby | None:
    """Return the first process that takes so much memory, or None."""
    return next((standby for standby in able if standby.profile.memory_mb >= memory_mb), None)


def _together_large_enough(able: list[Standby], memory_mb: int) -> list[Standby]:
    """Return as few processes as possible that take so much memory together; none if all of them take less."""
    if memory_mb <= 0:
        return []
    if (one := _large_enough(able, memory_mb)) is not None:
        return [one]
    chosen: list[Standby] = []
    for standby in sorted(able, key=lambda standby: -standby.profile.memory_mb):
        chosen.append(standby)
        memory_mb -= standby.profile.memory_mb
        if memory_mb <= 0:
            return chosen
    return []
