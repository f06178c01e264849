"""The pages. Each shows data from the JobManager's gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import jinja2
import msgspec
from aiohttp import hdrs, web

from emberkeep.audit.entry import Outcome
from emberkeep.audit.selection import AuditTrail, Selection
from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import parse_job_id
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.chronicle.ports import ChronicleReader
from emberkeep.identities.job_access import may_act
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView, TaskManagerView
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobmanager.views.savepoints import Lineage, savepoint_views
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.verifications import Verifications
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.web.capacity import capacity_map
from emberkeep.web.cluster.node_pages import NodePages
from emberkeep.web.cluster.pages import ClusterPages
from emberkeep.web.event_filter import first_ms, last_ms
from emberkeep.web.event_texts import EventTexts
from emberkeep.web.health import ClusterFacts, ProblemTimes, health
from emberkeep.web.job_filter import JobFilter, parse_status
from emberkeep.web.job_health import job_health
from emberkeep.web.job_procedure import procedure_name, procedure_text
from emberkeep.web.logs.pages import JOB_LOG_PATHS, LOG_PATHS, LogPages
from emberkeep.web.page_tags import KNOWN_HEADER, TIME_HEADER, page_tag, part_tag
from emberkeep.web.paging import page_count, parse_number, parse_page
from emberkeep.web.render import jobs_with_savepoints, seen_jobs
from emberkeep.web.savepoints.lines import origin, savepoint_lines
from emberkeep.web.savepoints.page import SavepointPages
from emberkeep.web.static_files import static_route
from emberkeep.web.tab import UNKNOWN, Tab, cluster_tab, job_tab
from emberkeep.web.templates import make_environment

JOBS_PER_PAGE = 100
AUDIT_PER_PAGE = 100
_RUNNING_ON_OVERVIEW = 50
_ENDED_ON_OVERVIEW = 10

_TAB = web.RequestKey("emberkeep.tab", Tab)  # what the browser's tab says unless the page says something else

Page = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True)
class WebSources:
    """Where the pages get what they show.

    - ``problem`` returns what this JobManager cannot do now although it leads; "" in normal operation.
    - ``storage_problem`` returns why nothing is deleted in the shared storage; "" if the storage is this cluster's.
    - ``spark_ui_link`` returns a new link to the Spark UI of an attempt, 0 for the newest; it raises Absent.
    - ``verifications``: which savepoints were read back since this JobManager leads.
    - ``election`` returns what is known about the election; None without high availability.
    - ``times`` returns since when there are problems.
    """

    gateway: JobManagerGateway
    clock: Clock
    storage_problem: Callable[[], str]
    audit: AuditTrail
    chronicle: ChronicleReader
    blobs: BlobServerGateway
    spark_ui_link: Callable[[web.Request, JobView, int], str]
    verifications: Verifications
    problem: Callable[[], str] = str
    election: Callable[[], ElectionView | None] = lambda: None
    times: Callable[[], ProblemTimes] = ProblemTimes


def web_routes(sources: WebSources) -> list[web.AbstractRouteDef]:
    """Return the routes of all pages and static files, served behind the access checks. Static files may be public."""
    events = EventTexts(sources.chronicle)
    pages = _Pages(sources, make_environment(), events)
    cluster = ClusterPages(pages.render, sources.gateway, sources.clock, sources.blobs, events, sources.election)
    nodes = NodePages(pages.render, sources.gateway, events)
    logs = LogPages(pages.render, sources.gateway)
    savepoints = SavepointPages(pages.render, sources.gateway, sources.verifications)
    with_own_tab: list[tuple[str, Page]] = [
        ("/", pages.overview),
        ("/jobs/{jobid}", pages.job),
        ("/jobs/{jobid}/events", pages.job_events),
        ("/jobs/{jobid}/spark-ui", pages.spark_ui),
        ("/nodes/{nodeid}", nodes.node),
        ("/taskmanagers/{taskmanagerid}", nodes.task_manager),
        ("/leadership", cluster.leadership),
        *((path, logs.job_log) for path in JOB_LOG_PATHS),
    ]
    with_cluster_tab: list[tuple[str, Page]] = [
        ("/jobs", pages.jobs),
        ("/events", pages.events),
        ("/savepoints", savepoints.savepoints),
        ("/taskmanagers", nodes.task_managers),
        ("/nodes", nodes.nodes),
        ("/audit", pages.audit),
        ("/blobs", cluster.blobs),
        *((path, logs.log) for path in LOG_PATHS),
    ]
    shown = [*with_own_tab, *((path, pages.in_cluster_tab(page)) for path, page in with_cluster_tab)]
    return [*(web.get(path, pages.guarded(page)) for path, page in shown), static_route()]


class _Pages:
    def __init__(self, sources: WebSources, environment: jinja2.Environment, events: EventTexts) -> None:
        self._sources = sources
        self._events = events
        self._gateway = sources.gateway
        self._clock = sources.clock
        self._environment = environment

    def guarded(self, page: Page) -> Page:
        """Wrap ``page``: an EmberkeepError becomes a page that shows the error."""

        async def show(request: web.Request) -> web.Response:
            try:
                return await page(request)
            except EmberkeepError as error:
                status = _status(error)
                passes = status is HTTPStatus.SERVICE_UNAVAILABLE
                tab = Tab(tone="waiting") if passes else UNKNOWN
                return self.render(request, "error.html", "error", status, tab=tab, error=error, passes=passes)

        return show

    def in_cluster_tab(self, page: Page) -> Page:
        """Wrap ``page``: the browser's tab says what is wrong in the cluster."""

        async def show(request: web.Request) -> web.Response:
            identity = request[REQUEST_IDENTITY]
            jobs = await seen_jobs(request, self._gateway)
            task_managers = [] if identity.namespace else await self._gateway.task_managers()
            request[_TAB] = cluster_tab(health(self._facts(identity, jobs, task_managers)))
            return await page(request)

        return show

    async def overview(self, request: web.Request) -> web.Response:
        identity = request[REQUEST_IDENTITY]
        jobs = await seen_jobs(request, self._gateway)
        running, ended = _split(jobs)
        unfinished, over = _troubled_first(running)[:_RUNNING_ON_OVERVIEW], ended[:_ENDED_ON_OVERVIEW]
        read = await self._gateway.jobs_of([job.job_id for job in (*unfinished, *over)])
        shown, names = {job.job_id: job for job in read}, {job.job_id: job.name for job in jobs}
        task_managers = await self._gateway.task_managers()
        found = health(self._facts(identity, jobs, task_managers))
        return self.render(
            request,
            "overview.html",
            "overview",
            tab=cluster_tab(found),
            running=[shown[job.job_id] for job in unfinished if job.job_id in shown],
            running_total=len(running),
            health=found,
            capacity=None if identity.namespace else capacity_map(task_managers, names),
            ended=[shown[job.job_id] for job in over if job.job_id in shown],
            counts=Counter(job.status for job in jobs),
            task_managers=task_managers,
            started_ms=self._gateway.started_ms(),
        )

    def _facts(
        self, identity: Identity, jobs: Sequence[JobBrief], task_managers: Sequence[TaskManagerView]
    ) -> ClusterFacts:
        """Return what the reader may know of the cluster's health."""
        if identity.namespace:
            return ClusterFacts(now_ms=self._clock.now_ms(), jobs=jobs)
        return ClusterFacts(
            now_ms=self._clock.now_ms(),
            jobs=jobs,
            task_managers=task_managers,
            problem=self._sources.problem(),
            storage=self._sources.storage_problem(),
            election=self._sources.election(),
            address=self._gateway.address(),
            times=self._sources.times(),
        )

    async def jobs(self, request: web.Request) -> web.Response:
        query = request.query
        wanted = JobFilter(
            parse_status(query.get("state", "")), query.get("owner", "")[:200], query.get("name", "")[:200]
        )
        number = parse_page(query.get("page", "1"))
        seen = await seen_jobs(request, self._gateway)
        jobs = wanted.matching(seen)
        chosen = [job for job in jobs if wanted.status in (None, job.status)]
        shown = chosen[(number - 1) * JOBS_PER_PAGE : number * JOBS_PER_PAGE]
        return self.render(
            request,
            "jobs.html",
            "jobs",
            jobs=await self._gateway.jobs_of([job.job_id for job in shown]),
            counts=Counter(job.status for job in jobs),
            filter=wanted,
            owners=sorted({job.owner for job in seen} - {""}),
            statuses=list(JobStatus),
            number=number,
            pages=page_count(len(chosen), JOBS_PER_PAGE),
        )

    async def job(self, request: web.Request) -> web.Response:
        identity = request[REQUEST_IDENTITY]
        job = await self._gateway.job(parse_job_id(request.match_info["jobid"]))
        relatives: list[JobView] = []
        if job.started_from or job.pointers.savepoints:
            relatives = await jobs_with_savepoints(request, self._gateway)
        life = await self._events.life(job, identity)
        tag = part_tag(life.timeline, life.problem)
        worked = job.report.work.executors if job.report and job.report.work else ()
        lineage = Lineage(relatives)
        return self.render(
            request,
            "job.html",
            "jobs",
            tab=job_tab(job),
            job=job,
            health=job_health(job),
            may_act=may_act(identity, job),
            savepoints=savepoint_lines(savepoint_views([job]), lineage, self._sources.verifications, identity),
            origin=origin(job, lineage),
            life=life,
            timeline_tag=tag,
            knows_timeline=request.headers.get(KNOWN_HEADER) == tag,
            report=job.report,
            work_of={one.executor_id: one for one in worked if one.active},
            ended_executors=[one for one in worked if not one.active],
            trace=job.traces[-1] if job.traces and job.traces[-1].milestones else None,
            procedure_name=procedure_name(job.procedure),
            procedure_text=procedure_text(job.procedure),
            exceptions=sorted(job.exceptions, key=lambda entry: entry.timestamp_ms, reverse=True),
        )

    async def spark_ui(self, request: web.Request) -> web.Response:
        """Send the browser to the Spark UI of an attempt, with a new link: it works for this login only."""
        job = await self._gateway.job(parse_job_id(request.match_info["jobid"]))
        attempt = parse_number(request.query.get("attempt", "0"), "attempt")
        location = self._sources.spark_ui_link(request, job, attempt)
        return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": location})

    async def audit(self, request: web.Request) -> web.Response:
        names = ("identity", "job", "outcome", "before", "since", "until")
        given = {name: request.query.get(name, "")[:200] for name in names}
        if given["outcome"] not in ("", *Outcome):
            raise InvalidInput(f"{given['outcome'][:40]!r} is not an outcome", field="outcome")
        times = {"since_ms": first_ms(given["since"]), "until_ms": last_ms(given["until"])}
        page = await self._sources.audit.read(msgspec.convert({**given, **times, "limit": AUDIT_PER_PAGE}, Selection))
        outcomes = [outcome.value for outcome in Outcome]
        shown = {**given, "entries": page.entries, "next": page.next, "outcomes": outcomes}
        return self.render(request, "audit.html", "audit", HTTPStatus.OK, **shown)

    async def events(self, request: web.Request) -> web.Response:
        chosen = await self._events.chosen("", "/events", request.query, request.query.getall("type", []))
        return self.render(request, "events.html", "events", job=None, chosen=chosen)

    async def job_events(self, request: web.Request) -> web.Response:
        job = await self._gateway.job(parse_job_id(request.match_info["jobid"]))
        chosen = await self._events.chosen(
            job.job_id, f"/jobs/{job.job_id}/events", request.query, request.query.getall("type", [])
        )
        return self.render(request, "events.html", "jobs", tab=job_tab(job), job=job, chosen=chosen)

    def render(
        self, request: web.Request, template: str, section: str, code: HTTPStatus = HTTPStatus.OK, **values: Any
    ) -> web.Response:
        """Return a page.

        ``section``: the entry of the navigation that it belongs to. ``tab`` in ``values``: see ``Tab``; the page may
        leave it to what wraps it.
        """
        identity, now_ms = request[REQUEST_IDENTITY], self._clock.now_ms()
        text = self._environment.get_template(template).render(
            section=section,
            now_ms=now_ms,
            address=self._gateway.address(),
            epoch=self._gateway.epoch(),
            api=API_PREFIX,
            caller=identity,
            may_operate=identity.role.includes(Role.OPERATOR),
            **{"tab": request.get(_TAB), **values},
        )
        headers = {hdrs.ETAG: page_tag(text), TIME_HEADER: str(now_ms)}
        if code is HTTPStatus.OK and request.headers.get(hdrs.IF_NONE_MATCH) == headers[hdrs.ETAG]:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return web.Response(text=text, status=code, content_type="text/html", charset="utf-8", headers=headers)


def _status(error: EmberkeepError) -> HTTPStatus:
    for kind, status in (
        (Absent, HTTPStatus.NOT_FOUND),
        (InvalidInput, HTTPStatus.BAD_REQUEST),
        (Conflict, HTTPStatus.CONFLICT),
        (RetryLater, HTTPStatus.SERVICE_UNAVAILABLE),
    ):
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _split(jobs: Sequence[JobBrief]) -> tuple[list[JobBrief], list[JobBrief]]:
    """Return the jobs that have not ended, and the ended ones with the latest end first."""
    running = [job for job in jobs if not job.status.is_globally_terminal]
    ended = [job for job in jobs if job.status.is_globally_terminal]
    return running, sorted(ended, key=lambda job: job.ended_ms or 0, reverse=True)


def _troubled_first(jobs: Sequence[JobBrief]) -> list[JobBrief]:
    """Return jobs with an alarm, then those that were lost, those that wait, the others; each in the given order."""
    return sorted(jobs, key=lambda job: (not job.alarms, not job.status.is_troubled, not job.waiting))
