"""Which nodes are to be blocked for what happens there: opt-in, and slow to believe anything (BLK-19).

A node is suspected when executors or drivers of several jobs fail there in a way that speaks against the node, and each
of these jobs works elsewhere meanwhile. A job that fails wherever it runs is no witness, however often it fails, nor is
one that runs nowhere else: it may be the job. Nor do its victims count: where a job fills disks or memory that others
need as well, they fail wherever it goes. What happened before a block, or before somebody unblocked a node, does not
count any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import CAUSE_LENGTH
from emberkeep.blocklist.symptoms import Symptom

JOBS_KEPT = 2000  # that have failed somewhere lately; beyond that those whose last failure is oldest are forgotten
FAILURES_KEPT = 20  # of one job on one node
_JOBS_NAMED = 5
_LONG = 4  # times as long as a witness has to work
_SHARED = (Symptom.NO_SPACE, Symptom.NO_MEMORY)  # what a job that takes too much leaves to others


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
class _Failures:
    """Of one job on one node. ``against``: what speaks against the node, oldest first. ``last``: when it failed there
    last with each symptom; that speaks of the job, so it stays when nothing is held against the node any more."""

    against: list[tuple[float, Symptom]] = field(default_factory=list)
    last: dict[Symptom, float] = field(default_factory=dict)


@dataclass
class _Work:
    """One job's executors on one node have worked since then, as far as was seen."""

    since: float
    seen: float  # last
    proven: bool = False  # the job has succeeded with them


@dataclass
class _Record:
    """What is known of one job since it failed for the first time, by node."""

    failures: dict[str, _Failures] = field(default_factory=dict)
    work: dict[str, _Work] = field(default_factory=dict)
    failed_at: float = 0.0

    def accuses(self, node_id: str) -> tuple[Symptom, ...]:
        """What it has failed with there."""
        failures = self.failures.get(node_id)
        return tuple(symptom for _, symptom in failures.against) if failures is not None else ()


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
        failures = record.failures.setdefault(node_id, _Failures())
        failures.against = [*failures.against, (now, symptom)][-FAILURES_KEPT:]
        failures.last[symptom] = now
        record.work.pop(node_id, None)
        while len(self._jobs) > JOBS_KEPT:
            del self._jobs[next(iter(self._jobs))]

    def runs(self, job_id: JobId, node_ids: Collection[str], now: float) -> None:
        """Where executors of the job are registered with Spark now. Costs nothing for a job that has not failed."""
        record = self._jobs.get(job_id)
        if record is None:
            return
        before, record.work = record.work, {node_id: _Work(now, now) for node_id in node_ids}
        for node_id in before.keys() & record.work.keys():
            record.work[node_id] = replace(before[node_id], seen=now)

    def succeeded(self, job_id: JobId) -> None:
        """The job has done its work, so it works where its executors were in the end."""
        record = self._jobs.get(job_id)
        for work in record.work.values() if record is not None else ():
            work.proven = True

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
        accused = Counter(node_id for record in self._jobs.values() for node_id in record.failures)
        suspects = [
            node_id
            for node_id in nodes
            if accused[node_id] >= self._limits.witnesses and node_id not in blocked and node_id not in self._respected
        ]
        if room <= 0 or not suspects:
            return []
        testimony = self._testimony(suspects)
        convicted = [node_id for node_id in suspects if len(testimony[node_id]) >= self._limits.witnesses]
        convicted.sort(key=lambda node_id: (-len(testimony[node_id]), node_id))
        return [Suspicion(node_id, self._cause(node_id, testimony[node_id])) for node_id in convicted[:room]]

    def _testimony(self, suspects: Collection[str]) -> dict[str, list[JobId]]:
        """By node: jobs that fail there, not as the victims of another one, and work elsewhere."""
        credible = [job_id for job_id, record in self._jobs.items() if self._works_elsewhere(record)]
        excused = self._excused(frozenset(credible))
        return {
            node_id: [
                job_id
                for job_id in credible
                if any((node_id, symptom) not in excused for symptom in self._jobs[job_id].accuses(node_id))
            ]
            for node_id in suspects
        }

    def _excused(self, credible: frozenset[JobId]) -> set[tuple[str, Symptom]]:
        """Nodes where others may have failed because one job took too much. That is one that fails on two nodes or
        more where so many others fail too that with its own word they would do for a block, and on few where nobody
        else does. One that works for long on more than twice as many nodes as it fails on takes too much nowhere."""
        failed = Counter(
            (node_id, symptom)
            for job_id in credible
            for node_id, failures in self._jobs[job_id].failures.items()
            for symptom in failures.last
        )
        excused: set[tuple[str, Symptom]] = set()
        for job_id, record in self._jobs.items():
            if self._working(record, _LONG * self._limits.proof) > 2 * len(record.failures):
                continue
            itself = job_id in credible
            for symptom in _SHARED:
                others = {
                    (node_id, symptom): failed[node_id, symptom] - itself
                    for node_id, failures in record.failures.items()
                    if symptom in failures.last
                }
                harmed = [place for place, count in others.items() if count >= self._limits.witnesses - 1]
                if len(harmed) > 1 and 2 * sum(count > 0 for count in others.values()) >= len(others):
                    excused.update(harmed)
        return excused

    def _works_elsewhere(self, record: _Record) -> bool:
        """It works on at least half as many nodes as it fails on."""
        return 2 * self._working(record, self._limits.proof) >= len(record.failures)

    def _working(self, record: _Record, seconds: float) -> int:
        """On how many nodes it works, and has for so long, or has proved it."""
        return sum(
            not record.accuses(node_id) and (work.proven or work.seen - work.since >= seconds)
            for node_id, work in record.work.items()
        )

    def _cause(self, node_id: str, jobs: list[JobId]) -> str:
        symptoms = Counter(symptom.value for job_id in jobs for symptom in self._jobs[job_id].accuses(node_id))
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
            for node_id in record.failures.keys() & node_ids:
                record.failures[node_id].against.clear()
            for node_id in record.work.keys() & node_ids:
                del record.work[node_id]

    def _forget_old(self, now: float) -> None:
        oldest = now - self._limits.window
        for node_id in [node_id for node_id, until in self._respected.items() if until <= now]:
            del self._respected[node_id]
        for job_id, record in list(self._jobs.items()):
            if record.failed_at < oldest:
                del self._jobs[job_id]
                continue
            for node_id, failures in list(record.failures.items()):
                while failures.against and failures.against[0][0] < oldest:
                    del failures.against[0]
                failures.last = {symptom: at for symptom, at in failures.last.items() if at >= oldest}
                if not failures.last:
                    del record.failures[node_id]
