"""The route through which other caches read a task manager's BLOB cache (BLOB-22): complete, verified BLOBs only.

This route is internal: people and tools read BLOBs through the JobManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.model import BlobKey, parse_blob_key
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.rest.blobs.response import send_blob
from emberkeep.rest.serving.routing import parse_query
from emberkeep.rest.serving.transfers import TransferPlaces

ROUTE = f"{API_PREFIX}/jobs/{{jobid}}/blobs/{{key}}"
READERS = 32  # at once; more get RetryLater, and ask elsewhere

Find = Callable[[JobId, BlobKey], Awaitable[Path]]


class _NoQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def routes(find: Find, *, readers: int = READERS) -> list[web.RouteDef]:
    """Return the routes to add to the task manager's application.

    They belong behind its security layer, which also turns errors into problem documents. ``find`` returns the
    verified file of a BLOB in this cache or raises Absent; it fetches nothing.
    """
    places = TransferPlaces(readers, line=0)

    async def get(request: web.Request) -> web.StreamResponse:
        parse_query(request, _NoQuery)
        owner, key = parse_job_id(request.match_info["jobid"]), parse_blob_key(request.match_info["key"])
        async with places.place():
            return await send_blob(request, key, await find(owner, key))

    return [web.get(ROUTE, get, allow_head=False)]
