"""Which nodes are to be blocked for what happens there: opt-in, and slow to believe anything (BLK-19).

A node is suspected when executors or drivers of several jobs fail there in a way that speaks against the node, and each
of these jobs works elsewhere meanwhile. A job that fails wherever it runs is no witness, however often it fails, nor is
one that runs nowhere else: it may be the job. What happened before a block, or before somebody unblocked a node, does
not count any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import CAUSE_LENGTH
from emberkeep.blocklist.symptoms import Symptom

JOBS_KEPT = 2000  # that have failed somewhere lately; beyond that those whose last failure is oldest are forgotten
FAILURES_KEPT = 20  # of one job on one node
_JOBS_NAMED = 5


@dataclass(frozen=True)
class DetectionLimits:
    """``witnesses``: jobs that have to agree. ``max_share``: of all nodes that may be blocked at a time, by whomever;
    a blocked node counts as one of them also while it is away.
    Seconds: a failure counts for ``window``; a job works on a node when it has done so for ``proof``; nobody suspects a
    node for ``respect`` after it was unblocked by hand."""

    witnesses: int
    max_share: float
    window: float
    proof: float
    respect: float


@dataclass(frozen=True)
class Suspicion:
    """A node that is to be blocked, and why."""

    node_id: str
    cause: str


@dataclass
class _Presence:
    """One job on one node. ``works_since``: its executors there have worked from then on, as far as was seen."""

    failures: list[tuple[float, Symptom]] = field(default_factory=list)  # oldest first
    works_since: float | None = None
    works_at: float = 0.0  # seen last
    proven: bool = False  # the job has succeeded with them


@dataclass
class _Record:
    """What is known of one job since it failed for the first time."""

    nodes: dict[str, _Presence] = field(default_factory=dict)
    failed_at: float = 0.0


class FaultDetector:
    """Times are monotonic seconds, passed in."""

    def __init__(self, limits: DetectionLimits) -> None:
        self._limits = limits
        self._jobs: dict[JobId, _Record] = {}  # the last to fail at the end
        self._respected: dict[str, float] = {}  # until when

    # --- what is seen -------------------------------------------------------------------------------------------------

    def failed(self, job_id: JobId, node_id: str, symptom: Symptom, now: float) -> None:
        """A process of the job has failed there."""
        record = self._jobs.pop(job_id, None) or _Record()
        self._jobs[job_id] = record
        record.failed_at = now
        presence = record.nodes.setdefault(node_id, _Presence())
        presence.failures = [*presence.failures, (now, symptom)][-FAILURES_KEPT:]
        presence.works_since = None
        while len(self._jobs) > JOBS_KEPT:
            del self._jobs[next(iter(self._jobs))]

    def runs(self, job_id: JobId, node_ids: Collection[str], now: float) -> None:
        """Where executors of the job are registered with Spark now. Costs nothing for a job that has not failed."""
        record = self._jobs.get(job_id)
        if record is None:
            return
        for node_id in node_ids:
            presence = record.nodes.setdefault(node_id, _Presence())
            if presence.works_since is None:
                presence.works_since = now
            presence.works_at = now
        for node_id, presence in record.nodes.items():
            if node_id not in node_ids:
                presence.works_since = None

    def succeeded(self, job_id: JobId) -> None:
        """The job has done its work, so it works where its executors were in the end."""
        record = self._jobs.get(job_id)
        for presence in record.nodes.values() if record is not None else ():
            presence.proven = presence.works_since is not None

    def unblocked(self, node_id: str, at: float) -> None:
        """Somebody has wanted the node to be used then."""
        self._respected[node_id] = at + self._limits.respect
        self._forget_nodes(frozenset((node_id,)))

    # --- what follows -------------------------------------------------------------------------------------------------

    def decide(self, nodes: Collection[str], blocked: frozenset[str], now: float) -> list[Suspicion]:
        """Nodes to block now. ``nodes``: those that are there; ``blocked``: all that are blocked, there or not, so that
        room does not grow again when they are taken away."""
        self._forget_old(now)
        self._forget_nodes(blocked)
        for node_id in self._respected.keys() & blocked:
            del self._respected[node_id]  # somebody has blocked it since
        room = int(self._limits.max_share * len({*nodes, *blocked})) - len(blocked)
        suspects = []
        for node_id in self._failing():
            if node_id not in nodes or node_id in blocked or node_id in self._respected:
                continue
            witnesses = self._witnesses(node_id, now)
            if len(witnesses) >= self._limits.witnesses:
                suspects.append((len(witnesses), node_id, witnesses))
        suspects.sort(key=lambda suspect: (-suspect[0], suspect[1]))
        return [Suspicion(node_id, self._cause(node_id, jobs)) for _, node_id, jobs in suspects[: max(0, room)]]

    def _failing(self) -> list[str]:
        found = {node: None for record in self._jobs.values() for node, seen in record.nodes.items() if seen.failures}
        return list(found)

    def _witnesses(self, node_id: str, now: float) -> list[JobId]:
        return [job_id for job_id, record in self._jobs.items() if self._is_witness(record, node_id, now)]

    def _is_witness(self, record: _Record, node_id: str, now: float) -> bool:
        """It fails there and works elsewhere, on at least half as many nodes as it fails on."""
        here = record.nodes.get(node_id)
        if here is None or not here.failures:
            return False
        failing = sum(bool(presence.failures) for presence in record.nodes.values())
        working = sum(self._works(presence) for presence in record.nodes.values())
        return 2 * working >= failing

    def _works(self, presence: _Presence) -> bool:
        if presence.failures or presence.works_since is None:
            return False
        return presence.proven or presence.works_at - presence.works_since >= self._limits.proof

    def _cause(self, node_id: str, jobs: list[JobId]) -> str:
        symptoms = Counter(
            symptom.value for job_id in jobs for _, symptom in self._jobs[job_id].nodes[node_id].failures
        )
        (what, _), *_ = symptoms.most_common(1)
        named = ", ".join(job_id[:8] for job_id in jobs[:_JOBS_NAMED])
        more = ", …" if len(jobs) > _JOBS_NAMED else ""
        cause = (
            f"detected: {what}: processes of {len(jobs)} jobs ({named}{more}) failed here {symptoms.total()} times "
            f"within {self._limits.window:g} s, and work on other nodes"
        )
        return cause[:CAUSE_LENGTH]

    def _forget_nodes(self, node_ids: frozenset[str]) -> None:
        for record in self._jobs.values():
            for node_id in record.nodes.keys() & node_ids:
                del record.nodes[node_id]

    def _forget_old(self, now: float) -> None:
        oldest = now - self._limits.window
        for node_id in [node_id for node_id, until in self._respected.items() if until <= now]:
            del self._respected[node_id]
        for job_id, record in list(self._jobs.items()):
            if record.failed_at < oldest:
                del self._jobs[job_id]
                continue
            for presence in record.nodes.values():
                while presence.failures and presence.failures[0][0] < oldest:
                    del presence.failures[0]
