"""REST API calls for the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.rest_audit import AuditEntry, AuditList


class AuditCalls:
    """A RestClient's calls for the audit log. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def newest(self, selection: Mapping[str, str]) -> AsyncIterator[AuditEntry]:
        """Yield all selected entries, newest first, page by page. ``selection``: query parameters of the route."""
        before: dict[str, str] = {}
        while True:
            page = decode(await self._http.call(Request("GET", "/audit", {**selection, **before})), AuditList)
            for entry in page.entries:
                yield entry
            if not page.next:
                return
            before = {"before": page.next}
