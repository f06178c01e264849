"""All savepoints that a leader knows: what has made each, what was started from it, and how lists select. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.locations import place_key
from emberkeep.lifecycle.model import Procedure


class SavepointKind(StrEnum):
    """What a savepoint was made for. The texts are part of the API; a newer release may have others."""

    SAVEPOINT = "savepoint"  # on request; the job continued
    PERIODIC = "periodic"  # by the JobManager, as the job's settings say
    STOP = "stop"
    DRAIN = "drain"
    UPGRADE = "upgrade"  # the stop of an upgrade
    UNKNOWN = "unknown"  # on request, recorded by a release that did not note what it was for


_KINDS = {
    None: SavepointKind.UNKNOWN,
    Procedure.SAVEPOINT: SavepointKind.SAVEPOINT,
    Procedure.SUSPEND: SavepointKind.STOP,
    Procedure.DRAIN: SavepointKind.DRAIN,
    Procedure.MOVE: SavepointKind.UNKNOWN,  # makes none
}


class SavepointView(msgspec.Struct, frozen=True, kw_only=True):
    """A savepoint, and the job that has made it."""

    savepoint: SavepointPointer
    job: JobView
    kind: SavepointKind


class SavepointSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which savepoints are listed: "" and None select all.

    ``text``: a part of the path or of the job's name, in any case, or the beginning of the job's id.
    """

    job: str = ""
    namespace: str = ""
    kind: SavepointKind | None = None
    text: str = ""

    def matching(self, views: Iterable[SavepointView]) -> list[SavepointView]:
        """Return those that match, in their order."""
        text = self.text.strip().lower()
        return [
            view
            for view in views
            if self.job in ("", view.job.job_id)
            and self.namespace in ("", view.job.namespace)
            and self.kind in (None, view.kind)
            and (
                text in view.savepoint.path.lower() or text in view.job.name.lower() or view.job.job_id.startswith(text)
            )
        ]


def savepoint_views(jobs: Iterable[JobView]) -> list[SavepointView]:
    """Return the savepoints of ``jobs``, newest first. The order of two is always the same."""
    views = [
        SavepointView(savepoint=savepoint, job=job, kind=_kind(savepoint, job))
        for job in jobs
        for savepoint in job.pointers.savepoints
    ]
    return sorted(views, key=order)


def order(view: SavepointView) -> tuple[int, str, str]:
    """Return where a savepoint is in lists."""
    return -view.savepoint.created_ms, view.savepoint.manifest_sha256, view.savepoint.path


class Lineage:
    """Which job was started from whose savepoint, among ``jobs``: those that the reader may see."""

    def __init__(self, jobs: Sequence[JobView]) -> None:
        self._started: dict[tuple[str, str, str], list[JobView]] = {}
        self._made: dict[tuple[str, str, str], JobView] = {}
        for job in jobs:
            if job.started_from:
                self._started.setdefault(place_key(job.started_from), []).append(job)
            for savepoint in job.pointers.savepoints:
                self._made.setdefault(place_key(savepoint.path), job)

    def started(self, path: str) -> tuple[JobView, ...]:
        """Return the jobs that were started from the savepoint at ``path``."""
        return tuple(self._started.get(place_key(path), ()))

    def source(self, job: JobView) -> JobView | None:
        """Return the job that has made the savepoint from which ``job`` was started; None if it is unknown."""
        return self._made.get(place_key(job.started_from)) if job.started_from else None


def _kind(savepoint: SavepointPointer, job: JobView) -> SavepointKind:
    if savepoint.periodic:
        return SavepointKind.PERIODIC
    if job.upgrade is not None and savepoint.trigger_id == job.upgrade.upgrade.upgrade_id:
        return SavepointKind.UPGRADE
    return _KINDS[savepoint.procedure]
