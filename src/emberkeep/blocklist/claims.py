"""What a job's driver may put on the cluster's blocklist. Pure.

A driver runs the job's own code, so what it reports is a claim, and the leader decides what it may cause. A claim never
evacuates, and one job cannot block more than detection may, or a node on which it has no slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import (
    CAUSES_KEPT,
    BlockAction,
    BlockedNode,
    Blocklist,
    EvacuatedDrivers,
    Report,
    is_of_platform,
)

CLAIMS_TAKEN = 100  # reports of one heartbeat; the rest is repeated with the next


@dataclass(frozen=True)
class ClaimLimits:
    """``max_share``: of all nodes, how much may be blocked after a claim. ``seconds``: how long a claim blocks."""

    max_share: float
    seconds: float


@dataclass(frozen=True)
class Claimant:
    """A job that reports nodes, as task managers know it.

    ``hosts``: nodes where its attempt has slots. ``nodes``: all that have a registered task manager.
    """

    job_id: JobId
    hosts: frozenset[str]
    nodes: frozenset[str]


def claim_prefix(job_id: JobId) -> str:
    """Return how the cause of each node begins that the job reports."""
    return f"reported by job {job_id[:8]}: "


def admitted(
    report: Report, claimant: Claimant, limits: ClaimLimits, blocklist: Blocklist, now_ms: int
) -> Report | None:
    """Return the report as it may change the list; None if it may not, or not yet. ``now_ms``: Unix milliseconds.

    A job adds its cause to an entry once: repeating the report with a later end does not prolong the entry. It adds
    none to an entry of the platform, which would then outlast the outage.
    """
    entry, prefix = report.entry, claim_prefix(claimant.job_id)
    if not isinstance(entry, BlockedNode) or entry.id not in claimant.hosts:
        return None
    if entry.action is not BlockAction.MARK_BLOCKED or entry.drivers is not EvacuatedDrivers.WAIT:
        return None
    if len(entry.causes) != 1 or not entry.causes[0].startswith(prefix):
        return None
    listed = {known.id: known for known in blocklist.entries if isinstance(known, BlockedNode)}
    known = listed.get(entry.id)
    if known is None:
        if len(listed) + 1 > limits.max_share * len(claimant.nodes | listed.keys()):
            return None
    elif (
        is_of_platform(known)
        or len(known.causes) >= CAUSES_KEPT
        or any(cause.startswith(prefix) for cause in known.causes)
    ):
        return None
    longest = round(limits.seconds * 1000)
    start = entry.start_ms if now_ms - longest <= entry.start_ms <= now_ms else now_ms
    end = min(entry.end_ms, now_ms + longest)
    return Report(entry=msgspec.structs.replace(entry, start_ms=start, end_ms=end), known=report.known)
