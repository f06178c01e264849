"""Events: what has happened to a job or to the cluster, page by page or as a stream.

The live view of a job (``/jobs/{jobid}/events``) is something else: it sends the whole job after each change.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from emberkeep.base.clock import MOST_MS
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.base.request_context import is_logged_in
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.selection import MOST_LISTED, Selection
from emberkeep.protocol.chronicle.rest_events import EventList
from emberkeep.rest.cluster.event_shapes import event_of
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.routing import CheckedRequest, Header, Route
from emberkeep.rest.serving.server_sent_events import ALIVE, KEEP_ALIVE, event_stream

_TYPE: Final = re.compile(r"[a-z][a-z-]{0,39}")
_CURSOR: Final = r"^([0-9]{1,20}-[0-9]{1,20})?$"
_LAST_ID: Final = "Last-Event-ID"


_BY: Final = Meta(max_length=200, description="Only what this identity asked for; in any case.")
_TEXT: Final = Meta(
    max_length=200,
    description="Only events whose message, type, node or task manager contains this; in any case.",
)


class ReadEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of lists of events."""

    type: Annotated[list[str], Meta(description="Only events of this type; may be repeated.")] = []
    since: Annotated[int, Meta(ge=0, le=MOST_MS, description="Time of the oldest event, Unix milliseconds.")] = 0
    until: Annotated[int, Meta(ge=0, le=MOST_MS, description="Time of the newest event, Unix milliseconds.")] = MOST_MS
    by: Annotated[str, _BY] = ""
    text: Annotated[str, _TEXT] = ""
    before: Annotated[
        str, Meta(pattern=_CURSOR, description="Only events older than this one: `next` of the page before.")
    ] = ""
    after: Annotated[
        Annotated[str, Meta(pattern=_CURSOR)] | None,
        Meta(
            description="Only events newer than this one, oldest first; empty for the oldest ones of the stream.",
        ),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED, description="Maximum number of events in the reply.")] = 100


class FollowEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a stream of events."""

    type: Annotated[list[str], Meta(description="Only events of this type; may be repeated.")] = []
    by: Annotated[str, _BY] = ""
    text: Annotated[str, _TEXT] = ""
    after: Annotated[
        Annotated[str, Meta(pattern=_CURSOR)] | None,
        Meta(description="Begin with the events after this one; without it, with those that follow."),
    ] = None


async def events(call: CheckedRequest) -> msgspec.Struct:
    query: ReadEvents = call.query
    if query.before and query.after is not None:
        raise InvalidInput("query parameters before and after exclude each other", field="before")
    page = await call.api.chronicle.read(
        await _stream_of(call),
        Selection(
            types=_types(query.type),
            since_ms=query.since,
            until_ms=query.until,
            by=query.by,
            text=query.text,
            before=query.before,
            after=query.after,
            limit=query.limit,
        ),
    )
    return EventList(events=[event_of(each) for each in page.occurrences], next=page.next)


async def follow(call: CheckedRequest) -> web.StreamResponse:
    """Send events as they happen until the client disconnects, its login is no longer valid or the server stops."""
    query: FollowEvents = call.query
    job_id = await _stream_of(call)
    wanted = Selection(types=_types(query.type), by=query.by, text=query.text, limit=MOST_LISTED)
    after = call.request.headers.get(_LAST_ID) or query.after
    if after and re.fullmatch(_CURSOR, after) is None:
        raise InvalidInput(f"header {_LAST_ID}: {after[:40]!r} is not the id of an event", field=_LAST_ID)
    if after is None:
        newest = (await call.api.chronicle.read(job_id, Selection(limit=1))).occurrences
        after = newest[0].id if newest else ""
    async with event_stream(call.api, call.request) as response:
        await response.write(b": following\n\n")
        async for each in _following(call, job_id, wanted, after):
            await response.write(ALIVE if each is None else _encoded(each))
    return response


async def _following(
    call: CheckedRequest, job_id: str, wanted: Selection, after: str
) -> AsyncIterator[Occurrence | None]:
    """Yield each occurrence after ``after``; yield None after each KEEP_ALIVE seconds without one."""
    api: Api = call.api
    last_sent, first = api.system.clock.monotonic(), True
    while True:
        if first or api.chronicle.newest(job_id) > after:
            page = await api.chronicle.read(job_id, msgspec.structs.replace(wanted, after=after))
            first, after = len(page.occurrences) == MOST_LISTED, page.next
            for each in page.occurrences:
                yield each
                last_sent = api.system.clock.monotonic()
        elif api.system.clock.monotonic() - last_sent > KEEP_ALIVE:
            yield None
            last_sent = api.system.clock.monotonic()
        if await api.pause(api.poll_interval) or not is_logged_in(call.request):
            return


def _encoded(occurrence: Occurrence) -> bytes:
    data = msgspec.json.encode(event_of(occurrence))
    return b"id: " + occurrence.id.encode() + b"\nevent: event\ndata: " + data + b"\n\n"


async def _stream_of(call: CheckedRequest) -> str:
    """Return the job whose stream is asked for; "" for the cluster's. Raises Absent if there is no such job."""
    job_id = call.path.get("jobid")
    return "" if job_id is None else str((await call.api.gateway.job(job_id)).job_id)


def _types(given: list[str]) -> frozenset[str]:
    """Raises InvalidInput for a text that can be no type. A type of a newer release selects nothing here."""
    for one in given:
        if _TYPE.fullmatch(one) is None:
            known = ", ".join(what.value for what in What)
            raise InvalidInput(f"{one[:40]!r} is not the type of an event", field="type", hint=f"types: {known}")
    return frozenset(given)


_LIST_DOC = (
    "Newest first, page by page: `next` is the `before` of the next page. With `after`, oldest first, which is how to "
    "follow the stream by polling. The newest {most} are kept. Every JobManager that leads returns the same events. "
)
_STREAM_DOC = (
    "Each event is a server-sent event `event`; its `id` is the event's. A client that connects again with "
    "`Last-Event-ID` misses nothing, even if another JobManager leads by then."
)
_RESUMES = (Header(_LAST_ID, "The newest event that the client has. It takes precedence over `after`."),)

ROUTES = (
    Route(
        "GET",
        "/events",
        events,
        "What has happened to the cluster: leaders, nodes, blocks, quotas, settings",
        "Events",
        role=Role.VIEWER,
        operation="clusterEvents",
        reply=EventList,
        query=ReadEvents,
        problems=(503,),
        doc=_LIST_DOC.format(most="2,000"),
    ),
    Route(
        "GET",
        "/events/stream",
        follow,
        "The cluster's events as they happen (server-sent events)",
        "Events",
        role=Role.VIEWER,
        operation="followClusterEvents",
        media="text/event-stream",
        query=FollowEvents,
        headers=_RESUMES,
        problems=(503,),
        doc=_STREAM_DOC,
    ),
    Route(
        "GET",
        "/events/jobs/{jobid}",
        events,
        "What has happened to a job: attempts, executors, savepoints, stops, moves",
        "Events",
        role=Role.VIEWER,
        operation="jobEvents",
        reply=EventList,
        query=ReadEvents,
        problems=(404, 503),
        doc=_LIST_DOC.format(most="300") + "They are kept as long as the job's result.",
    ),
    Route(
        "GET",
        "/events/jobs/{jobid}/stream",
        follow,
        "A job's events as they happen (server-sent events)",
        "Events",
        role=Role.VIEWER,
        operation="followJobEvents",
        media="text/event-stream",
        query=FollowEvents,
        headers=_RESUMES,
        problems=(404, 503),
        doc=_STREAM_DOC,
    ),
)
