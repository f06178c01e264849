"""REST calls about upgrades."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo, UpgradeRequest


class UpgradeCalls:
    """A RestClient's calls for upgrades. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def begin(self, job_id: JobId, request: UpgradeRequest) -> UpgradeInfo:
        """Begin an upgrade. Repeating the request has no effect."""
        data = msgspec.json.encode(request)
        headers = {"Content-Type": "application/json"}
        asked = Request("POST", f"/jobs/{job_id}/upgrade", headers=headers, body=lambda: data)
        return decode(await self._http.call(asked), UpgradeInfo)

    async def of_job(self, job_id: JobId) -> UpgradeInfo:
        """Return the newest upgrade that the job is part of. Raises Absent."""
        return decode(await self._http.call(Request("GET", f"/jobs/{job_id}/upgrade")), UpgradeInfo)

    async def cancel(self, job_id: JobId) -> UpgradeInfo:
        """Have the upgrade go back to the old code. Raises Absent, Conflict."""
        return decode(await self._http.call(Request("DELETE", f"/jobs/{job_id}/upgrade")), UpgradeInfo)
