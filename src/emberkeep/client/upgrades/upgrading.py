"""Upgrade a job on a cluster whose leader may change in between: upload, ask, follow.

The JobManager carries the upgrade out. A client may leave at any time after it has asked.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from emberkeep.base.errors import Absent, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.errors import Unanswered, Unreachable
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadProgress
from emberkeep.client.submission.preparation import PreparedJob, upload
from emberkeep.client.submission.uploaded_request import SILENCE, UploadedRequest
from emberkeep.jobs.upgrades.ports import UPGRADE_BYTES
from emberkeep.protocol.rest_submission import JobSubmission
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo, UpgradeRequest

_POLL = 0.5  # seconds
_UNREACHABLE_LIMIT = 300.0


@dataclasses.dataclass(frozen=True)
class UpgradeChoice:
    """What the user has chosen about an upgrade. ``upgrade_id``: 32 hex digits; the same ones are the same upgrade."""

    upgrade_id: str
    batches: int
    within_ms: int
    restarts: int
    target: str | None = None
    limit_ms: int | None = None


async def begun(
    client: RestClient,
    job_id: JobId,
    job: PreparedJob,
    choice: UpgradeChoice,
    progress: UploadProgress,
    notice: Callable[[str], None],
) -> UpgradeInfo:
    """Upload the new job's files and begin the upgrade. Return once it is durable.

    Raises InvalidInput (NotUploaded: the uploads were lost too often), Conflict, Absent, what RestClient raises, and
    RetryLater if there is no progress.
    """
    # What is asked for is small, so it is never off-loaded.
    job = dataclasses.replace(job, offload_min_size=UPGRADE_BYTES)
    is_asked = False

    async def upload_and_ask(progress: UploadProgress) -> UpgradeInfo:
        nonlocal is_asked
        known = await _begun_before(client, job_id, choice) if is_asked else None
        if known is not None:
            return known
        submission = await upload(client, job, progress)
        is_asked = True
        return await client.upgrades.begin(job_id, _request(submission, choice))

    try:
        return await UploadedRequest(client, progress, notice, silence=SILENCE).send(upload_and_ask)
    except RetryLater as error:
        if is_asked:
            error.hint = f"the upgrade may still begin: `emberkeep upgrade {job_id[:8]}` shows it"
        raise


async def _begun_before(client: RestClient, job_id: JobId, choice: UpgradeChoice) -> UpgradeInfo | None:
    """Return the upgrade if a request whose reply was lost has begun it: its files cannot be uploaded again then."""
    try:
        state = await client.upgrades.of_job(job_id)
    except Absent:
        return None
    return state if state.upgrade_id == choice.upgrade_id else None


def _request(submission: msgspec.Struct, choice: UpgradeChoice) -> UpgradeRequest:
    if not isinstance(submission, JobSubmission):
        raise InvalidInput(
            f"the job's arguments and settings have more than {UPGRADE_BYTES} bytes, too many for an upgrade",
            hint="put them into files of the job",
        )
    return UpgradeRequest(
        upgrade_id=choice.upgrade_id,
        submission=submission,
        batches=choice.batches,
        within=choice.within_ms,
        restarts=choice.restarts,
        target_directory=choice.target,
        timeout=choice.limit_ms,
    )


async def until_ended(
    client: RestClient, job_id: JobId, look: Callable[[UpgradeInfo], None], notice: Callable[[str], None]
) -> UpgradeInfo:
    """Return the end of the upgrade that the job is part of; pass each state to ``look``.

    Raises Absent, Unreachable (no JobManager for 5 minutes).
    """
    silence = ProblemClock(_UNREACHABLE_LIMIT)
    while True:
        try:
            state = await client.upgrades.of_job(job_id)
        except (RetryLater, Unanswered, Unreachable) as error:
            if not silence.is_running:
                notice(f"{error.message}; the upgrade is durable, and continues with the next JobManager")
            if silence.is_over():
                raise
        else:
            silence.reset()
            look(state)
            if state.phase.is_final:
                return state
        await asyncio.sleep(_POLL)
