"""The record of one history, as a file, and its judgement. A kept record can be judged again without the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from campaign.kept import read_kept
from campaign.linearizability.blocklist import BlocklistModel, with_expiries
from campaign.linearizability.checker import Outcome, Verdict, check
from campaign.linearizability.history import Operation
from campaign.linearizability.job_store import JobStoreModel
from campaign.processes.deeds import Deed, Ended, Overlap, Rules, judge
from campaign.processes.gateways.late_writes import LateWrite, judge_late_writes
from campaign.processes.gateways.stored import StoredEntry, judge_stored
from campaign.processes.plan import CUTS, NETWORK_KINDS, HistoryPlan
from campaign.processes.strikes import Strike
from campaign.processes.transfers.hits import ALL_TRANSFERS
from campaign.processes.transfers.seen import SeenFile, judge_seen

VERSION = 1


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of one history. ``unix_minus_clock``: seconds. ``problems``: what did not recover.

    By job: ``stored``, the files of those whose entries go through state gateways; ``late``, the requests for attempts
    of these that were over; ``seen``, what executors have found of their jobs' files.
    """

    version: int = VERSION
    plan: HistoryPlan
    rules: Rules
    unix_minus_clock: float
    strikes: tuple[Strike, ...]
    jobs: tuple[Operation, ...]
    blocklist: tuple[Operation, ...]
    answered: tuple[tuple[float, float], ...]
    counts: dict[str, int]
    deeds: dict[str, tuple[Deed, ...]]
    stored: dict[str, tuple[StoredEntry, ...]] = {}
    late: dict[str, tuple[LateWrite, ...]] = {}
    seen: dict[str, tuple[SeenFile, ...]] = {}
    ends: tuple[Ended, ...]
    problems: tuple[str, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """``undecided``: objects whose search has reached its limit."""

    violations: tuple[str, ...]
    undecided: int
    objects: int
    overlaps: tuple[Overlap, ...]


def judge_record(record: HistoryRecord) -> Judgement:
    """Return what is wrong with a history."""
    violations = list(record.problems)
    verdicts = [
        *(("job store", each) for each in check(record.jobs, JobStoreModel())),
        *(
            ("blocklist", each)
            for each in check(with_expiries(record.blocklist, record.unix_minus_clock), BlocklistModel())
        ),
    ]
    violations += [f"{history}: {verdict}" for history, verdict in verdicts if verdict.outcome is Outcome.VIOLATED]
    overlaps: list[Overlap] = []
    cut = tuple((strike.at, strike.until) for strike in record.strikes if strike.kind in CUTS)
    rules = msgspec.structs.replace(record.rules, cut=cut)
    for end in record.ends:
        found, explained = judge(record.deeds.get(end.job_id, ()), end, rules)
        violations += found
        overlaps += explained
        violations += [f"job {end.job_id}: {each}" for each in _judge_files(record, end.job_id)]
    return Judgement(
        violations=tuple(violations),
        undecided=sum(_is_undecided(verdict) for _, verdict in verdicts),
        objects=len(verdicts),
        overlaps=tuple(overlaps),
    )


def _judge_files(record: HistoryRecord, job_id: str) -> list[str]:
    """Return the violations in what a job has stored through state gateways, and in what it was given."""
    found = judge_seen(record.seen.get(job_id, ()))
    if job_id in record.stored:
        stored = record.stored[job_id]
        found += judge_stored(record.deeds.get(job_id, ()), stored)
        found += judge_late_writes(record.late.get(job_id, ()), stored)
    return found


def _is_undecided(verdict: Verdict) -> bool:
    return verdict.outcome is Outcome.UNDECIDED


def recoveries(record: HistoryRecord) -> Iterator[tuple[str, float]]:
    """Yield for each fault its kind, and the seconds until what it struck worked again.

    For a JobManager and ZooKeeper: until a request that was sent after the fault has a reply. For a driver and a state
    gateway: until the job has done something, in any attempt. Other faults are not measured.
    """
    works = {job: sorted(deed.at for deed in deeds) for job, deeds in record.deeds.items()}
    drivers = {str(deed.pid): job for job, deeds in record.deeds.items() for deed in deeds}
    for strike in record.strikes:
        what = strike.kind.rpartition(": ")[2] if strike.kind in NETWORK_KINDS else strike.kind.partition(" ")[2]
        if what in ("leader", "standby") or what.startswith("zookeeper"):
            replies = [returned for sent, returned in record.answered if sent >= strike.at]
        elif (what == "driver" or what.startswith("gateway")) and strike.target in drivers:
            replies = [at for at in works[drivers[strike.target]] if at > strike.at]
        else:
            continue
        if replies:
            yield strike.kind, min(replies) - strike.at


def counted(record: HistoryRecord) -> Counter[str]:
    """Return how often each kind of fault was applied."""
    return Counter(strike.kind for strike in record.strikes)


def hits_of_transfers(record: HistoryRecord) -> Counter[str]:
    """Return how many faults have hit a running BLOB transfer, ALL_TRANSFERS and by where. One may hit several."""
    hits = [strike.transfers for strike in record.strikes if strike.transfers]
    found = Counter(where for each in hits for where in each)
    if hits:
        found[ALL_TRANSFERS] = len(hits)
    return found


def read_record(path: Path) -> HistoryRecord:
    """Read a kept history. Raises ValueError that names the file if it is damaged or of another version."""
    return read_kept(path, HistoryRecord, VERSION)
