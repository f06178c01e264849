"""The pages of the cluster's BLOBs and of its leaders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import web

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Unavailable
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.chronicle.terms import LeaderTerm, StoreDoubt
from emberkeep.jobmanager.views.blobs import BlobServerGateway, BlobView
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.web.cluster.blobs import blob_overview, due_texts, parse_filter
from emberkeep.web.cluster.leadership import CONNECTIONS, job_managers, leaders
from emberkeep.web.cluster.tabs import leaders_tab
from emberkeep.web.event_texts import EventTexts
from emberkeep.web.paging import page_address, parse_page
from emberkeep.web.render import Render, seen_jobs


class ClusterPages:
    """``election`` returns what is known about the election; None without high availability."""

    def __init__(
        self,
        render: Render,
        gateway: JobManagerGateway,
        clock: Clock,
        blobs: BlobServerGateway,
        events: EventTexts,
        election: Callable[[], ElectionView | None],
    ) -> None:
        self._render = render
        self._gateway = gateway
        self._clock = clock
        self._blobs = blobs
        self._events = events
        self._election = election

    async def blobs(self, request: web.Request) -> web.Response:
        """Show BLOBs; to an identity with a namespace, those of the jobs that it sees."""
        chosen, number = parse_filter(request.query), parse_page(request.query.get("page", "1"))
        identity = request[REQUEST_IDENTITY]
        names = {job.job_id: job.name for job in await seen_jobs(request, self._gateway)}
        found: list[BlobView] = []
        if not identity.namespace or chosen.job is None or chosen.job in names:
            found = await self._blobs.blobs(chosen.job)
        if identity.namespace:
            found = [blob for blob in found if blob.owner in names]
        dues = due_texts(self._blobs.statistics(), self._clock.now_ms())
        shown = blob_overview(found, names, chosen, number, dues)
        job = "" if chosen.job is None else names.get(chosen.job, "")
        return self._render(request, "blobs.html", "blobs", blobs=shown, filter=chosen, job_name=job)

    async def leadership(self, request: web.Request) -> web.Response:
        """Show the leaders. The page is useful without the events, too."""
        number = parse_page(request.query.get("page", "1"))
        terms: tuple[LeaderTerm, ...] = ()
        doubts: tuple[StoreDoubt, ...] = ()
        problem = ""
        try:
            terms, doubts = await self._events.terms(), await self._events.doubts()
        except Unavailable as error:
            problem = error.message
        election = self._election()
        epoch, address = self._gateway.epoch(), self._gateway.address()
        return self._render(
            request,
            "leadership.html",
            "leadership",
            leaders=leaders(terms, epoch, self._clock.now_ms(), number, doubts),
            page_path=partial(page_address, "/leadership"),
            problem=problem,
            election=election,
            tab=leaders_tab(election, address),
            connection=None if election is None else CONNECTIONS[election.connection],
            job_managers=[] if election is None else job_managers(election, address, terms),
            started_ms=self._gateway.started_ms(),
        )
