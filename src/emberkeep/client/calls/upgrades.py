"""REST calls about upgrades."""

from __future__ import annotations

import msgspec

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import HttpCalls, Request, Tries, decode
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
        """Have the upgrade go back to the old code. Raises Absent; Conflict if it was too late for that."""
        tries = Tries()
        try:
            answer = await self._http.call(Request("DELETE", f"/jobs/{job_id}/upgrade"), tries)
        except Conflict:
            state = await self.of_job(job_id) if tries.in_doubt else None
            if state is None or not state.canceled_by:
                raise
            return state  # an earlier try, whose reply was lost, cancelled it
        return decode(answer, UpgradeInfo)
