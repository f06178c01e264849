"""Decide which nodes to block because of the failures there. Opt-in and deliberately slow (BLK-19).

A node is suspected when executors or drivers of several jobs fail there with symptoms that point to the node, while
each of these jobs runs successfully on other nodes. Such a job is a *witness*.

- A job that fails wherever it runs, or runs nowhere else, does not count as a witness: the job itself may be the cause.
- A lack of disk space or memory is no symptom (``symptoms``): the victims of a job that fills disks work elsewhere, so
  they would look like witnesses. Full disks are measured instead (``slots.restrictions``).
- Failures from before a block, or from before an operator unblocked the node, do not count against the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import CAUSE_LENGTH
from emberkeep.blocklist.symptoms import Symptom

JOBS_KEPT = 2000  # jobs with recent failures; beyond that, the job whose last failure is oldest is forgotten
FAILURES_KEPT = 20  # for one job on one node, the newest ones
_JOBS_NAMED = 5


@dataclass(frozen=True)
class DetectionLimits:
    """The limits of detection.

    - ``witnesses``: number of jobs that must agree.
    - ``max_share``: largest share of all nodes that may be blocked at a time, by detection or by an operator. A blocked
      node counts as one of all nodes even while it is away.
    - ``window``: seconds for which a failure is evidence.
    - ``proof``: seconds that a job must have worked on a node to count as working there.
    - ``respect``: seconds after a manual unblock for which the node is not suspected.
    """

    witnesses: int
    max_share: float
    window: float
    proof: float
    respect: float


@dataclass(frozen=True)
class Suspicion:
    """A node to block, and why."""

    node_id: str
    cause: str


@dataclass
class _Failures:
    """Failures of one job on one node.

    ``against``: failures that count against the node, oldest first. Cleared when the node is blocked or unblocked.
    ``last``: time of the job's last failure there. Not cleared then, because it is evidence about the job: it shows on
    how many nodes the job fails.
    """

    against: list[tuple[float, Symptom]] = field(default_factory=list)
    last: float = 0.0


@dataclass
class _Work:
    """A period in which one job's executors on one node are known to have worked."""

    since: float
    seen: float  # time of the last look
    proven: bool = False  # the job has succeeded with them


@dataclass
class _Record:
    """Facts about one job, by node, since its first failure."""

    failures: dict[str, _Failures] = field(default_factory=dict)
    work: dict[str, _Work] = field(default_factory=dict)
    failed_at: float = 0.0

    def accuses(self, node_id: str) -> tuple[Symptom, ...]:
        """Return the symptoms of the job's failures that count against the node."""
        failures = self.failures.get(node_id)
        return tuple(symptom for _, symptom in failures.against) if failures is not None else ()


class FaultDetector:
    """Finds nodes to block. Times are monotonic seconds, passed in."""

    def __init__(self, limits: DetectionLimits) -> None:
        self._limits = limits
        self._jobs: dict[JobId, _Record] = {}  # in the order of their last failures
        self._respected: dict[str, float] = {}  # node id -> time until which it is not suspected

    # --- observations -------------------------------------------------------------------------------------------------

    def failed(self, job_id: JobId, node_id: str, symptom: Symptom, now: float) -> None:
        """Note that a process of the job failed on the node."""
        record = self._jobs.pop(job_id, None) or _Record()
        self._jobs[job_id] = record
        record.failed_at = now
        failures = record.failures.setdefault(node_id, _Failures())
        failures.against = [*failures.against, (now, symptom)][-FAILURES_KEPT:]
        failures.last = now
        record.work.pop(node_id, None)
        while len(self._jobs) > JOBS_KEPT:
            del self._jobs[next(iter(self._jobs))]

    def runs(self, job_id: JobId, node_ids: Collection[str], now: float) -> None:
        """Note on which nodes the job's executors are registered with Spark now.

        Costs nothing for a job without failures.
        """
        record = self._jobs.get(job_id)
        if record is None:
            return
        before, record.work = record.work, {node_id: _Work(now, now) for node_id in node_ids}
        for node_id in before.keys() & record.work.keys():
            record.work[node_id] = replace(before[node_id], seen=now)

    def succeeded(self, job_id: JobId) -> None:
        """Note that the job has succeeded, which proves that it works on the nodes where it ran last."""
        record = self._jobs.get(job_id)
        for work in record.work.values() if record is not None else ():
            work.proven = True

    def unblocked(self, node_id: str, at: float) -> None:
        """Note that an operator unblocked the node at ``at``: earlier failures no longer count against the node."""
        self._respected[node_id] = at + self._limits.respect
        self._forget_nodes(frozenset((node_id,)))

    # --- decisions ----------------------------------------------------------------------------------------------------

    def decide(self, nodes: Collection[str], blocked: frozenset[str], now: float) -> list[Suspicion]:
        """Return the nodes to block now.

        ``nodes``: those that are registered. ``blocked``: all blocked nodes, registered or not, so that the room for
        further blocks does not grow when blocked nodes leave the cluster.
        """
        self._forget_old(now)
        self._forget_nodes(blocked)
        for node_id in self._respected.keys() & blocked:
            del self._respected[node_id]  # it has been blocked again since
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
        """Return, for each suspect, the jobs that fail there and work elsewhere."""
        credible = [job_id for job_id, record in self._jobs.items() if self._works_elsewhere(record)]
        return {node_id: [job_id for job_id in credible if self._jobs[job_id].accuses(node_id)] for node_id in suspects}

    def _works_elsewhere(self, record: _Record) -> bool:
        """True if the job works on at least half as many nodes as it fails on.

        It works on a node if it has no failures there that count, and has run for long enough or succeeded there.
        """
        working = sum(
            not record.accuses(node_id) and (work.proven or work.seen - work.since >= self._limits.proof)
            for node_id, work in record.work.items()
        )
        return 2 * working >= len(record.failures)

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
                if failures.last < oldest:
                    del record.failures[node_id]
