"""One leader's term: the epoch that all its orders carry, its clocks and its right to decide."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs.hearing import Hearing


@dataclass(frozen=True)
class Term:
    """What the actors of one leader share, from the opening of its job store until it stops leading.

    ``lineage`` names the job store. ``clock`` stops while ``authority`` is in doubt.
    """

    epoch: int
    lineage: str
    clock: SteadyClock
    hearing: Hearing
    authority: Authority
