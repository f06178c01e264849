"""The list of savepoints of all jobs: what selects its entries, and how it is divided. Pure, but for the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.savepoints import (
    Lineage,
    SavepointKind,
    SavepointSelection,
    SavepointView,
    savepoint_views,
)
from emberkeep.lifecycle.verifications import Verification, Verifications
from emberkeep.protocol.rest_savepoints import SavepointEntry, SavepointList, SavepointVerification

MOST_LISTED: Final = 1000
_NEVER: Final = -1
_Kind = Literal["", "savepoint", "periodic", "stop", "drain", "upgrade", "unknown"]  # the texts of SavepointKind
_CURSOR: Final = r"^([0-9]{1,15}-[^-]{0,64})?$"  # an earlier release has recorded digests that are none


class ListSavepoints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of the list of savepoints."""

    job: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$", description="Only savepoints of this job.")] = ""
    namespace: Annotated[str, Meta(description="Only savepoints of jobs of this namespace.")] = ""
    kind: Annotated[_Kind, Meta(description="Only savepoints that were made for this.")] = ""
    text: Annotated[
        str,
        Meta(
            max_length=200,
            description="Only savepoints whose path or job's name contains this, in any case, or whose job's id begins "
            "with it.",
        ),
    ] = ""
    before: Annotated[
        str, Meta(pattern=_CURSOR, description="Only savepoints older than this one: `next` of the reply before.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED, description="Maximum number of savepoints in the reply.")] = (
        MOST_LISTED
    )


def savepoint_list(jobs: Sequence[JobView], query: ListSavepoints, verifications: Verifications) -> SavepointList:
    """Return one part of the list. ``jobs``: those that the caller sees."""
    kind = SavepointKind(query.kind) if query.kind else None
    selection = SavepointSelection(job=query.job, namespace=query.namespace, kind=kind, text=query.text)
    chosen = selection.matching(savepoint_views(jobs))
    if query.before:
        created, _, digest = query.before.partition("-")
        border = (-int(created), digest)
        chosen = [view for view in chosen if (-view.savepoint.created_ms, view.savepoint.manifest_sha256) > border]
    shown, lineage = chosen[: query.limit], Lineage(jobs)
    return SavepointList(
        savepoints=[_entry(view, lineage, verifications.of(view.savepoint.path)) for view in shown],
        next=_cursor(shown[-1]) if len(shown) < len(chosen) else "",
    )


def _cursor(view: SavepointView) -> str:
    return f"{view.savepoint.created_ms}-{view.savepoint.manifest_sha256}"


def _entry(view: SavepointView, lineage: Lineage, found: Verification | None) -> SavepointEntry:
    savepoint, job = view.savepoint, view.job
    return SavepointEntry(
        path=savepoint.path,
        job_id=job.job_id,
        job_name=job.name,
        job_status=job.status,
        created=savepoint.created_ms,
        trigger_id=savepoint.trigger_id,
        manifest_sha256=savepoint.manifest_sha256,
        periodic=savepoint.periodic,
        retired=savepoint.retired_ms or _NEVER,
        kind=view.kind.value,
        namespace=job.namespace,
        size=_NEVER if savepoint.size is None else savepoint.size,
        duration=_NEVER if savepoint.duration_ms is None else savepoint.duration_ms,
        job_started_from=job.started_from,
        started=[other.job_id for other in lineage.started(savepoint.path)],
        verification=None if found is None else _verification(found),
    )


def _verification(found: Verification) -> SavepointVerification:
    return SavepointVerification(
        time=found.time_ms,
        files=found.files,
        size=found.size,
        problems=found.problems,
        problem=found.problem,
        warning=found.warning,
    )
