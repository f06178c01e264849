"""The application at the port of the Spark UIs.

It accepts tickets only: neither tokens nor sessions of the console, whose cookie browsers send here, too. Nothing that
a browser sends besides path and query reaches a JVM, and of a JVM's headers only the type and the redirect come back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.rest.serving.spark_ui_links import LIFETIME_SECONDS, OpenedUi, SparkUiLinks, SparkUiView
from emberkeep.rest.spark_proxy.pages import below, page_headers, shown_status
from emberkeep.rest.spark_proxy.places import PageBody, PagePlaces, page_answer

Read = Callable[[SparkUiView, str, str], Awaitable[SparkUiRead]]
Following = Callable[[SparkUiView, str], Awaitable[SparkUiRead]]
Abandon = Callable[[SparkUiView, str], Awaitable[None]]
Guard = Callable[[web.Application, Callable[[web.Request], bool], Callable[[], web.Response]], None]
_CLOSED = (
    "This link is not valid here. A link to a Spark UI works in one browser, for 8 hours, and as long as the login\n"
    "that has asked for it. Open the Spark UI again from the job's page.\n"
)
_OPENED = web.RequestKey("opened Spark UI", OpenedUi)


def build_spark_proxy(
    links: SparkUiLinks,
    read: Read,
    following: Following,
    abandon: Abandon,
    *,
    guard: Guard,
    places: PagePlaces | None = None,
) -> web.Application:
    """Return the application. ``read`` returns a page by view, path and base, ``following`` its next piece.

    ``abandon`` is called with a page whose client has gone before its last piece was read. ``guard`` adds the checks of
    requests. It gets a function that returns True if a request has a valid ticket, and one that returns the reply to a
    request without one. ``places``: where pages are until they have been sent.
    """
    app = web.Application()
    places = places or PagePlaces()

    def may_pass(request: web.Request) -> bool:
        opened = links.opened(request)
        if opened is not None:
            request[_OPENED] = opened
            request[REQUEST_IDENTITY] = opened.identity
        return opened is not None

    async def show(request: web.Request) -> web.Response:
        opened = request[_OPENED]
        path = request.rel_url.raw_path_qs.removeprefix(opened.base)
        if not path.startswith("/"):
            return web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: f"{opened.base}/{path}"})
        async with places.place(opened.base):
            if request.transport is None:  # the client has gone while its request waited
                return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
            page = await read(opened.view, path, opened.base)
            body = PageBody(page, partial(following, opened.view))
            answer = _answer(request, opened, path, page, body)
            _give_cookie(links.cookie_name, request, answer)
            await places.send(request, answer, body)
        if body.more:
            with suppress(EmberkeepError):  # the page makes room by itself after a while
                await abandon(opened.view, body.more)
        return answer

    @web.middleware
    async def add_cookie(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        if not answer.prepared:  # an error: the ticket belongs to this browser nevertheless
            _give_cookie(links.cookie_name, request, answer)
        return answer

    app.middlewares.append(add_cookie)
    guard(app, may_pass, lambda: web.Response(status=HTTPStatus.FORBIDDEN, text=_CLOSED))
    app.router.add_get("/{path:.*}", show)
    return app


def _answer(request: web.Request, opened: OpenedUi, path: str, page: SparkUiRead, body: PageBody) -> web.Response:
    headers = page_headers(f"{request.scheme}://{request.host}", opened.base, path)
    if page.content_type:
        headers[hdrs.CONTENT_TYPE] = page.content_type
    if page.location:
        headers[hdrs.LOCATION] = below(opened.base, page.location)
    return page_answer(shown_status(page.status), headers, body)


def _give_cookie(name: str, request: web.Request, answer: web.StreamResponse) -> None:
    opened = request.get(_OPENED)
    if opened is not None and opened.cookie:
        answer.set_cookie(
            name,
            opened.cookie,
            httponly=True,
            samesite="Strict",
            secure=request.secure,
            path=f"{opened.base}/",
            max_age=int(LIFETIME_SECONDS),
        )


def build_spark_proxy_standby(leader: Callable[[], str | None], *, guard: Guard) -> web.Application:
    """Return the application of a JobManager that is not the leader: only the leader knows tickets.

    ``leader`` returns the leader's address, None if no leader is known. ``guard``: see ``build_spark_proxy``.
    """
    app = web.Application()

    def refuse() -> web.Response:
        address = leader()
        where = f"Open the console of the leader, {address}" if address else "An election may be under way: try again"
        return web.Response(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            text=f"This JobManager is not the leader. {where}.\n",
            headers={hdrs.RETRY_AFTER: "1", hdrs.CACHE_CONTROL: "no-store"},
        )

    guard(app, lambda _: False, refuse)
    return app
