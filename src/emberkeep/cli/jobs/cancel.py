"""``emberkeep cancel``."""

from __future__ import annotations

import asyncio
import contextlib

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.stopwatch import Stopwatch
from emberkeep.cli.views.asked import Asked
from emberkeep.cli.views.patience import Patience
from emberkeep.cli.wording import SHORT_ID
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus

_POLL = 0.3  # seconds


async def cancel_job(client: RestClient, job_id: JobId, asked: Asked, *, wait: bool, kill: bool) -> int:
    """Cancel a job and return the exit code; with ``wait``, return once the job has ended.

    ``kill``: send SIGKILL at once. The wait survives a change of the leader. Raises Conflict if the job has ended
    without being cancelled, Absent.
    """
    grace = 0.0 if kill else None
    look = f"`emberkeep info {job_id[:SHORT_ID]}` shows it"
    asked.text = f"job {job_id[:SHORT_ID]} may be cancelled: {look}"
    await client.cancel(job_id, grace=grace)
    asked.text = f"job {job_id[:SHORT_ID]} will be cancelled: {look}"
    if not wait:
        say(f"job {job_id[:SHORT_ID]} will be cancelled")
        return ExitCode.OK
    shown: JobStatus | None = None
    watch, patience = Stopwatch(), Patience()
    while True:
        job = await patience.of(lambda: client.job(job_id))
        if job.state is not shown:
            shown = job.state
            took = f" {watch}" if job.state.is_globally_terminal else ""
            say(f"job {job_id[:SHORT_ID]} ({job.name}): {job.state.value}{took}")
        if job.state.is_globally_terminal:
            return ExitCode.OK if job.state is JobStatus.CANCELED else ExitCode.FAILED
        await asyncio.sleep(_POLL)
        if job.state is not JobStatus.CANCELLING:
            # The job does not show the request yet. The request is durable, and repeating it does no harm.
            with contextlib.suppress(Conflict):  # it has ended: the next iteration reports how
                await patience.of(lambda: client.cancel(job_id, grace=grace))
