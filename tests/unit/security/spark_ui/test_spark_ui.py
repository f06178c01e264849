"""The Spark UI of a driver: who reaches it on its machine, through the cluster, and at the port of the command."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, DummyCookieJar, web

from emberkeep.base.errors import Absent, Conflict, InvalidInput, OverQuota, RetryLater
from emberkeep.base.tls.seeded_certificate import seeded_certificate
from emberkeep.client.spark_ui_server import SparkUiServer
from emberkeep.daemons import spark_page_pieces, spark_pages
from emberkeep.daemons.driver.spark import ui as driver_spark_ui
from emberkeep.daemons.driver.spark.ui import SparkUiPages
from emberkeep.daemons.spark_page_pieces import PAGES_AT_ONCE
from emberkeep.protocol.messages.job_masters import ReadSparkUi, SparkUiRead
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.rest_spark_ui import SparkUiPage
from emberkeep.rest.table import ROUTES
from emberkeep.spark.jvm.configuration import with_defaults
from emberkeep.spark.jvm.driver_command import ui_address
from emberkeep.spark.jvm.spark_ui import access_settings, access_token
from emberkeep.web.session_routes import session_routes
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import HostileSparkUis, running_site
from tests.unit.spark.jvm.test_configuration import SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-10")]

JOB = job_id(1)
KEY = bytes(range(32))
_KEY_NAME = "spark.org.apache.spark.ui.JWSFilter.param.secretKey"


# --- on the driver's machine ------------------------------------------------------------------------------------------


def test_the_ui_asks_for_the_key_unless_the_user_has_chosen_another_filter() -> None:
    settings = dataclasses.replace(SETTINGS, ui_key=KEY)
    conf = with_defaults({"spark.ui.enabled": "true"}, {}, settings)
    assert conf["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert base64.urlsafe_b64decode(conf[_KEY_NAME] + "=") == KEY
    assert ui_address(conf, settings) == "127.0.0.1"
    for users, file in (
        ({"spark.ui.filters": "org.example.Login"}, {}),
        ({}, {"spark.ui.filters": "org.example.Login"}),
    ):
        own = with_defaults(users, file, settings)
        assert _KEY_NAME not in own
        assert ui_address({**file, **own}, settings) == settings.host


def test_the_token_is_signed_with_the_key() -> None:
    header, payload, signature = access_token(KEY).split(".")
    signed = hmac.digest(KEY, f"{header}.{payload}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64decode(signature + "=") == signed
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "HS256"}
    assert access_token(bytes(32)) != access_token(KEY)
    assert set(access_settings(KEY)) == {"spark.ui.filters", _KEY_NAME}


# --- in the driver ----------------------------------------------------------------------------------------------------


class Other:
    async def serve(self, request: Message) -> Message:
        return Ack()


@contextlib.asynccontextmanager
async def spark(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[SparkUiPages]:
    """Serve pages in place of Spark, and read them as the driver does."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()

    async def address() -> str:
        return f"http{'' if tls is None else 's'}://127.0.0.1:{runner.addresses[0][1]}"

    try:
        pages = SparkUiPages(Other(), address, "the token")
        yield pages
        await pages.close()
    finally:
        await runner.cleanup()


def asked(path: str, base: str = "") -> ReadSparkUi:
    return ReadSparkUi(job_id=JOB, attempt=1, path=path, base=base)


async def test_spark_learns_below_which_path_its_pages_are_seen() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("X-Forwarded-Context", "none"))

    async with spark(answer) as pages:
        for base, seen in (("", b"none"), ("/a_ticket-1", b"/a_ticket-1")):
            page = await pages.serve(asked("/jobs/", base))
            assert isinstance(page, SparkUiRead)
            assert page.body == seen
        for base in ("/", "no-slash", "/two/parts", "/a\r\nHost: evil", "//evil", "/<script>"):
            with pytest.raises(InvalidInput, match="not a path of one part"):
                await pages.serve(asked("/jobs/", base))


async def test_a_page_is_read_with_the_token_and_its_own_query() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer the token"
        return web.Response(text=request.rel_url.raw_path_qs, content_type="text/html")

    async with spark(answer) as pages:
        page = await pages.serve(asked("/SQL/execution/?id=1&a=%2Fb"))
        assert isinstance(page, SparkUiRead)
        assert (page.status, page.location) == (200, "")
        assert page.body == b"/SQL/execution/?id=1&a=%2Fb"
        assert page.content_type.startswith("text/html")
        assert isinstance(await pages.serve(Ack()), Ack)


