"""The pages of logs: of jobs, whose tab says the job's state, and of the cluster's own processes."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from emberkeep.base.errors import Absent
from emberkeep.base.ids import parse_job_id
from emberkeep.jobmanager.views.cluster import JobManagerGateway
from emberkeep.log_records.model import Level
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.web.paging import parse_number
from emberkeep.web.render import Render
from emberkeep.web.tab import UNKNOWN, job_tab

JOB_LOG_PATHS = (
    "/jobs/{jobid:[0-9a-f]{32}}/logs",
    "/jobs/{jobid:[0-9a-f]{32}}/logs/{logid:[A-Za-z0-9._~-]{1,340}}",
)
LOG_PATHS = (
    "/taskmanagers/{taskmanagerid:[A-Za-z0-9._-]{1,128}}/logs/{name:[A-Za-z0-9._-]{1,200}}",
    "/jobmanager/logs/{name:[A-Za-z0-9._-]{1,200}}",
)


class LogPages:
    """They show the name of a log. The page's script reads what is in it."""

    def __init__(self, render: Render, gateway: JobManagerGateway) -> None:
        self._render = render
        self._gateway = gateway

    async def job_log(self, request: web.Request) -> web.Response:
        attempt = parse_number(request.query.get("attempt") or "0", "attempt")
        try:
            job = await self._gateway.job(parse_job_id(request.match_info["jobid"]))
        except Absent:  # logs may be kept for longer than the job is known
            return self._page(request, tab=UNKNOWN)
        if attempt > job.attempt:
            hint = f"its newest attempt is {job.attempt}" if job.attempt else "its first attempt has not begun"
            raise Absent(f"job {job.name!r} has no attempt {attempt}", hint=hint)
        return self._page(request, tab=job_tab(job))

    async def log(self, request: web.Request) -> web.Response:
        return self._page(request)

    def _page(self, request: web.Request, **values: Any) -> web.Response:
        owner, _, rest = request.path.rpartition("/logs")
        name = rest.removeprefix("/")  # none: all logs of a job
        section = "overview" if owner == "/jobmanager" else owner.split("/")[1]
        back = "/" if owner == "/jobmanager" else owner
        return self._render(
            request,
            "log.html",
            section,
            source=API_PREFIX + request.path if name else "",
            job_api=API_PREFIX + owner if section == "jobs" else "",
            name=name or "Logs by time",
            back=back,
            levels=[level.value for level in Level],
            **values,
        )
