"""The part of the WebHDFS protocol that Spark's checkpoint code uses, over HTTP(S). StateFiles makes the decisions.

The first request of OPEN and CREATE is redirected to this same port, as a name node redirects to a data node. Hadoop's
client uses the first request only to learn where the bytes are: it would discard bytes in the reply, and the connection
with them. Replies have no Content-Type: with one, Hadoop's shaded client looks for a class that PySpark does not ship.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import urlencode

import structlog
from aiohttp import web

from emberkeep.adapters.webhdfs.answers import (
    SERVER_DEFAULTS,
    content_summary,
    json_response,
    one_status,
    partial_listing,
    statuses,
)
from emberkeep.adapters.webhdfs.downloads import send_file
from emberkeep.adapters.webhdfs.errors import error_response
from emberkeep.adapters.webhdfs.refusals import logging_gateway_refusals
from emberkeep.adapters.webhdfs.request import PREFIX, Senders, WebHdfsRequest, read_request
from emberkeep.adapters.webhdfs.uploads import store_body
from emberkeep.adapters.webhdfs.work import GatewayWork
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput, RetryLater
from emberkeep.local_state.errors import Exists
from emberkeep.local_state.gateway_ports import StateFiles
from emberkeep.local_state.model import Caller, FileKind, StatePath

log = structlog.get_logger(__name__)
ResultT = TypeVar("ResultT")

_REQUESTS = 1024  # being answered at once; clients must repeat further ones later
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
        self._work = GatewayWork(thread_name)
        self._answering = 0
        self._operations: dict[str, Callable[[WebHdfsRequest], Awaitable[web.StreamResponse]]] = {
            "GET GETFILESTATUS": self._status,
            "GET GETFILELINKSTATUS": self._status_before_rename,
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
        self._work.close()

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

    # --- reading metadata ---------------------------------------------------------------------------------------------

    async def _status(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        return json_response(
            one_status(await self._work.at_store(request, path, lambda: self._files.status(request.caller, path)))
        )

    async def _status_before_rename(self, request: WebHdfsRequest) -> web.Response:
        """Only Hadoop's ``FileContext.rename`` requests the status of a link."""
        path, caller = self._path(request), request.caller
        found = await self._work.at_store(request, path, lambda: self._files.status_before_rename(caller, path))
        return json_response(one_status(found))

    async def _listing(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        entries = await self._work.at_store(request, path, lambda: self._files.listing(request.caller, path))
        return json_response(statuses(entries, path.name))

    async def _partial_listing(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        entries = await self._work.at_store(request, path, lambda: self._files.listing(request.caller, path))
        return json_response(partial_listing(entries, path.name))

    async def _summary(self, request: WebHdfsRequest) -> web.Response:
        path = self._path(request)
        return json_response(
            content_summary(await self._work.at_store(request, path, lambda: self._files.summary(request.caller, path)))
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
        await self._work.at_store(request, path, lambda: self._files.make_directory(request.caller, path))
        return json_response({"boolean": True})

    async def _delete(self, request: WebHdfsRequest) -> web.Response:
        path, recursive = self._path(request), request.flag("recursive")
        deleted = await self._work.at_store(
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
        await self._work.at_store(
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

        return await self._work.at_store(request, source, rename)

    # --- bytes --------------------------------------------------------------------------------------------------------

    async def _create(self, request: WebHdfsRequest) -> web.Response:
        path, overwrite = self._path(request), request.flag("overwrite")
        if not request.text(_DATA):
            if not self._files.is_admitted(request.caller):
                await self._work.at_store(request, path, lambda: self._files.admit(request.caller))
            return self._sent_on(request, {})
        await store_body(self._files, self._work, request, path, overwrite=overwrite)
        return web.Response(status=201)

    async def _open(self, request: WebHdfsRequest) -> web.StreamResponse:
        path = self._path(request)
        offset, length = request.number("offset") or 0, request.number("length")
        if not request.text(_DATA):
            seen = await self._work.at_store(request, path, lambda: self._files.look_for(request.caller, path))
            return self._sent_on(request, {_SEEN: seen})
        seen = request.text(_SEEN)
        return await send_file(
            self._work,
            request,
            path,
            lambda: self._files.open_file(request.caller, path, offset, length, seen=seen),
        )

    def _sent_on(self, request: WebHdfsRequest, parameters: Mapping[str, str]) -> web.Response:
        url = request.http.rel_url
        added = urlencode({_DATA: "data", **parameters})
        location = f"{self._url}{url.raw_path}?{url.raw_query_string}&{added}"
        return web.Response(status=307, headers={"Location": location})

    def _path(self, request: WebHdfsRequest) -> StatePath:
        return self._files.resolve(request.caller, request.path)


async def _without_content_type(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Content-Type", None)
