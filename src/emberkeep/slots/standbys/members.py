"""The processes of a standby pool."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from emberkeep.base.ids import JobId
from emberkeep.slots.standbys.events import StandbyKind, StandbyProfile


class StandbyState(enum.Enum):
    WARMING = "WARMING"
    PREPARING = "PREPARING"  # warm, and gets what its job needs
    READY = "READY"
    ENDING = "ENDING"


@dataclass
class Standby:
    """A process of the pool. It leaves the pool once it is taken or has ended.

    ``job_id``: the only job that can take it; None if any job can.
    """

    standby_id: str
    profile: StandbyProfile
    job_id: JobId | None = None
    state: StandbyState = StandbyState.WARMING


class StandbyMembers:
    """The processes of one pool, the oldest first, by the ids that this class gives them."""

    def __init__(self) -> None:
        self._by_id: dict[str, Standby] = {}
        self._started = 0

    def __iter__(self) -> Iterator[Standby]:
        return iter(self._by_id.values())

    def start(self, profile: StandbyProfile, job_id: JobId | None) -> Standby:
        """Add a process that warms up."""
        self._started += 1
        standby = Standby(f"{profile.kind.value}-{self._started}", profile, job_id)
        self._by_id[standby.standby_id] = standby
        return standby

    def get(self, standby_id: str) -> Standby | None:
        return self._by_id.get(standby_id)

    def pop(self, standby_id: str) -> Standby | None:
        """Remove a process; None if there is no such one."""
        return self._by_id.pop(standby_id, None)

    def of(self, job_id: JobId) -> Standby | None:
        """Return the job's reserved standby, in any state."""
        return next((standby for standby in self if standby.job_id == job_id), None)

    def in_state(self, state: StandbyState) -> list[Standby]:
        return [standby for standby in self if standby.state is state]

    def for_any(self, kind: StandbyKind) -> list[Standby]:
        """Return the processes of a kind that are not reserved, in any state."""
        return [standby for standby in self if standby.profile.kind is kind and standby.job_id is None]

    def ready_for_any(self) -> list[Standby]:
        """Return the processes that any job can take now."""
        return [standby for standby in self.in_state(StandbyState.READY) if standby.job_id is None]

    def living(self) -> list[Standby]:
        """Return the processes that the pool does not end."""
        return [standby for standby in self if standby.state is not StandbyState.ENDING]

    def living_for_any(self, kind: StandbyKind) -> list[Standby]:
        """Return the processes of a kind that are not reserved and that the pool does not end."""
        return [standby for standby in self.for_any(kind) if standby.state is not StandbyState.ENDING]

    @property
    def memory_mb(self) -> int:
        """MiB of all processes."""
        return sum(standby.profile.memory_mb for standby in self)

    def check_invariants(self, sizes: dict[StandbyKind, int]) -> None:
        """Raise AssertionError if the processes contradict each other, or the sizes of the pool."""
        assert len(self.in_state(StandbyState.WARMING)) <= 1, "one warm-up at a time"  # noqa: S101
        for kind in StandbyKind:
            assert len(self.living_for_any(kind)) <= sizes.get(kind, 0), f"too many standby {kind.value}s"  # noqa: S101
        reserved = Counter(standby.job_id for standby in self if standby.job_id is not None)
        assert all(count == 1 for count in reserved.values()), "one reserved standby for each job"  # noqa: S101
