"""REST API calls for events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.chronicle.rest_events import Event, EventList


class EventCalls:
    """A RestClient's calls for events. They raise what RestClient raises. ``job_id``: "" for the cluster's events."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def newest(self, job_id: str, selection: Mapping[str, str], types: Sequence[str], limit: int) -> list[Event]:
        """Return the newest selected events, oldest first. ``selection``: query parameters of the route."""
        found: list[Event] = []
        before: dict[str, str] = {}
        while len(found) < limit:
            page = await self._page(job_id, {**selection, **before, "limit": str(min(1000, limit - len(found)))}, types)
            found += page.events
            if not page.next:
                break
            before = {"before": page.next}
        return found[::-1]

    async def after(self, job_id: str, cursor: str, selection: Mapping[str, str], types: Sequence[str]) -> EventList:
        """Return the selected events after ``cursor``, oldest first. ``next`` of the reply is the following cursor."""
        return await self._page(job_id, {**selection, "after": cursor, "limit": "1000"}, types)

    async def _page(self, job_id: str, selection: Mapping[str, str], types: Sequence[str]) -> EventList:
        path = f"/events/jobs/{job_id}" if job_id else "/events"
        parameters: dict[str, str | Sequence[str]] = dict(selection)
        if types:
            parameters["type"] = list(types)
        return decode(await self._http.call(Request("GET", path, parameters)), EventList)
