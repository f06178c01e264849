"""What a history has shown: which rules were applied to a job that a fault had hit, and in which state it was then.

A rule of the checker that meets no occasion shows nothing, so it is not enough that a fault has happened. A triple
(rule, state, fault) is reached if the fault happened while a job was in the state, and the rule was applied to the job
within ``WINDOW`` seconds; or at the end, if the rule is one about how everything ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.support.simulator import properties, standby_properties
from tests.support.simulator.simulation import Run

WINDOW = 30.0  # virtual seconds
UNDECIDED, ENDED = "without a leader", "ended"
PROCEDURES = ("SAVEPOINT", "SUSPEND", "DRAIN", "MOVE")
STATES = (
    *(status.value for status in JobStatus if not status.is_globally_terminal),
    *PROCEDURES,
    UNDECIDED,
    ENDED,
)
# The letters of the rules, as the modules that check them describe them.
RULES = "".join(
    sorted(set(re.findall(r"^\((\w)\) ", f"{properties.__doc__}{standby_properties.__doc__}", re.MULTILINE)))
)
Triple = tuple[str, str, str]  # rule, state, fault


@dataclass(frozen=True)
class _Hit:
    at: float
    job_id: str
    state: str
    kind: str


class Coverage:
    """Watches one run. ``triples`` has what was reached."""

    def __init__(self, run: Run) -> None:
        self.triples: set[Triple] = set()
        self._run = run
        self._hits: list[_Hit] = []
        run.cluster.history.on_judged.append(self._judged)

    def fault(self, kind: str) -> None:
        """Note in which state each job is hit by a fault. Call this before the fault is applied."""
        now = self._run.loop.time()
        for job in self._run.cluster.jobs:
            if job.job_id is not None:
                self._hits.append(_Hit(now, job.job_id, self._state(job.job_id), kind))

    def withdraw(self, kind: str) -> None:
        """Forget the fault that was just noted, because it had no target."""
        now = self._run.loop.time()
        self._hits = [hit for hit in self._hits if (hit.at, hit.kind) != (now, kind)]

    def ended(self) -> None:
        """Note the rules about how everything ends, which have been checked now."""
        plan, cluster = self._run.cluster.plan, self._run.cluster
        rules = "af" + ("h" if plan.files else "") + ("p" if plan.only_agents else "")
        if cluster.keeps_standbys:
            rules += "st" + ("u" if plan.options.get("execution.standby") == "hot" else "")
        rules += "x" if self._run.properties.namespaces.has_guarantees else ""
        rules += "y" if plan.owned_storage else ""
        self.triples.update((rule, hit.state, hit.kind) for rule in rules for hit in self._hits)

    def _judged(self, rule: str, job_id: str) -> None:
        since = self._run.loop.time() - WINDOW
        for hit in reversed(self._hits):
            if hit.at < since:
                break
            if not job_id or hit.job_id == job_id:
                self.triples.add((rule, hit.state, hit.kind))

    def _state(self, job_id: JobId) -> str:
        """Return the request that is being carried out for a job, or else the status that was last shown."""
        cluster, checked = self._run.cluster, self._run.properties
        handle, status, leader = cluster.store.disk.jobs.get(job_id), checked.shown.get(job_id), cluster.jm_process
        if handle is None or job_id in checked.results:
            return ENDED
        if leader is None or not leader.alive or leader.frozen or status is None:
            return UNDECIDED
        if handle.procedure is not None:
            return handle.procedure.procedure.value
        return ENDED if status.is_globally_terminal else status.value


def pairs(triples: Iterable[Triple], one: int, other: int) -> set[tuple[str, str]]:
    """Return the pairs of two of the three coordinates that are part of a triple."""
    return {(triple[one], triple[other]) for triple in triples}


def never(triples: Iterable[Triple], kinds: Iterable[str]) -> Iterator[Triple]:
    """Yield all triples that were not reached."""
    reached = set(triples)
    for kind in kinds:
        for state in STATES:
            for rule in RULES:
                if (rule, state, kind) not in reached:
                    yield rule, state, kind


def rarest(triples: Iterable[Triple], kinds: Iterable[str], count: int) -> list[str]:
    """Return the ``count`` kinds of faults with which the fewest triples were reached, the rarest first."""
    reached = dict.fromkeys(kinds, 0)
    for _, _, kind in triples:
        reached[kind] = reached.get(kind, 0) + 1
    return sorted(reached, key=lambda kind: (reached[kind], kind))[:count]
