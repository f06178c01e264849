"""REST calls that stop jobs and that make, check and delete savepoints, and the form of the locations in them."""

from __future__ import annotations

import asyncio
import re
import secrets
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from emberkeep.base.errors import Absent, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.http_calls import REQUEST_TIMEOUT, HttpCalls, Request, Tries, decode
from emberkeep.protocol.rest_savepoints import (
    DisposalStatus,
    OperationStatus,
    SavepointCheck,
    SavepointFiles,
    SavepointInfo,
    SavepointList,
    SavepointPath,
    SavepointRequest,
    SavepointStatus,
    StopRequest,
    TriggerResponse,
)

T = TypeVar("T")

_POLL = 0.3  # seconds
_LEADERS = 10  # how often a deletion is asked for again because its leader is gone
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
# The reply arrives when everything has been read, however long that takes.
_PATIENT_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT)


def savepoint_location(text: str) -> str:
    """Return the location to send to the cluster: a URI unchanged, a path on this machine as an absolute path.

    Raises InvalidInput for an empty text, which would name the current directory.

    >>> savepoint_location("s3://bucket/savepoints")
    's3://bucket/savepoints'
    """
    if not text.strip():
        raise InvalidInput(
            "the savepoint's location is empty",
            field="savepoint",
            hint="name a path or a URI; if it comes from a variable, see that this is set",
        )
    return text if _SCHEME.match(text) else str(Path(text).absolute())


class SavepointCalls:
    """A RestClient's calls for savepoints. They raise what RestClient raises."""

    def __init__(self, http: HttpCalls) -> None:
        self._http = http

    async def stop(
        self, job_id: JobId, *, drain: bool, target: str | None, limit_ms: int | None = None
    ) -> TriggerResponse:
        """Request a suspend or drain. All tries of this call count as one request.

        ``limit_ms``: time in which running micro-batches must end. None means the configured time.
        """
        request = StopRequest(drain=drain, target_directory=target, trigger_id=secrets.token_hex(16), timeout=limit_ms)
        return await self._post(f"/jobs/{job_id}/stop", request, TriggerResponse)

    async def create(self, job_id: JobId, *, target: str | None, limit_ms: int | None = None) -> TriggerResponse:
        """Request a savepoint of a job that keeps running. All tries of this call count as one request."""
        request = SavepointRequest(target_directory=target, trigger_id=secrets.token_hex(16), timeout=limit_ms)
        return await self._post(f"/jobs/{job_id}/savepoints", request, TriggerResponse)

    async def status(self, job_id: JobId, trigger_id: str) -> SavepointStatus:
        return await self._get(f"/jobs/{job_id}/savepoints/{trigger_id}", SavepointStatus)

    async def all(self) -> SavepointList:
        """Return the savepoints of all jobs that the caller sees, newest first, however many there are."""
        part = await self.newest()
        found = list(part.savepoints)
        while part.next:
            answer = await self._http.call(Request("GET", "/savepoints", {"before": part.next}))
            part = decode(answer, SavepointList)
            found += part.savepoints
        return SavepointList(savepoints=found)

    async def newest(self) -> SavepointList:
        """Return the newest savepoints of the jobs that the caller sees, as many as one reply has."""
        return await self._get("/savepoints", SavepointList)

    async def manifest(self, path: str) -> SavepointInfo:
        answer = await self._http.call(Request("GET", "/savepoints/manifest", {"path": path}))
        return decode(answer, SavepointInfo)

    async def verify(self, path: str, first: int = 0, count: int | None = None) -> SavepointCheck:
        """Have ``count`` files of a savepoint checked, from number ``first`` on; by default, all. Returns when done."""
        body = SavepointFiles(savepoint_path=path, first=first, count=count)
        return await self._post("/savepoint-verification", body, SavepointCheck, _PATIENT_LIMITS)

    async def dispose(self, path: str) -> tuple[str, ...]:
        """Delete a savepoint. Return the names of files that stay in its directory because they are not part of it.

        Raises Absent (there is no such savepoint, and this call has deleted none), Fatal with the JobManager's reason.
        """
        body, tries = SavepointPath(savepoint_path=path), Tries()
        for _ in range(_LEADERS):
            trigger = await self._post("/savepoint-disposal", body, TriggerResponse, tries=tries)
            try:
                state = await self._disposed(trigger.request_id)
            except Absent:  # its leader is gone, and may have deleted it
                tries.in_doubt = True
                continue
            failure = None if state.operation is None else state.operation.failure_cause
            if failure is None:
                return state.left
            is_absent = failure.kind == Absent.__name__
            if is_absent and tries.in_doubt:
                return ()  # an earlier try, whose reply was lost, deleted it
            kind = Absent if is_absent else Fatal
            raise kind(failure.stack_trace)
        raise RetryLater(f"each of {_LEADERS} JobManagers was gone before it had deleted {path}", hint="try again")

    async def _disposed(self, trigger_id: str) -> DisposalStatus:
        """Return the end of a deletion. Raises Absent if the leader does not know it."""
        while True:
            state = await self._get(f"/savepoint-disposal/{trigger_id}", DisposalStatus)
            if state.status.id is OperationStatus.COMPLETED:
                return state
            await asyncio.sleep(_POLL)

    async def _get(self, path: str, kind: type[T]) -> T:
        return decode(await self._http.call(Request("GET", path)), kind)

    async def _post(
        self,
        path: str,
        body: msgspec.Struct,
        kind: type[T],
        limits: aiohttp.ClientTimeout | None = None,
        tries: Tries | None = None,
    ) -> T:
        data = msgspec.json.encode(body)
        request = Request("POST", path, headers={"Content-Type": "application/json"}, body=lambda: data)
        if limits is not None:
            request = Request("POST", path, headers=request.headers, body=request.body, limits=limits)
        return decode(await self._http.call(request, tries), kind)
