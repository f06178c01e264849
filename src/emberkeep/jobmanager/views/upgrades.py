"""Views of upgrades for the edges, which also request them here."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.upgrades.model import Upgrade


class UpgradeView(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade, and what it does now or how it has ended, in words."""

    upgrade: Upgrade  # without the graphs of its jobs
    text: str


class UpgradeWish(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade that is asked for.

    ``new``: the new job. ``back``: the old job's graph under another id, for the way back; the JobManager takes only
    its id and secrets from it. ``target_directory``: "" for the configured one. ``limit_ms``: time in which running
    micro-batches must end; 0 for the configured one. The other fields are as in Upgrade.
    """

    upgrade_id: str
    new: JobGraph
    back: JobGraph
    batches: int
    within_ms: int
    restarts: int
    target_directory: str = ""
    limit_ms: int = 0


class UpgradeGateway(Protocol):
    """Upgrades of jobs to new code."""

    async def upgrade(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        """Record durably that a job is to be upgraded. Repeating a request has no effect.

        Once this returns, the upgrade goes on, whichever process fails. Raises Absent (no such job), Conflict (the job
        is ending, is busy, or is part of another upgrade), InvalidInput, NotUploaded, RetryLater, UnknownOutcome,
        Fatal.
        """

    async def upgrade_of(self, job_id: JobId) -> UpgradeView:
        """Return the newest upgrade that the job is part of, as the old job or as one after it. Raises Absent."""

    async def cancel_upgrade(self, job_id: JobId) -> UpgradeView:
        """Have the upgrade go back to the old code. Returns once that is recorded. Repeating a request has no effect.

        Raises Absent; Conflict if it was too late: the upgrade has ended, or goes back for another reason; RetryLater.
        """
