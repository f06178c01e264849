"""The standby pool of a task manager: how many standby processes it keeps, with which profiles, and when it warms them.

The pool learns the profiles from what jobs ask for. It warms one process at a time, and only while no process of a job
starts. Its memory is what slots and drivers leave free: if these need more, the pool ends its own processes. A profile
whose processes fail is tried less and less often, and does not delay other profiles.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from emberkeep.base.errors import IllegalTransition
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
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

REMEMBERED = 20  # newest requests of each kind, from which the pool learns profiles
PRESSURE_SECONDS = 10.0  # a reserved slot may be about to take a standby, so the pool waits before it gives memory back
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 900.0  # seconds after a failed warm-up


class StandbyState(enum.Enum):
    WARMING = "WARMING"
    READY = "READY"
    ENDING = "ENDING"


@dataclass
class Standby:
    """A process of the pool. It leaves the pool once it is taken or has ended."""

    standby_id: str
    profile: StandbyProfile
    state: StandbyState = StandbyState.WARMING


@dataclass(frozen=True)
class _Failures:
    """Failures of a profile since a job last took such a process. ``resume_at``: when the next one may be started."""

    count: int
    resume_at: float


class StandbyPool:
    """Decides which standby processes one task manager keeps.

    ``sizes``: number of processes to keep, by kind. ``defaults``: profiles that the pool keeps before any job has asked
    for others.
    """

    def __init__(self, sizes: dict[StandbyKind, int], defaults: dict[StandbyKind, StandbyProfile]) -> None:
        self.sizes = sizes
        self._asked: dict[StandbyKind, deque[StandbyProfile]] = {
            kind: deque([profile], maxlen=REMEMBERED) for kind, profile in defaults.items()
        }
        self._standbys: dict[str, Standby] = {}
        self._started = 0
        self._free_mb = 0
        self._is_busy = True  # until the first look
        self._over_since: float | None = None
        self._failures: dict[StandbyProfile, _Failures] = {}

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def memory_mb(self) -> int:
        """MiB of all processes of the pool."""
        return sum(standby.profile.memory_mb for standby in self._standbys.values())

    def standbys(self) -> tuple[Standby, ...]:
        """Return the processes of the pool, the oldest first."""
        return tuple(self._standbys.values())

    def count_ready(self) -> Counter[StandbyKind]:
        """Return how many processes of each kind a job can take now."""
        return Counter(standby.profile.kind for standby in self._in(StandbyState.READY))

    def ready(self, profile: StandbyProfile) -> str | None:
        """Return the id of a process that a job with this profile can take; None if no process fits."""
        return next((s.standby_id for s in self._in(StandbyState.READY) if s.profile == profile), None)

    def why_none(self, profile: StandbyProfile) -> str:
        """Return in words why ``ready`` returns None; "" if the pool keeps no process of this kind."""
        kind = profile.kind
        if not self.sizes.get(kind):
            return ""
        if any(s.profile == profile for s in self._in(StandbyState.WARMING)):
            return f"the standby {kind.value} was still warming up"
        if profile in self._failures:
            return f"the last such standby {kind.value} has failed; see the task manager's log"
        if any(s.profile.kind is kind for s in self._in(StandbyState.READY)):
            options = f" and the options {' '.join(profile.java_options)}" if profile.java_options else ""
            return f"no standby {kind.value} has a heap of {profile.heap_mb} MiB{options} yet"
        return f"no standby {kind.value} was ready"

    # --- changes ------------------------------------------------------------------------------------------------------

    def handle(self, event: StandbyEvent, now: float) -> list[StandbyEffect]:
        """Return what to do after an event. Raises IllegalTransition for a process that cannot have this event."""
        match event:
            case Asked():
                if event.fits:
                    self._asked.setdefault(event.profile.kind, deque(maxlen=REMEMBERED)).append(event.profile)
            case Warmed():
                self._warmed(event.standby_id)
            case StandbyTaken():
                self._taken(event.standby_id)
            case TakeEnded():
                self._take_ended(event, now)
            case StandbyEnded():
                self._ended(event, now)
            case Look():
                self._free_mb, self._is_busy = event.free_mb, event.is_busy
        return [*self._give_back(now), *self._refill(now)]

    def _warmed(self, standby_id: str) -> None:
        standby = self._standbys.get(standby_id)
        if standby is not None and standby.state is StandbyState.WARMING:  # otherwise it was ended in the meantime
            standby.state = StandbyState.READY

    def _taken(self, standby_id: str) -> None:
        standby = self._standbys.get(standby_id)
        if standby is None or standby.state is not StandbyState.READY:
            raise IllegalTransition("standby pool", "absent" if standby is None else standby.state.value, "taken", ())
        del self._standbys[standby_id]

    def _take_ended(self, event: TakeEnded, now: float) -> None:
        if event.failed:
            self._failed(event.profile, now)
        else:
            # Only this proves that such processes work: one that fails soon after its warm-up would be warmed again
            # and again otherwise.
            self._failures.pop(event.profile, None)

    def _ended(self, event: StandbyEnded, now: float) -> None:
        standby = self._standbys.pop(event.standby_id, None)
        if standby is None or standby.state is StandbyState.ENDING:
            return
        self._failed(standby.profile, now)

    def _failed(self, failed_profile: StandbyProfile, now: float) -> None:
        """Count a failure, and wait before the next process with this profile."""
        known = {profile for asked in self._asked.values() for profile in asked}
        self._failures = {profile: failed for profile, failed in self._failures.items() if profile in known}
        earlier = self._failures.get(failed_profile)
        count = 1 if earlier is None else earlier.count + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(count - 1, 30), LONGEST_PAUSE)
        self._failures[failed_profile] = _Failures(count, now + pause)

    def _give_back(self, now: float) -> Iterator[StandbyEffect]:
        """End processes, the least useful first, if they have used reserved memory for a while."""
        if self._excess() <= 0:
            self._over_since = None
            return
        if self._over_since is None:
            self._over_since = now
        if now - self._over_since < PRESSURE_SECONDS:
            return
        for standby in (*self._in(StandbyState.WARMING), *reversed(self._in(StandbyState.READY))):
            if self._excess() <= 0:
                return
            yield self._end(standby, "slots and drivers need its memory")

    def _refill(self, now: float) -> Iterator[StandbyEffect]:
        """Start one process if one is missing and neither jobs nor another warm-up need the machine.

        A ready process that is no longer wanted is ended first if the missing one needs its place.
        """
        if self._is_busy or self._in(StandbyState.WARMING) or self._over_since is not None:
            return
        for kind, size in self.sizes.items():
            members = [standby for standby in self._standbys.values() if standby.profile.kind is kind]
            present = Counter(standby.profile for standby in members)
            wanted = self._wanted(kind)
            for profile in (wanted - present).elements():
                failed = self._failures.get(profile)
                if failed is not None and now < failed.resume_at:
                    continue
                if len(members) < size and self.memory_mb + profile.memory_mb <= self._free_mb:
                    yield self._start(profile)
                    return
                replaced = self._replaced(present - wanted, profile)
                if replaced is not None:
                    yield self._end(replaced, "jobs ask for other processes now")
                    return

    def _replaced(self, surplus: Counter[StandbyProfile], profile: StandbyProfile) -> Standby | None:
        """Return a ready process, one of ``surplus``, in whose place a process with this profile has enough memory."""
        missing_mb = self.memory_mb + profile.memory_mb - self._free_mb
        ready = (standby for standby in self._in(StandbyState.READY) if standby.profile in surplus)
        return next((standby for standby in ready if standby.profile.memory_mb >= missing_mb), None)

    def _start(self, profile: StandbyProfile) -> StartStandby:
        self._started += 1
        standby = Standby(f"{profile.kind.value}-{self._started}", profile)
        self._standbys[standby.standby_id] = standby
        return StartStandby(standby.standby_id, profile)

    def _wanted(self, kind: StandbyKind) -> Counter[StandbyProfile]:
        """Return the profiles to keep: those that jobs asked for most often lately, the newest first among equals."""
        asked = self._asked.get(kind)
        size = self.sizes.get(kind, 0)
        if not asked or size == 0:
            return Counter()
        counts = Counter(reversed(asked))
        ranked = [profile for profile, _ in counts.most_common()]
        return Counter(ranked[number % len(ranked)] for number in range(size))

    def _end(self, standby: Standby, reason: str) -> EndStandby:
        standby.state = StandbyState.ENDING
        return EndStandby(standby.standby_id, reason)

    def _excess(self) -> int:
        return sum(standby.profile.memory_mb for standby in self._living()) - self._free_mb

    def _in(self, state: StandbyState) -> list[Standby]:
        return [standby for standby in self._standbys.values() if standby.state is state]

    def _living(self) -> list[Standby]:
        return [standby for standby in self._standbys.values() if standby.state is not StandbyState.ENDING]

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert len(self._in(StandbyState.WARMING)) <= 1, "one warm-up at a time"  # noqa: S101
        for kind in StandbyKind:
            members = [standby for standby in self._standbys.values() if standby.profile.kind is kind]
            assert len(members) <= self.sizes.get(kind, 0), f"too many standby {kind.value}s"  # noqa: S101
