"""Serves a job's Spark UI on this machine's loopback, for one browser.

The pages are made by the job's JVM. So they have an origin of their own, the port, and cannot act for whoever has the
console open. Other users of this machine reach the port, too: it serves only a browser that has opened the link.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from emberkeep.base.errors import Absent, EmberkeepError, Fatal
from emberkeep.protocol.rest_spark_ui import SparkUiPage

_HOST = "127.0.0.1"
_OPEN = "/emberkeep-open/"
_CLOSE_SECONDS = 1.0  # for requests that are under way when the command ends
_CLOSED = (
    "Open the link that `emberkeep spark-ui` has printed. It works once; for another browser, run the command again.\n"
)


class SparkUiServer:
    """The requests of one browser. ``page`` reads a page by its path and raises EmberkeepError."""

    def __init__(self, page: Callable[[str], Awaitable[SparkUiPage]]) -> None:
        self._page = page
        self._port = 0
        self._key = secrets.token_urlsafe(32)  # of the link; "" once it was used
        self._cookie = secrets.token_urlsafe(32)

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[str]:
        """Serve at ``port`` (0: a free one) within the context. Yield the link. Raises Fatal (port in use)."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, _HOST, port).start()
            except OSError as error:
                raise Fatal(
                    f"cannot listen on {_HOST}:{port}: {error.strerror}", hint="choose another --port"
                ) from None
            self._port = runner.addresses[0][1]
            yield f"http://{_HOST}:{self._port}{_OPEN}{self._key}"
        finally:
            await runner.cleanup()

    @property
    def _cookie_name(self) -> str:
        return f"emberkeep-spark-ui-{self._port}"  # browsers send cookies to every port of a host

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.host not in (f"{_HOST}:{self._port}", f"localhost:{self._port}"):
            return web.Response(status=403, text=f"This is not {_HOST}:{self._port}.\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="The Spark UI can only be read here.\n")
        if request.path.startswith(_OPEN):
            return self._opened(request.path.removeprefix(_OPEN))
        shown = request.cookies.get(self._cookie_name, "")
        if not hmac.compare_digest(shown.encode(), self._cookie.encode()):
            return web.Response(status=403, text=_CLOSED)
        try:
            page = await self._page(request.rel_url.raw_path_qs)
        except EmberkeepError as error:
            return web.Response(status=404 if isinstance(error, Absent) else 502, text=f"{error}\n")
        headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
        if page.content_type:
            headers["Content-Type"] = page.content_type
        if page.location:
            headers["Location"] = page.location
        return web.Response(status=page.status, body=page.body, headers=headers)

    def _opened(self, key: str) -> web.Response:
        if not self._key or not hmac.compare_digest(key.encode(), self._key.encode()):
            return web.Response(status=403, text=_CLOSED)
        self._key = ""
        response = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
        response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/")
        return response
