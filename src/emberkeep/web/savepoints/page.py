"""The page of the savepoints of all jobs, and which of them it shows: all of that is in its address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.jobmanager.views.savepoints import Lineage, SavepointKind, SavepointSelection, savepoint_views
from emberkeep.lifecycle.verifications import Verifications
from emberkeep.web.paging import page_address, page_count, parse_page
from emberkeep.web.render import Render, jobs_with_savepoints, seen_jobs
from emberkeep.web.savepoints.lines import savepoint_lines

PER_PAGE: Final = 100
_LONGEST: Final = 200  # characters of a text in the address


@dataclass(frozen=True)
class SavepointFilter:
    """Which savepoints are listed: "" and None select all."""

    text: str = ""
    kind: SavepointKind | None = None
    job: JobId | None = None
    namespace: str = ""

    def with_kind(self, kind: SavepointKind | None) -> SavepointFilter:
        return replace(self, kind=kind)

    def with_job(self, job: JobId | None) -> SavepointFilter:
        return replace(self, job=job)

    def with_namespace(self, namespace: str) -> SavepointFilter:
        return replace(self, namespace=namespace)

    def path(self, page: int = 1) -> str:
        """Return the address of a page of the list."""
        kind = self.kind.value if self.kind else ""
        return page_address(
            "/savepoints", page, text=self.text, kind=kind, job=self.job or "", namespace=self.namespace
        )

    @property
    def is_empty(self) -> bool:
        """True if it selects all."""
        return self == SavepointFilter()

    @property
    def selection(self) -> SavepointSelection:
        """What it selects, whatever the kind."""
        return SavepointSelection(job=self.job or "", namespace=self.namespace, text=self.text)


def parse_filter(query: Mapping[str, str]) -> SavepointFilter:
    """Return the filter in an address. Raises InvalidInput."""
    job, kind = query.get("job", "").strip(), query.get("kind", "")
    if kind not in ("", *SavepointKind):
        raise InvalidInput(
            f"{kind[:40]!r} is not a kind of savepoint", field="kind", hint=f"one of {', '.join(SavepointKind)}"
        )
    return SavepointFilter(
        text=query.get("text", "")[:_LONGEST],
        kind=SavepointKind(kind) if kind else None,
        job=parse_job_id(job) if job else None,
        namespace=query.get("namespace", "")[:_LONGEST],
    )


class SavepointPages:
    """``verifications``: which savepoints were read back since this JobManager leads."""

    def __init__(self, render: Render, gateway: JobManagerGateway, verifications: Verifications) -> None:
        self._render = render
        self._gateway = gateway
        self._verifications = verifications

    async def savepoints(self, request: web.Request) -> web.Response:
        """Show the savepoints of the jobs that the caller sees."""
        identity = request[REQUEST_IDENTITY]
        wanted, number = parse_filter(request.query), parse_page(request.query.get("page", "1"))
        seen = await seen_jobs(request, self._gateway)
        jobs = await jobs_with_savepoints(request, self._gateway)
        views = savepoint_views(jobs)
        matching = wanted.selection.matching(views)
        chosen = [view for view in matching if wanted.kind in (None, view.kind)]
        pages = page_count(len(chosen), PER_PAGE)
        number = min(number, pages)
        shown = chosen[(number - 1) * PER_PAGE : number * PER_PAGE]
        return self._render(
            request,
            "savepoints.html",
            "savepoints",
            savepoints=savepoint_lines(shown, Lineage(jobs), self._verifications, identity),
            counts=Counter(view.kind for view in matching),
            kinds=list(SavepointKind),
            namespaces=[] if identity.namespace else sorted({view.job.namespace for view in views} - {""}),
            job_name=next((job.name for job in seen if job.job_id == wanted.job), ""),
            any_jobs=bool(seen),
            filter=wanted,
            number=number,
            pages=pages,
        )
