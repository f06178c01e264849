"""Savepoints as lines of a table: what they are, what was verified, and how to start from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.base.identity import Identity
from emberkeep.base.ids import JobId
from emberkeep.identities.job_access import may_act
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.restore_command import restore_command
from emberkeep.jobmanager.views.savepoints import Lineage, SavepointKind, SavepointView
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.verifications import Verification, Verifications
from emberkeep.web.formats import byte_size, count, moment

_NOT_VERIFIED = "complete; not verified since this JobManager leads"

MOST_COMMAND = 4_000  # characters of a command on a page


class Relative(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has to do with a savepoint."""

    job_id: JobId
    name: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The savepoint that a job was started from. ``job``: the job that made it; None if this cluster does not know."""

    path: str
    job: Relative | None


class SavepointLine(msgspec.Struct, frozen=True, kw_only=True):
    """One savepoint. ``size`` in bytes and ``duration_ms``: None if unknown. ``started``: the jobs started from it.

    ``is_known``: the cluster knows the job's options and arguments. ``is_whole``: the command has them; it has not if
    they are very long. ``origin``: what the job that made it was started from. ``retired``: retention deletes it, so no
    job can start from it. ``damaged``: a verification has found a problem, or a reason why a job could fail to start
    from it.
    """

    path: str
    job: Relative
    status: JobStatus
    namespace: str
    kind: SavepointKind
    created_ms: int
    size: int | None
    duration_ms: int | None
    command: str
    is_whole: bool
    is_known: bool
    started: tuple[Relative, ...]
    origin: Origin | None
    retired: bool
    verified: str
    damaged: bool
    may_verify: bool


def savepoint_lines(
    views: Iterable[SavepointView], lineage: Lineage, verifications: Verifications, identity: Identity
) -> list[SavepointLine]:
    """Return a line for each savepoint, in the given order. ``lineage``: of the jobs that the reader may see."""
    return [_line(view, lineage, verifications, identity) for view in views]


def _line(view: SavepointView, lineage: Lineage, verifications: Verifications, identity: Identity) -> SavepointLine:
    savepoint, job = view.savepoint, view.job
    found = verifications.of(savepoint.path)
    whole = restore_command(savepoint.path, job.graph)
    is_short = len(whole) <= MOST_COMMAND
    return SavepointLine(
        path=savepoint.path,
        job=_relative(job),
        status=job.status,
        namespace=job.namespace,
        kind=view.kind,
        created_ms=savepoint.created_ms,
        size=savepoint.size,
        duration_ms=savepoint.duration_ms,
        command=whole if is_short else restore_command(savepoint.path, None),
        is_whole=is_short and job.graph is not None,
        is_known=job.graph is not None,
        started=tuple(_relative(other) for other in lineage.started(savepoint.path)),
        origin=origin(job, lineage),
        retired=savepoint.retired_ms > 0,
        verified=verification_text(found),
        damaged=found is not None and bool(found.problems or found.warning),
        may_verify=may_act(identity, job),
    )


def origin(job: JobView, lineage: Lineage) -> Origin | None:
    """Return the savepoint that ``job`` was started from; None if it was started without."""
    if not job.started_from:
        return None
    source = lineage.source(job)
    return Origin(path=job.started_from, job=None if source is None else _relative(source))


def verification_text(found: Verification | None) -> str:
    """Return what a verification has found and when."""
    if found is None:
        return _NOT_VERIFIED
    read = f"read {moment(found.time_ms)}"
    if found.problems:
        more = f" and {count(found.problems - 1)} more" if found.problems > 1 else ""
        return f"damaged: {found.problem}{more}; {read}"
    files = f"{count(found.files)} file{'' if found.files == 1 else 's'}"
    return "; ".join(text for text in (f"intact: {files}, {byte_size(found.size)}", found.warning, read) if text)


def _relative(job: JobView) -> Relative:
    return Relative(job_id=job.job_id, name=job.name)
