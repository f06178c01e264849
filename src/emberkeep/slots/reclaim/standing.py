"""What a plan of who gives slots back is made from, and what it consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from emberkeep.base.ids import JobId
from emberkeep.slots.model import Reclaim, ResourceProfile, RuntimeVersions


class SlotSize(NamedTuple):
    """What a job needs of each of its slots."""

    profile: ResourceProfile
    runtime: RuntimeVersions

    def serves(self, other: SlotSize) -> bool:
        """True if the room of one such slot is enough for one of the ``other`` size."""
        return self.runtime == other.runtime and other.profile.fits_in(self.profile)


@dataclass(frozen=True)
class JobStanding:
    """One job at one moment.

    - ``staying``, ``leaving``: slots that it holds where slots may be given, and how many of its further ones there
      become free soon. ``elsewhere``: slots that it holds in other places.
    - ``missing``: slots that it has lacked long enough.
    - ``least``, ``elastic``: see ``Gives``. ``capped``: it has a ceiling now. ``put_back``: that leaves it no slot.
    - ``spared``: it was put back a short time ago, and is not for a job that is only preferred.
    """

    job_id: JobId
    order: int
    size: SlotSize
    namespace: str = ""
    priority: int = 0
    gang: bool = False
    staying: int = 0
    leaving: int = 0
    elsewhere: int = 0
    missing: int = 0
    least: int = 0
    elastic: bool = False
    capped: bool = False
    put_back: bool = False
    spared: bool = False

    @property
    def kept(self) -> int:
        """Slots that it will hold, as far as is known."""
        return self.staying + self.elsewhere


@dataclass(frozen=True)
class ReclaimPlan:
    """``ceilings``: what jobs have to give back. ``claims``: for how many slots each job is served first.

    ``taken``: how many slots each job is newly asked for, beyond those that are on their way.
    """

    ceilings: Mapping[JobId, Reclaim] = field(default_factory=dict)
    claims: Mapping[JobId, int] = field(default_factory=dict)
    taken: Mapping[JobId, int] = field(default_factory=dict)
