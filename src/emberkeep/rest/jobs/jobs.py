"""Jobs: lists, details, exceptions, checkpoints, configuration, live view, cancellation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.protocol.rest import Empty
from emberkeep.protocol.rest_checkpoints import CheckpointStatistics
from emberkeep.protocol.rest_jobs import (
    JobConfigInfo,
    JobDetailsInfo,
    JobExceptions,
    JobIdsWithStatus,
    JobIdWithStatus,
    MultipleJobsDetails,
)
from emberkeep.rest.jobs import events as job_events
from emberkeep.rest.jobs.checkpoint_shapes import checkpoint_statistics
from emberkeep.rest.jobs.shapes import job_config, job_details, job_details_info, job_exceptions
from emberkeep.rest.serving.routing import CheckedRequest, Route

MAX_GRACE = 3600  # seconds


class ListJobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of the lists of jobs."""

    owner: Annotated[str, Meta(description="Only jobs that the identity of this name has submitted.")] = ""
    namespace: Annotated[str, Meta(description="Only jobs of this namespace.")] = ""


class ReadExceptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a job's exceptions."""

    max_exceptions: Annotated[int, Meta(ge=0, le=1000, description="Most entries in the reply.")] = msgspec.field(
        default=20, name="maxExceptions"
    )


class TerminateJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a job's termination. Flink's other mode, ``stop``, is not offered."""

    mode: Annotated[Literal["cancel"], Meta(description="How to end the job: `cancel`, the only mode.")] = "cancel"
    grace: Annotated[
        float | None,
        Meta(
            description="Seconds until the driver is killed, from 0 to 3600; `task.cancellation.timeout` if not given."
        ),
    ] = None


async def jobs(call: CheckedRequest) -> msgspec.Struct:
    views = await _listed(call)
    return JobIdsWithStatus(jobs=[JobIdWithStatus(id=view.job_id, status=view.status) for view in views])


async def jobs_overview(call: CheckedRequest) -> msgspec.Struct:
    now = call.api.now_ms()
    return MultipleJobsDetails(jobs=[job_details(view, now) for view in await _listed(call)])


async def _listed(call: CheckedRequest) -> list[JobView]:
    """Return the jobs that the caller sees and that the query names."""
    query: ListJobs = call.query
    return [
        job for job in await call.jobs() if query.owner in ("", job.owner) and query.namespace in ("", job.namespace)
    ]


async def job(call: CheckedRequest) -> msgspec.Struct:
    return job_details_info(await call.api.gateway.job(call.path["jobid"]), call.api.now_ms())


async def exceptions(call: CheckedRequest) -> msgspec.Struct:
    return job_exceptions(await call.api.gateway.job(call.path["jobid"]), call.query.max_exceptions)


async def checkpoints(call: CheckedRequest) -> msgspec.Struct:
    return checkpoint_statistics((await call.api.gateway.job(call.path["jobid"])).pointers)


async def config(call: CheckedRequest) -> msgspec.Struct:
    return job_config(await call.api.gateway.job(call.path["jobid"]), call.api.configuration)


async def cancel(call: CheckedRequest) -> msgspec.Struct:
    query: TerminateJob = call.query
    if query.grace is not None and not 0 <= query.grace <= MAX_GRACE:
        raise InvalidInput(f"query parameter grace: {query.grace:g} is not from 0 to {MAX_GRACE}", field="grace")
    await call.api.gateway.cancel(call.path["jobid"], grace=query.grace)
    return Empty()


async def events(call: CheckedRequest) -> web.StreamResponse:
    return await job_events.stream(call.api, call.request, call.path["jobid"])


ROUTES = (
    Route(
        "GET",
        "/jobs",
        jobs,
        "Ids and states of all jobs",
        "Jobs",
        role=Role.VIEWER,
        shared=True,
        reply=JobIdsWithStatus,
        query=ListJobs,
    ),
    Route(
        "GET",
        "/jobs/overview",
        jobs_overview,
        "All jobs, newest first",
        "Jobs",
        role=Role.VIEWER,
        shared=True,
        reply=MultipleJobsDetails,
        query=ListJobs,
    ),
    Route("GET", "/jobs/{jobid}", job, "One job", "Jobs", role=Role.VIEWER, reply=JobDetailsInfo, problems=(404,)),
    Route(
        "PATCH",
        "/jobs/{jobid}",
        cancel,
        "Cancel a job",
        "Jobs",
        role=Role.SUBMITTER,
        status=202,
        reply=Empty,
        query=TerminateJob,
        problems=(404, 409, 503, 504),
        doc="The reply comes at once; the job is CANCELED when its driver has ended. A repeated request does no harm. "
        "409: the job has ended. 504: nobody knows whether the request was recorded; repeat it.",
    ),
    Route(
        "GET",
        "/jobs/{jobid}/exceptions",
        exceptions,
        "Why attempts and executors were lost, newest first",
        "Jobs",
        role=Role.VIEWER,
        reply=JobExceptions,
        query=ReadExceptions,
        problems=(404,),
    ),
    Route(
        "GET",
        "/jobs/{jobid}/checkpoints",
        checkpoints,
        "What the job's streaming queries have committed, and its savepoints",
        "Jobs",
        role=Role.VIEWER,
        reply=CheckpointStatistics,
        problems=(404,),
        doc="These are the stored records, which the next leader and the next attempt read. A query may be some "
        "batches ahead of its record.",
    ),
    Route(
        "GET",
        "/jobs/{jobid}/config",
        config,
        "What the job was submitted with; secret values are hidden",
        "Jobs",
        role=Role.VIEWER,
        reply=JobConfigInfo,
        problems=(404,),
    ),
    Route(
        "GET",
        "/jobs/{jobid}/events",
        events,
        "Live view of a job (server-sent events)",
        "Jobs",
        role=Role.VIEWER,
        media="text/event-stream",
        problems=(404, 503),
        doc="First, and after each change, comes an event `job` with the body of `/jobs/{jobid}`; the last event is "
        "`end`.",
    ),
)
