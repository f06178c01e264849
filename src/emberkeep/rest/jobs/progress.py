"""The progress history of a job's streaming queries."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.clock import MOST_MS
from emberkeep.base.identity import Role
from emberkeep.jobs.progress.history import Selection
from emberkeep.protocol.progress.rest_history import ProgressHistory
from emberkeep.rest.jobs.progress_shapes import progress_history
from emberkeep.rest.serving.routing import CheckedRequest, Route


class ReadHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a progress history."""

    query: Annotated[str, Meta(max_length=200, description="Only records of the query with this id.")] = ""
    after: Annotated[
        int, Meta(ge=0, le=MOST_MS, description="Only records after this one: its `recorded`, Unix milliseconds.")
    ] = 0
    before: Annotated[
        int, Meta(ge=0, le=MOST_MS, description="Only records before this one: its `recorded`; 0 for no bound.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most records in the reply: the newest ones.")] = 200


async def progress(call: CheckedRequest) -> msgspec.Struct:
    job, query = await call.api.gateway.job(call.path["jobid"]), call.query
    selection = Selection(limit=query.limit, query_id=query.query, after_ms=query.after, before_ms=query.before)
    return progress_history(await call.api.progress.read(job.job_master, job.job_id, job.attempt, selection))


ROUTES = (
    Route(
        "GET",
        "/jobs/{jobid}/progress",
        progress,
        "What the job's streaming queries have done",
        "Jobs",
        role=Role.VIEWER,
        query=ReadHistory,
        reply=ProgressHistory,
        problems=(404, 409, 429, 503),
        doc="The newest 1,000 progress reports of each query are kept, of 20 queries at most, over restarts of the job "
        "and as long as its default checkpoints. To read on, give the `recorded` of the last record as `after`; to "
        "read older records, that of the first one as `before`.",
    ),
)