def users_tls(directory: Path) -> ssl.SSLContext:
    """Return TLS with a certificate that nobody has signed, as a user may give Spark (``spark.ssl.ui``)."""
    certificate = directory / "certificate.pem"
    certificate.write_bytes(seeded_certificate(bytes(32)).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_ui_with_tls_of_the_user_is_read(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.scheme} {request.headers['Authorization']}")

    async with spark(answer, users_tls(tmp_path)) as pages:
        page = await pages.serve(asked("/jobs/"))
        assert isinstance(page, SparkUiRead)
        assert page.body == b"https Bearer the token"


async def test_a_ui_that_asks_for_a_certificate_says_what_helps(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    tls = users_tls(tmp_path)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with spark(answer, tls) as pages:
        with pytest.raises(RetryLater, match=r"does not answer: .*spark\.ssl\.ui\.needClientAuth"):
            await pages.serve(asked("/jobs/"))


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("http://127.0.0.1:{port}/jobs/?x=1", "/jobs/?x=1"),
        ("/jobs/", "/jobs/"),
        ("http://evil.example/jobs/", ""),
        ("//evil.example/jobs/", ""),
        ("javascript:alert(1)", ""),
    ],
)
async def test_a_redirect_leads_to_the_ui_or_nowhere(location: str, path: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location.format(port=request.url.port)})

    async with spark(answer) as pages:
        page = await pages.serve(asked("/"))
        assert isinstance(page, SparkUiRead)
        assert (page.status, page.location) == (302, path)


@pytest.mark.parametrize(
    "path", ["", "jobs", "//evil.example/", "http://evil.example/", "@evil.example/", "/a b", "/\r\nHost: x", "/é"]
)
async def test_no_other_server_is_asked(path: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        raise AssertionError(request)

    async with spark(answer) as pages:
        with pytest.raises(InvalidInput, match="not a path of the Spark UI"):
            await pages.serve(asked(path))


async def test_a_page_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_pages, "SPARK_UI_BYTES", 1000)
    monkeypatch.setattr(driver_spark_ui, "SECONDS", 0.2)
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await release.wait()
        return web.Response(body=bytes(1001))

    async with spark(answer) as pages:
        with pytest.raises(Conflict, match="has more than") as caught:
            await pages.serve(asked("/large"))
        assert "the link on the job's page" in str(caught.value.hint)
        with pytest.raises(RetryLater, match="did not answer within"):
            await pages.serve(asked("/slow"))
        monkeypatch.setattr(driver_spark_ui, "SECONDS", 60.0)
        waiting = [asyncio.create_task(pages.serve(asked("/slow"))) for _ in range(32)]
        await asyncio.sleep(0)
        with pytest.raises(OverQuota):
            await pages.serve(asked("/jobs/"))
        release.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, Conflict) for result in results)


@dataclasses.dataclass
class LargePages:
    """Pages of Spark that are larger than one reply, and arrive in parts. ``/failing`` breaks off."""

    body: bytes = bytes(range(250)) * 20

    async def answer(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await reply.prepare(request)
        await reply.write(self.body)
        if request.path == "/failing":
            await asyncio.sleep(0)
            assert request.transport is not None
            request.transport.abort()
        return reply


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_page_pieces, "SPARK_UI_BYTES", 1000)
    monkeypatch.setattr(spark_page_pieces, "SPARK_UI_PIECE_BYTES", 300)


def continued(page: Message) -> ReadSparkUi:
    assert isinstance(page, SparkUiRead)
    return ReadSparkUi(job_id=JOB, attempt=1, path="/", more=page.more)


async def begun(pages: SparkUiPages, path: str = "/large") -> ReadSparkUi:
    """Return the request for the second piece of a large page."""
    page = await pages.serve(ReadSparkUi(job_id=JOB, attempt=1, path=path, in_pieces=True))
    assert isinstance(page, SparkUiRead)
    assert (len(page.body), bool(page.more)) == (1000, True)
    return continued(page)


