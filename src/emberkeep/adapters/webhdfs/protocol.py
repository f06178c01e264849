"""The part of the WebHDFS protocol that Spark's checkpoint code uses, over HTTP(S). StateFiles makes the decisions.

The first request of OPEN and CREATE is redirected to this same port, as a name node redirects to a data node. Hadoop's
client uses the first request only to learn where the bytes are: it would discard bytes in the reply, and the connection
with them. Replies have no Content-Type: with one, Hadoop's shaded client looks for a class that PySpark does not ship.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar
from urllib.parse import urlencode

import structlog
from aiohttp import web

from emberkeep.adapters.blocking.shares import WorkShares
from emberkeep.adapters.blocking.threads import WorkThreads, ended
from emberkeep.adapters.webhdfs.answers import (
    SERVER_DEFAULTS,
    content_summary,
    json_response,
    one_status,
    partial_listing,
    statuses,
)
from emberkeep.adapters.webhdfs.bodies import IDLE_SECONDS, body, gathered
from emberkeep.adapters.webhdfs.errors import error_response
from emberkeep.adapters.webhdfs.refusals import logging_gateway_refusals
from emberkeep.adapters.webhdfs.request import PREFIX, Senders, WebHdfsRequest, read_request
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput, RetryLater
from emberkeep.local_state.errors import Exists
from emberkeep.local_state.gateway_ports import IncomingFile, OpenedFile, StateFiles
from emberkeep.local_state.model import Caller, FileKind, StatePath

log = structlog.get_logger(__name__)
ResultT = TypeVar("ResultT")

_THREADS = 144  # for blocking work; store calls take at most 128, which leaves some for work on this node's disk
_REQUESTS = 1024  # being answered at once; clients must repeat further ones later
_STORE_CALLS, _STORE_CALLS_PER_ROOT = 128, 32  # threads that call durable stores at once; further calls wait
_TRANSFERS, _TRANSFERS_PER_ROOT = 128, 32  # files being received or sent at once; further ones wait
_PATIENCE = 20.0  # seconds to wait for earlier requests to a durable store
_DATA = "step"  # marks the second request of an OPEN or CREATE, which carries the bytes
_SEEN = "seen"  # generation that the first request of an OPEN has found


class WebHdfs:
    """Serve StateFiles over WebHDFS, see ``application``. Belongs to one event loop.

    It has one method for each operation of the protocol, so it has many methods.
    """

    def __init__(
        self,
        files: StateFiles,
        identify: Callable[[str], Caller],
        url: str,
        *,
        thread_name: str = "state-gateway",
    ) -> None:
        """Serve ``files`` at ``url``, the scheme and host:port of this gateway.

        ``identify`` returns the caller to whom a credential belongs; it raises InvalidInput.
        """
        self._files = files
        self._senders = Senders(identify)
        self._url = url
        self._threads = WorkThreads(_THREADS, thread_name)
        self._answering = 0
        # A store that hangs, or a busy job, blocks only its own requests: each pair of job and root has its own share.
        self._store_calls = WorkShares(_STORE_CALLS, _STORE_CALLS_PER_ROOT, _PATIENCE)
        self._transfers = WorkShares(_TRANSFERS, _TRANSFERS_PER_ROOT, _PATIENCE)
        self._operations: dict[str, Callable[[WebHdfsRequest], Awaitable[web.StreamResponse]]] = {
            "GET GETFILESTATUS": self._status,
            "GET GETFILELINKSTATUS": self._status,
            "GET LISTSTATUS": self._listing,
            "GET LISTSTATUS_BATCH": self._partial_listing,
            "GET GETCONTENTSUMMARY": self._summary,
            "GET GETHOMEDIRECTORY": self._home,
            "GET GETSERVERDEFAULTS": self._defaults,
            "GET OPEN": self._open,
            "PUT CREATE": self._create,
            "PUT MKDIRS": self._make_directory,
            "PUT RENAME": self._rename,
            "PUT SETPERMISSION": self._accept,
            "PUT SETTIMES": self._accept,
            "DELETE DELETE": self._delete,
        }

    def application(self) -> web.Application:
        """Return an application that answers only WebHDFS requests, so it needs a separate port."""
        app = web.Application(middlewares=[logging_gateway_refusals()])
        app.router.add_route("*", PREFIX + "{path:.*}", self._answer)
        app.on_response_prepare.append(_without_content_type)
        return app

    def close(self) -> None:
        """Cancel all work that has not begun, and begin no more. Idempotent."""
        for future in self._threads.close():
            future.cancel()

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        try:
            with self._counted():
                request = read_request(http, self._senders)
                operation = self._operations.get(request.operation)
                if operation is None:
                    raise InvalidInput(f"{request.operation} is not served by a state gateway", field="op")
                return await operation(request)
        except EmberkeepError as error:
            return error_response(error)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        if self._answering >= _REQUESTS:
            raise RetryLater("this state gateway has too many requests at once")
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1

    async def _at_store(self, request: WebHdfsRequest, path: StatePath, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work``, which may call the durable store, in a thread. Raises RetryLater if earlier calls hang."""
        async with self._store_calls.part((request.caller.job_id, path.root), path.root):
            return await self._in_thread(work)

    def _transfer(self, request: WebHdfsRequest, path: StatePath) -> AbstractAsyncContextManager[None]:
        return self._transfers.part((request.caller.job_id, path.root), path.root)

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Return the result of ``work``. Even if cancelled, returns only once ``work`` has ended."""
        future = self._threads.start(work)
        await ended(future)
        return future.result()

    # --- reading metadata ---------------------------------------------------------------------------------------------

    async def _status(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        return json_response(
            one_status(await self._at_store(request, path, lambda: self._files.status(request.caller, path)))
        )

    async def _listing(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        entries = await self._at_store(request, path, lambda: self._files.listing(request.caller, path))
        return json_response(statuses(entries, path.name))

    async def _partial_listing(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        entries = await self._at_store(request, path, lambda: self._files.listing(request.caller, path))
        return json_response(partial_listing(entries, path.name))

    async def _summary(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        return json_response(
            content_summary(await self._at_store(request, path, lambda: self._files.summary(request.caller, path)))
        )

    async def _home(self, request: WebHdfsRequest) -> web.Response:
        return json_response({"Path": f"/{request.caller.job_id}/own"})

    async def _defaults(self, _: WebHdfsRequest) -> web.Response:
        return json_response(SERVER_DEFAULTS)

    async def _accept(self, request: WebHdfsRequest) -> web.Response:
        """Accept and ignore permissions and times: the files belong to the task manager."""
        self._path(request)
        return web.Response()

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _make_directory(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        await self._at_store(request, path, lambda: self._files.make_directory(request.caller, path))
        return json_response({"boolean": True})

    async def _delete(self, request: WebHdfsRequest) -> web.Response:
        path, recursive = self._path(request), request.flag("recursive")
        deleted = await self._at_store(
            request, path, lambda: self._files.delete(request.caller, path, recursive=recursive)
        )
        return json_response({"boolean": deleted})

    async def _rename(self, request: WebHdfsRequest) -> web.Response:
        source = self._path(request)
        target = self._files.resolve(request.caller, request.text("destination"))
        options = request.text("renameoptions").upper().split(",")
        if options == [""]:
            return json_response({"boolean": await self._renamed(request, source, target)})
        overwrite = "OVERWRITE" in options
        await self._at_store(
            request, source, lambda: self._files.rename(request.caller, source, target, overwrite=overwrite)
        )
        return web.Response()

    async def _renamed(self, request: WebHdfsRequest, source: StatePath, target: StatePath) -> bool:
        """Rename as ``FileSystem.rename`` does: into ``target`` if it is a directory, and never onto a file."""
        caller = request.caller

        def rename() -> bool:
            with contextlib.suppress(Absent):
                if self._files.status(caller, target).kind is FileKind.DIRECTORY:
                    return rename_to(
                        StatePath(root=target.root, name=f"{target.name}/{source.name.rpartition('/')[2]}")
                    )
            return rename_to(target)

        def rename_to(path: StatePath) -> bool:
            try:
                self._files.rename(caller, source, path, overwrite=False)
            except (Absent, Exists):
                return False
            return True

        return await self._at_store(request, source, rename)

    # --- bytes --------------------------------------------------------------------------------------------------------

    async def _create(self, request: WebHdfsRequest) -> web.Response:
        path, overwrite = self._path(request), request.flag("overwrite")
        if not request.text(_DATA):
            await self._at_store(request, path, lambda: self._files.admit(request.caller))
            return self._sent_on(request, {})
        async with self._transfer(request, path):
            incoming = await self._at_store(
                request, path, lambda: self._files.receive(request.caller, path, overwrite=overwrite)
            )
            try:
                async for data in body(request.http):
                    await self._in_thread(lambda data=data: incoming.write(data))  # type: ignore[misc]
                await self._at_store(request, path, incoming.commit)
            finally:
                await self._abandon(incoming)
        return web.Response(status=201)

    async def _abandon(self, incoming: IncomingFile) -> None:
        try:
            await self._in_thread(incoming.abandon)
        except EmberkeepError as error:
            log.warning("cannot delete a received file", reason=str(error))

    async def _open(self, request: WebHdfsRequest) -> web.StreamResponse:
        path = self._path(request)
        offset, length = request.number("offset") or 0, request.number("length")
        if not request.text(_DATA):
            seen = await self._at_store(request, path, lambda: self._files.look_for(request.caller, path))
            return self._sent_on(request, {_SEEN: seen})
        seen = request.text(_SEEN)
        async with self._transfer(request, path):
            opened = await self._at_store(
                request, path, lambda: self._files.open_file(request.caller, path, offset, length, seen=seen)
            )
            try:
                return await self._sent(request, path, opened)
            finally:
                await self._close(opened.pieces)

    def _sent_on(self, request: WebHdfsRequest, parameters: Mapping[str, str]) -> web.Response:
        url = request.http.rel_url
        added = urlencode({_DATA: "data", **parameters})
        location = f"{self._url}{url.raw_path}?{url.raw_query_string}&{added}"
        return web.Response(status=307, headers={"Location": location})

    async def _sent(self, request: WebHdfsRequest, path: StatePath, opened: OpenedFile) -> web.StreamResponse:
        http = request.http
        response = web.StreamResponse()
        response.content_length = opened.length
        sent = 0
        try:
            # Read the first piece before sending the head, so that an error until then gets a proper error reply.
            while data := await self._at_store(request, path, lambda: gathered(opened.pieces)):
                if not response.prepared:
                    await response.prepare(http)
                sent += len(data)
                async with asyncio.timeout(IDLE_SECONDS):
                    await response.write(data)
            if sent != opened.length:
                raise RetryLater(f"the file ended after {sent} of {opened.length} bytes")
            if not response.prepared:
                await response.prepare(http)
            await response.write_eof()
        except (EmberkeepError, ConnectionError, TimeoutError) as error:
            if not response.prepared:
                raise
            log.info("a state file was not sent in full", path=http.path[:200], reason=str(error))
            if http.transport is not None:
                http.transport.abort()  # the client sees that bytes are missing, and requests the rest
        return response

    async def _close(self, pieces: Iterator[bytes]) -> None:
        close = getattr(pieces, "close", None)
        if close is not None:
            await self._in_thread(close)

    def _path(self, request: WebHdfsRequest) -> StatePath:
        return self._files.resolve(request.caller, request.path)


async def _without_content_type(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Content-Type", None)
