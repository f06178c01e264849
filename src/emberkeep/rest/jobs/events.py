"""The live view of a job: a server-sent event with its details after each change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import is_logged_in
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.rest.jobs.shapes import job_details_info
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.server_sent_events import ALIVE, KEEP_ALIVE, event_stream


async def stream(api: Api, request: web.Request, job_id: JobId) -> web.StreamResponse:
    """Send the job now and after each change, until the job ends.

    The stream ends earlier if the client disconnects, the client's login is no longer valid, or the server stops.
    Raises Absent (no such job), RetryLater (too many requests are already waiting).
    """
    view = await api.gateway.job(job_id)
    async with event_stream(api, request) as response:
        await _send_changes(api, response, view, lambda: is_logged_in(request))
    return response


async def _send_changes(api: Api, response: web.StreamResponse, view: JobView, is_allowed: Callable[[], bool]) -> None:
    sent: JobView | None = None
    clock = api.system.clock
    last_written = clock.monotonic()
    while True:
        if view != sent:
            await _write(response, "job", msgspec.json.encode(job_details_info(view, api.now_ms())))
            sent, last_written = view, clock.monotonic()
        elif clock.monotonic() - last_written > KEEP_ALIVE:
            await response.write(ALIVE)
            last_written = clock.monotonic()
        if view.status.is_globally_terminal:
            break
        if await api.pause(api.poll_interval) or not is_allowed():
            return
        try:
            view = await api.gateway.job(view.job_id)
        except Absent:
            break
    await _write(response, "end", b"{}")


async def _write(response: web.StreamResponse, event: str, data: bytes) -> None:
    await response.write(b"event: " + event.encode() + b"\ndata: " + data + b"\n\n")