@pytest.mark.usefixtures("small_pieces")
async def test_a_large_page_is_read_in_pieces() -> None:
    large = LargePages()
    async with spark(large.answer) as pages:
        page = await pages.serve(ReadSparkUi(job_id=JOB, attempt=1, path="/large", in_pieces=True))
        assert isinstance(page, SparkUiRead)
        assert page.content_type == "text/plain"
        sizes, body = [len(page.body)], page.body
        while page.more:
            page = await pages.serve(continued(page))
            assert isinstance(page, SparkUiRead)
            sizes.append(len(page.body))
            body += page.body
        assert body == large.body
        assert sizes == [1000, *[300] * 13, 100]


@pytest.mark.usefixtures("small_pieces")
async def test_a_page_that_fits_is_one_piece() -> None:
    async with spark(LargePages(bytes(1000)).answer) as pages:
        page = await pages.serve(ReadSparkUi(job_id=JOB, attempt=1, path="/", in_pieces=True))
        assert isinstance(page, SparkUiRead)
        assert (len(page.body), page.more) == (1000, "")


@pytest.mark.usefixtures("small_pieces")
async def test_a_piece_that_is_not_awaited_is_absent() -> None:
    async with spark(LargePages().answer) as pages:
        second = await begun(pages)
        await pages.serve(second)
        await pages.serve(second)  # its name stays the same: the third piece
        with pytest.raises(Absent, match="no longer read"):
            await pages.serve(ReadSparkUi(job_id=JOB, attempt=1, path="/", more="guessed"))


@pytest.mark.usefixtures("small_pieces")
async def test_a_page_that_is_abandoned_makes_room_at_once() -> None:
    async with spark(LargePages().answer) as pages:
        requests = [await begun(pages) for _ in range(PAGES_AT_ONCE)]
        with pytest.raises(OverQuota):
            await begun(pages)
        left = msgspec.structs.replace(requests[0], abandons=True)
        for _ in range(2):
            page = await pages.serve(left)
            assert isinstance(page, SparkUiRead)
            assert (page.status, page.body, page.more) == (204, b"", "")
        await begun(pages)
        with pytest.raises(Absent, match="no longer read"):
            await pages.serve(requests[0])
        await pages.serve(requests[1])


@pytest.mark.usefixtures("small_pieces")
async def test_a_large_page_that_breaks_off_is_not_taken_for_whole() -> None:
    async with spark(LargePages().answer) as pages:
        request = await begun(pages, "/failing")

        async def rest() -> None:
            page: Message = await pages.serve(request)
            while isinstance(page, SparkUiRead) and page.more:
                page = await pages.serve(continued(page))

        with pytest.raises(RetryLater, match="does not answer"):
            await rest()
        with pytest.raises(Absent):
            await pages.serve(request)


@pytest.mark.usefixtures("small_pieces")
async def test_large_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_page_pieces, "SPARK_UI_PAGE_BYTES", 1500)
    async with spark(LargePages().answer) as pages:
        requests = [await begun(pages) for _ in range(spark_page_pieces.PAGES_AT_ONCE)]
        with pytest.raises(OverQuota, match="too many large pages"):
            await begun(pages)
        monkeypatch.setattr(spark_page_pieces, "IDLE_SECONDS", 0.0)
        await begun(pages)
        with pytest.raises(Absent):
            await pages.serve(requests[0])
        await pages.serve(requests[1])
        with pytest.raises(Conflict, match="a page of the Spark UI has more than"):
            await pages.serve(requests[1])
        with pytest.raises(Absent):
            await pages.serve(requests[1])


async def test_a_ui_that_is_turned_off_says_how_to_turn_it_on() -> None:
    async def address() -> None:
        return None

    with pytest.raises(Conflict) as caught:
        await SparkUiPages(Other(), address, "").serve(asked("/"))
    assert (
        caught.value.hint == "submit the job without spark.ui.enabled=false, in its settings and in spark-defaults.conf"
    )


# --- through the cluster ----------------------------------------------------------------------------------------------


async def test_a_page_comes_as_data_that_no_browser_shows(tmp_path: Path) -> None:
    gateway, uis = FakeGateway(), HostileSparkUis()
    gateway.add(job_view(JOB, "etl", job_master="127.0.0.2:7"))
    async with running_site(tmp_path, gateway, spark_uis=uis) as site:
        answer = await site.request("GET", f"/v1/jobs/{JOB}/spark-ui?path=/SQL/%3Fid=1")
        assert answer.headers["Content-Type"].startswith("application/json")
        assert base64.b64decode(answer.json()["body"]) == b"<script>alert(1)</script>"
        assert b"<script" not in answer.body
        assert uis.asked == [("127.0.0.2:7", JOB, 2, "/SQL/?id=1")]
        assert (await site.request("GET", f"/v1/jobs/{JOB}/spark-ui?path=jobs")).status == 400


