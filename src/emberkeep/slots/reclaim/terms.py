"""What namespaces are guaranteed, and which jobs have to give slots back for that."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

GUARANTEES_KEY: Final = "security.quota.guaranteed-slots"


class Preemption(enum.Enum):
    """Which jobs give slots back while they run."""

    NONE = "none"
    ELASTIC = "elastic"  # those whose number of executors changes anyway
    EXECUTORS = "executors"  # then also those with a fixed number of executors, if their priority is lower
    JOBS = "jobs"  # then also jobs of a lower priority as a whole: they wait until slots are free

    @property
    def takes_from_fixed(self) -> bool:
        """True if jobs with a fixed number of executors give some of them back."""
        return self in (Preemption.EXECUTORS, Preemption.JOBS)


@dataclass(frozen=True)
class ReclaimTerms:
    """The settings. ``guarantees``: slots by namespace. ``maximum``: of each namespace; 0: no limit."""

    guarantees: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    maximum: int = 0
    preemption: Preemption = Preemption.ELASTIC

    @property
    def total(self) -> int:
        """Slots that are guaranteed in all."""
        return sum(self.guarantees.values())

    def guarantee(self, namespace: str) -> int:
        return self.guarantees.get(namespace, 0)
