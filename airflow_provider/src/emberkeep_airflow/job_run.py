"""The steps of a task's job over a cluster's API: find or submit it, follow it, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.ids import JobId
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.follow import POLL, JobFollower
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.client.submission.preparation import PreparedJob
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep_airflow.task_jobs import AwaitEnd, KnownJob, Start, Take, TaskIdentity, choose
from emberkeep_airflow.task_log import TaskLog

T = TypeVar("T")

_PATIENCE = 30.0  # seconds: a leader may be elected in that time


def call(endpoint: Endpoint, work: Callable[[RestClient], Awaitable[T]], *, patience: float = _PATIENCE) -> T:
    """Call ``work`` with a client of the cluster and return its result. Not for use within an event loop."""

    async def run() -> T:
        async with RestClient(endpoint, patience=patience) as client:
            return await work(client)

    return asyncio.run(run())


async def chosen(
    client: RestClient, task: TaskIdentity, unreported: str, notice: Callable[[str], None]
) -> Take | Start:
    """Return whether the task takes a job over or starts one. Waits while its newest job is ending.

    The wait is bounded by the cluster, which kills a driver that does not end, and by the task's own timeout.
    """
    while True:
        jobs = await client.jobs()
        choice = choose(task, [KnownJob(job.jid, job.state) for job in jobs], unreported)
        if not isinstance(choice, AwaitEnd):
            return choice
        notice(f"job {choice.job_id} of an earlier try is ending: waiting for its end")
        while True:
            await asyncio.sleep(POLL)
            if (await client.job(choice.job_id)).state.is_globally_terminal:
                break


async def submitted(client: RestClient, job: PreparedJob, log: TaskLog) -> JobId:
    """Submit the job and return its id. Raises what JobSubmitting raises.

    If another process of the same task has submitted the job in the meantime, this is that job.
    """
    try:
        return await JobSubmitting(client, job, log, log.notice).run()
    except Conflict:
        job_id = JobId(job.submission.jobid)
        if not await _exists(client, job_id):
            raise
        return job_id


async def followed(client: RestClient, job_id: JobId, log: TaskLog, *, newest_only: bool) -> JobDetailsInfo:
    """Write the job's output to the log and return the ended job.

    ``newest_only``: begin with the output of the attempt that is the newest now. Raises what JobFollower raises.
    """
    first = max(1, (await client.job(job_id)).emberkeep.attempt) if newest_only else 1
    try:
        return await JobFollower(client, job_id, log, first_attempt=first).run()
    finally:
        log.close()


async def cancelled(client: RestClient, job_id: JobId) -> bool:
    """Cancel the job. False if it has ended already, or does not exist."""
    try:
        await client.cancel(job_id)
    except (Absent, Conflict):
        return False
    return True


async def _exists(client: RestClient, job_id: JobId) -> bool:
    try:
        await client.job(job_id)
    except Absent:
        return False
    return True
