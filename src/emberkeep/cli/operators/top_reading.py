"""What ``emberkeep top`` reads from the JobManager."""

from __future__ import annotations

import asyncio

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.cli.operators.top_view import TopPicture, need
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_cluster import ClusterOverview
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.protocol.rest_task_managers import TaskManagerSummary

SHOWN_JOBS = 30  # each costs a request
_AT_ONCE = 8


async def read_top(client: RestClient) -> TopPicture:
    """Return the picture of now. Nodes are left out if the caller may not see them: it has a namespace."""
    jobs = await client.jobs()
    unfinished = sorted((job for job in jobs if not job.state.is_globally_terminal), key=need)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def details(job_id: JobId) -> JobDetailsInfo | None:
        async with turn:
            try:
                return await client.job(job_id)
            except Absent:  # it was forgotten since the list was made
                return None

    found = await asyncio.gather(*(details(job.jid) for job in unfinished[:SHOWN_JOBS]))
    cluster, task_managers = await _nodes(client)
    shown = [job for job in found if job is not None and not job.state.is_globally_terminal]
    return TopPicture(cluster, task_managers, shown, more=max(0, len(unfinished) - SHOWN_JOBS))


async def _nodes(client: RestClient) -> tuple[ClusterOverview | None, list[TaskManagerSummary]]:
    try:
        return await client.overview(), await client.task_managers()
    except NotAuthorised:
        return None, []