def test_a_session_of_the_console_cannot_use_it() -> None:
    (path,) = {route.full_path for route in ROUTES if route.path.endswith("/spark-ui")}
    assert ("GET", path) not in session_routes(())


@pytest.mark.parametrize(
    ("view", "status", "reason"),
    [
        (job_view(JOB, "etl"), 503, "has no driver now"),
        (job_view(JOB, "etl", attempt=0), 404, "no driver of job 'etl' was started yet"),
    ],
)
async def test_without_a_driver_there_is_no_ui(tmp_path: Path, view: Any, status: int, reason: str) -> None:
    gateway = FakeGateway()
    gateway.add(view)
    async with running_site(tmp_path, gateway) as site:
        answer = await site.request("GET", f"/v1/jobs/{JOB}/spark-ui")
        assert answer.status == status
        assert reason in str(answer.json())


# --- at the command's port --------------------------------------------------------------------------------------------


class Pages:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, path: str) -> SparkUiPage:
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        return SparkUiPage(status=302, content_type="text/html", location="/jobs/", body=b"<html>")


@contextlib.asynccontextmanager
async def command(pages: Pages) -> AsyncIterator[tuple[str, str, ClientSession]]:
    """Yield the command's link, its origin, and a client without cookies of its own."""
    async with SparkUiServer(pages).serving(0) as link, ClientSession(cookie_jar=DummyCookieJar()) as client:
        yield link, link.partition("/emberkeep-open/")[0], client


async def opened(link: str, client: ClientSession) -> dict[str, str]:
    """Return the headers of a browser that has opened the link."""
    async with client.get(link, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        name, _, rest = answer.headers["Set-Cookie"].partition("=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in rest.split(";")}
        return {"Cookie": f"{name}={rest.partition(';')[0]}"}


async def test_the_link_opens_the_pages_once() -> None:
    pages = Pages()
    async with command(pages) as (link, origin, client):
        cookie = await opened(link, client)
        async with client.get(f"{origin}/SQL/?id=1", headers=cookie, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/jobs/")
            assert (await answer.read(), answer.headers["Cache-Control"]) == (b"<html>", "no-store")
        async with client.get(link, allow_redirects=False) as again:
            assert (again.status, "Set-Cookie" in again.headers) == (403, False)
    assert pages.asked == ["/SQL/?id=1"]


async def test_others_on_this_machine_get_nothing() -> None:
    pages = Pages()
    async with command(pages) as (link, origin, client):
        port = origin.rpartition(":")[2]
        for headers in ({}, {"Cookie": f"emberkeep-spark-ui-{port}="}, {"Cookie": f"emberkeep-spark-ui-{port}=guess"}):
            async with client.get(f"{origin}/jobs/", headers=headers) as answer:
                assert answer.status == 403
                assert "Open the link" in await answer.text()
        async with client.get(f"{origin}/emberkeep-open/", allow_redirects=False) as answer:
            assert answer.status == 403
        cookie = await opened(link, client)
        async with client.get(f"{origin}/emberkeep-open/", allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
        async with client.get(f"{origin}/jobs/", headers={**cookie, "Host": f"evil.example:{port}"}) as answer:
            assert answer.status == 403
        async with client.post(f"{origin}/stages/stage/kill/?id=1", headers=cookie) as answer:
            assert answer.status == 405
    assert pages.asked == []


@pytest.mark.parametrize(("error", "status"), [(RetryLater("no driver"), 502), (Absent("it has ended"), 404)])
async def test_an_error_is_shown_and_the_command_goes_on(error: Exception, status: int) -> None:
    pages = Pages()
    async with command(pages) as (link, origin, client):
        cookie = await opened(link, client)
        pages.error = error
        async with client.get(f"{origin}/jobs/", headers=cookie) as answer:
            assert (answer.status, await answer.text()) == (status, f"{error}\n")
        pages.error = None
        async with client.get(f"{origin}/jobs/", headers=cookie, allow_redirects=False) as answer:
            assert answer.status == 302
