"""A job's savepoints for its page: how large and old they are, how to start from them, and which jobs did. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import EntryPointKind
from emberkeep.lifecycle.locations import is_same_place


class Relative(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has to do with a savepoint."""

    job_id: JobId
    name: str


class SavepointLine(msgspec.Struct, frozen=True, kw_only=True):
    """One savepoint. ``size`` in bytes and ``duration_ms``: None if unknown. ``started``: the jobs started from it.

    ``retired``: retention deletes it, so no job can start from it.
    """

    path: str
    created_ms: int
    size: int | None
    duration_ms: int | None
    command: str
    started: tuple[Relative, ...]
    periodic: bool
    retired: bool


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The savepoint that a job was started from. ``job``: the job that made it; None if this cluster does not know."""

    path: str
    job: Relative | None


def savepoint_lines(job: JobView, jobs: Sequence[JobView]) -> list[SavepointLine]:
    """Return the savepoints of ``job``, newest first. ``jobs``: those that the reader may see."""
    return [
        SavepointLine(
            path=savepoint.path,
            created_ms=savepoint.created_ms,
            size=savepoint.size,
            duration_ms=savepoint.duration_ms,
            command=restore_command(savepoint.path, job),
            started=tuple(_relative(other) for other in jobs if _starts_from(other, savepoint.path)),
            periodic=savepoint.periodic,
            retired=savepoint.retired_ms > 0,
        )
        for savepoint in reversed(job.pointers.savepoints)
    ]


def origin(job: JobView, jobs: Iterable[JobView]) -> Origin | None:
    """Return the savepoint that ``job`` was started from; None if it was started without."""
    if not job.started_from:
        return None
    made = (
        _relative(other)
        for other in jobs
        if any(is_same_place(savepoint.path, job.started_from) for savepoint in other.pointers.savepoints)
    )
    return Origin(path=job.started_from, job=next(made, None))


def restore_command(path: str, job: JobView) -> str:
    """Return a command line for a shell that checks the savepoint, and starts the job's code from it.

    It has neither the job's options nor its arguments, which may be secret.
    """
    code = "app.py"
    if job.graph is not None:
        entry = job.graph.entry_point
        code = shlex.quote(entry.source_path or entry.name)
        code = f"-m {code}" if entry.kind is EntryPointKind.MODULE else code
    return f"emberkeep savepoint restore {shlex.quote(path)} {code}"


def _starts_from(job: JobView, path: str) -> bool:
    return bool(job.started_from) and is_same_place(job.started_from, path)


def _relative(job: JobView) -> Relative:
    return Relative(job_id=job.job_id, name=job.name)
