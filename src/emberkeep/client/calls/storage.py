"""REST API calls for the shared storage."""

from __future__ import annotations

from emberkeep.client.http_calls import HttpCalls, Request, decode
from emberkeep.protocol.rest_storage import StorageInfo


class StorageCalls:
    """A RestClient's calls for the shared storage. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def status(self) -> StorageInfo:
        """Return the storage's owner, and the data in it that no job needs."""
        return decode(await self._http.call(Request("GET", "/storage")), StorageInfo)

    async def adopt(self) -> StorageInfo:
        """Make the cluster the owner of the storage's data. Raises Conflict."""
        return decode(await self._http.call(Request("POST", "/storage/adopt")), StorageInfo)

    async def purge(self, *, force: bool = False) -> StorageInfo:
        """Adopt the data and delete what belongs to no known job; with ``force``, also what may be in use.

        Raises Conflict.
        """
        parameters = {"force": "true"} if force else {}
        return decode(await self._http.call(Request("POST", "/storage/purge", parameters)), StorageInfo)
