"""REST API calls for the progress history of jobs' streaming queries."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.progress.rest_history import ProgressHistory


class ProgressCalls:
    """A RestClient's calls for progress histories. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def read(
        self, job_id: JobId, query_id: str = "", *, after_ms: int = 0, before_ms: int = 0, limit: int = 200
    ) -> ProgressHistory:
        """Return the newest ``limit`` records, of all queries or of one, between the times of two other records."""
        query = {"query": query_id, "after": str(after_ms), "before": str(before_ms), "limit": str(limit)}
        return decode(await self._http.call(Request("GET", f"/jobs/{job_id}/progress", query)), ProgressHistory)
