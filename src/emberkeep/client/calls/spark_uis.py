"""REST API calls for the Spark UIs of drivers."""

from __future__ import annotations

import aiohttp

from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request, decode
from emberkeep.protocol.rest_spark_ui import SparkUiLink, SparkUiPage

# The first page of an ended attempt waits for up to a minute: Spark's History Server starts, and reads the log.
_LIMITS = aiohttp.ClientTimeout(total=60.0 + REQUEST_TIMEOUT)


class SparkUiCalls:
    """A RestClient's calls for Spark UIs. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def page(self, job_id: JobId, path: str, *, attempt: int = 0) -> SparkUiPage:
        """Return a page. ``path``: from "/" on. ``attempt``: its number; 0: the newest one.

        Raises Absent (no such attempt, or no event log of it), Conflict (the UI is turned off).
        """
        query = {"path": path, **({"attempt": str(attempt)} if attempt else {})}
        request = Request("GET", f"/jobs/{job_id}/spark-ui", query, limits=_LIMITS)
        return decode(await self._http.call(request), SparkUiPage)

    async def link(self, job_id: JobId) -> SparkUiLink:
        """Return a link to the UI of the newest attempt, at the JobManager's port for Spark UIs. Raises Absent."""
        return decode(await self._http.call(Request("POST", f"/jobs/{job_id}/spark-ui-links")), SparkUiLink)
