"""REST bodies of upgrades of jobs to new code."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.protocol.rest import Duration, Kebab, Millis
from emberkeep.protocol.rest_submission import JobSubmission

BATCHES: Final = 3  # that each streaming query must commit
WITHIN_MS: Final = 600_000
RESTARTS: Final = 2
MOST_BATCHES: Final = 1_000_000
MOST_RESTARTS: Final = 1000


class UpgradeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Upgrade a job to new code.

    ``upgrade-id``: chosen by the client (32 hex digits), so that it can repeat the request. ``submission``: the new
    job, with a ``jobid`` below which its files were uploaded; it has no savepoint, and its ``idempotency_key`` has no
    effect. ``batches``: micro-batches that each streaming query must commit, ``within`` this time after the new job was
    accepted, with at most so many ``restarts`` of its driver; else the old code is started again from the same
    savepoint. ``target-directory`` and ``timeout``: as in StopRequest.
    """

    upgrade_id: str
    submission: JobSubmission
    batches: int = BATCHES
    within: Duration = WITHIN_MS
    restarts: int = RESTARTS
    target_directory: str | None = None
    timeout: Duration | None = None


class UpgradeInfo(Kebab, frozen=True, kw_only=True):
    """An upgrade. ``text``: what it does now, or how it has ended, in words.

    ``old-job``: the job that was to be upgraded. ``new-job``: the one with the new code, which exists once the phase
    is WATCHING. ``back-job``: the one that was started with the old code, which exists once the phase is RETURNED.
    ``savepoint``: "" until it is complete. ``reason``: why it goes or went back, or ended otherwise than DONE.
    ``canceled-by``: who has cancelled the upgrade, or "".
    """

    upgrade_id: str
    phase: UpgradePhase
    text: str
    old_job: JobId
    new_job: JobId
    back_job: JobId
    savepoint: str
    batches: int
    within: Duration
    restarts: int
    began: Millis
    phase_began: Millis
    ended: Millis
    reason: str
    canceled_by: str
