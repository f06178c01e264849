"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from emberkeep.audit.selection import MOST_ENTRIES, Selection
from emberkeep.base.clock import MOST_MS
from emberkeep.base.identity import Role
from emberkeep.protocol.rest_audit import AuditEntry, AuditList
from emberkeep.rest.serving.routing import CheckedRequest, Route


class ReadAudit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of the audit log."""

    since: Annotated[int, Meta(ge=0, le=MOST_MS, description="Time of the oldest entry, Unix milliseconds.")] = 0
    until: Annotated[int, Meta(ge=0, le=MOST_MS, description="Time of the newest entry, Unix milliseconds.")] = MOST_MS
    identity: Annotated[str, Meta(max_length=200, description="Only entries of this identity.")] = ""
    jobid: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$", description="Only entries about this job.")] = ""
    outcome: Annotated[
        Literal["", "done", "failed", "refused", "unknown"], Meta(description="Only entries with this outcome.")
    ] = ""
    before: Annotated[
        str, Meta(max_length=40, description="Only entries older than this one: `next` of the page before.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_ENTRIES, description="Maximum number of entries in the reply.")] = 100


async def audit(call: CheckedRequest) -> msgspec.Struct:
    query: ReadAudit = call.query
    page = await call.api.audit.read(
        Selection(
            since_ms=query.since,
            until_ms=query.until,
            identity=query.identity,
            job=query.jobid,
            outcome=query.outcome,
            before=query.before,
            limit=query.limit,
        )
    )
    entries = [msgspec.convert(entry, AuditEntry, from_attributes=True) for entry in page.entries]
    return AuditList(entries=entries, next=page.next)


ROUTES = (
    Route(
        "GET",
        "/audit",
        audit,
        "The audit log: who changed what, and who was refused",
        "Cluster",
        role=Role.ADMIN,
        reply=AuditList,
        query=ReadAudit,
        problems=(503,),
        doc="The entries of the JobManager that replies, newest first. A page may have fewer entries than `limit`, "
        "even none, although there are older ones: `next` is then not empty.",
    ),
)
