"""The port of the Spark UIs: what opens it, what a page there can do, and what it cannot do in the console."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest
from aiohttp import ClientPayloadError, ClientSession, DummyCookieJar, web
from yarl import URL

from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.sessions import WebSessions
from emberkeep.adapters.http.spark_ui_port import guard_spark_ui
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.jobs.model import AttemptRecord
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.quotas.quotas import CallerLimits, Quotas
from emberkeep.rest.serving.spark_ui_links import (
    LIFETIME_SECONDS,
    MOST_OF_ONE,
    MOST_TICKETS,
    SparkUiLinks,
    SparkUiView,
)
from emberkeep.rest.serving.spark_ui_reading import abandon_page, read_following, read_spark_ui
from emberkeep.rest.spark_proxy.application import build_spark_proxy, build_spark_proxy_standby
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import TOKEN, Answer, Site, eventually, read, running_site

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-10")]

JOB, OTHER = job_id(1), job_id(2)


@dataclass
class Uis:
    """Spark UIs that show where and below which path they were asked."""

    asked: list[tuple[str, JobId, int, str, str]] = field(default_factory=list)
    error: Exception | None = None
    status: int = 200
    location: str = ""
    body: bytes = b"<script>1</script>"
    more: str = ""
    continued: list[tuple[str, JobId, int, str]] = field(default_factory=list)
    breaks: bool = False
    abandoned: list[tuple[str, JobId, int, str]] = field(default_factory=list)

    async def read(
        self, job_master: str, job_id: JobId, attempt: int, path: str, base: str = "", *, in_pieces: bool = False
    ) -> SparkUiRead:
        assert in_pieces, "pages at this port may be large"
        self.asked.append((job_master, job_id, attempt, path, base))
        if self.error is not None:
            raise self.error
        return SparkUiRead(
            status=self.status, content_type="text/html", location=self.location, body=self.body, more=self.more
        )

    async def following(self, job_master: str, job_id: JobId, attempt: int, more: str) -> SparkUiRead:
        self.continued.append((job_master, job_id, attempt, more))
        if self.breaks:
            raise RetryLater("it does not answer")
        return SparkUiRead(status=200, content_type="text/html", location="", body=b"<script>2</script>")

    async def abandon(self, job_master: str, job_id: JobId, attempt: int, more: str) -> None:
        self.abandoned.append((job_master, job_id, attempt, more))


class Hands:
    """A clock that a test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Cluster:
    """A console, the port of the Spark UIs, and a client without cookies of its own."""

    site: Site
    uis: Uis
    clock: Hands
    client: ClientSession
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def send(self, method: str, url: str, **headers: str) -> Answer:
        async with self.client.request(method, URL(url, encoded=True), headers=headers, allow_redirects=False) as reply:
            return await read(reply)

    async def link(self, job: JobId = JOB, **headers: str) -> str:
        sent = headers or {"Authorization": f"Bearer {TOKEN}"}
        answer = await self.send("POST", f"{self.site.base}/v1/jobs/{job}/spark-ui-links", **sent)
        assert answer.status == 201, answer.body
        return str(answer.json()["url"])

    async def session(self) -> str:
        """Return the cookie of a new session of the console."""
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.site.base}
        async with self.client.post(
            f"{self.site.base}/login", data=urlencode({"token": TOKEN}), headers=form, allow_redirects=False
        ) as reply:
            return reply.headers["Set-Cookie"].partition(";")[0]

    async def opened(self, link: str) -> str:
        """Open a link as a browser does, and return its cookie."""
        answer = await self.send("GET", link)
        assert answer.status == 200
        return str(answer.headers["Set-Cookie"]).partition(";")[0]


def guard(app: web.Application, may_pass: Callable[[web.Request], bool], refusal: Callable[[], web.Response]) -> None:
    guard_spark_ui(app, frozenset({"console.example"}), Quotas(CallerLimits()), may_pass, refusal)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    gateway, uis, clock, port = FakeGateway(), Uis(), Hands(), bind_port("127.0.0.1", 0)
    gateway.add(job_view(JOB, "etl", job_master="127.0.0.2:7"), job_view(OTHER, "other", job_master="127.0.0.2:8"))
    links = SparkUiLinks(port.port, clock)
    async with (
        running_site(tmp_path, gateway, spark_uis=uis, spark_ui_links=links, sessions=WebSessions()) as site,
        ClientSession(cookie_jar=DummyCookieJar()) as client,
    ):
        pages, following = partial(read_spark_ui, gateway, uis, in_pieces=True), partial(read_following, gateway, uis)
        abandon = partial(abandon_page, gateway, uis)
        server = await serve_http(build_spark_proxy(links, pages, following, abandon, guard=guard), port)
        try:
            yield Cluster(site, uis, clock, client, port.port)
        finally:
            await server.close()


async def test_the_pieces_of_a_large_page_are_read_where_it_was_begun(cluster: Cluster) -> None:
    link = await cluster.link()
    cookie = await cluster.opened(link)
    cluster.uis.more = "page-1"
    answer = await cluster.send("GET", f"{link}SQL/", Cookie=cookie)
    assert (answer.status, answer.body) == (200, b"<script>1</script><script>2</script>")
    assert cluster.uis.continued == [("127.0.0.2:7", JOB, 2, "page-1")]


async def test_a_large_page_that_breaks_off_is_abandoned_where_it_was_begun(cluster: Cluster) -> None:
    link = await cluster.link()
    cookie = await cluster.opened(link)
    cluster.uis.more, cluster.uis.breaks = "page-1", True
    with pytest.raises(ClientPayloadError):
        await cluster.send("GET", f"{link}SQL/", Cookie=cookie)
    await eventually(lambda: bool(cluster.uis.abandoned))
    assert cluster.uis.abandoned == [("127.0.0.2:7", JOB, 2, "page-1")]


async def test_a_link_opens_the_ui_of_one_attempt_in_one_browser(cluster: Cluster) -> None:
    link = await cluster.link()
    assert link.startswith(f"{cluster.origin}/")
    first = await cluster.send("GET", link)
    cookie = first.headers["Set-Cookie"]
    base = URL(link).path.rstrip("/")
    assert (first.status, first.body) == (200, b"<script>1</script>")
    assert {"HttpOnly", "SameSite=Strict", f"Path={base}/"} <= {part.strip() for part in cookie.split(";")}
    assert first.headers["Referrer-Policy"] == "no-referrer"
    assert f"connect-src {link};" in first.headers["Content-Security-Policy"]

    own = cookie.partition(";")[0]
    again = await cluster.send("GET", f"{link}SQL/execution/?id=1&a=%2Fb", Cookie=own)
    assert (again.status, "Set-Cookie" in again.headers) == (200, False)
    assert cluster.uis.asked[-1] == ("127.0.0.2:7", JOB, 2, "/SQL/execution/?id=1&a=%2Fb", base)
    assert (await cluster.send("HEAD", f"{link}static/webui.js", Cookie=own)).body == b""

    asked = len(cluster.uis.asked)
    for headers in ({}, {"Cookie": own.partition("=")[0] + "=guess"}):
        answer = await cluster.send("GET", link, **headers)
        assert (answer.status, b"works in one browser" in answer.body) == (403, True)
    assert len(cluster.uis.asked) == asked


async def test_the_console_leads_to_it(cluster: Cluster) -> None:
    session = await cluster.session()
    answer = await cluster.send("GET", f"{cluster.site.base}/jobs/{JOB}/spark-ui?attempt=1", Cookie=session)
    assert answer.status == 303
    await cluster.opened(answer.headers["Location"])
    assert cluster.uis.asked[-1][:3] == ("", JOB, 1), "an attempt that has ended has no JobMaster"
    for attempt in ("3", "x"):
        refused = await cluster.send(
            "GET", f"{cluster.site.base}/jobs/{JOB}/spark-ui?attempt={attempt}", Cookie=session
        )
        assert (refused.status, b"<html" in refused.body) == (404 if attempt == "3" else 400, True)


async def test_neither_tokens_nor_the_consoles_cookie_open_it_and_nothing_of_a_request_reaches_a_jvm(
    cluster: Cluster,
) -> None:
    session = await cluster.session()
    for path in ("/", "/jobs/", f"/v1/jobs/{JOB}", "/static/webui.js"):
        answer = await cluster.send("GET", cluster.origin + path, Cookie=session, Authorization=f"Bearer {TOKEN}")
        assert answer.status == 403
    assert cluster.uis.asked == []
    link = await cluster.link()
    cookie = f"{session}; {await cluster.opened(link)}"
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 200
    assert TOKEN not in str(cluster.uis.asked)
    assert session.partition("=")[2] not in str(cluster.uis.asked)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_page_there_cannot_act_in_the_console(cluster: Cluster, method: str) -> None:
    """Browsers send the console's cookie with requests from any port of its host, so the origin decides."""
    session = await cluster.session()
    for path in (f"/v1/jobs/{JOB}?mode=cancel", f"/v1/jobs/{JOB}/stop", f"/v1/jobs/{JOB}/spark-ui-links", "/logout"):
        answer = await cluster.send(method, cluster.site.base + path, Cookie=session, Origin=cluster.origin)
        assert answer.status in (403, 405), (method, path)
        if answer.status == 403:
            assert "does not come from a page of this server" in answer.problem().detail
    assert cluster.site.gateway.cancelled == []
    assert (await cluster.send("GET", f"{cluster.site.base}/jobs", Cookie=session)).status == 200


async def test_it_can_only_be_read_and_answers_to_its_own_names(cluster: Cluster) -> None:
    link = await cluster.link()
    cookie = await cluster.opened(link)
    assert (await cluster.send("POST", f"{link}stages/stage/kill/?id=1", Cookie=cookie)).status == 405
    assert (await cluster.send("GET", link, Cookie=cookie, Host="evil.example")).status == 403
    assert (await cluster.send("GET", link, Cookie=cookie, Host=f"console.example:{cluster.port}")).status == 200


async def test_a_hostile_jvm_chooses_neither_headers_nor_where_the_browser_goes(cluster: Cluster) -> None:
    link = await cluster.link()
    cookie = await cluster.opened(link)
    base = URL(link).path.rstrip("/")
    for location, shown in (("/jobs/", f"{base}/jobs/"), (f"{base}/jobs/", f"{base}/jobs/")):
        cluster.uis.status, cluster.uis.location = 302, location
        answer = await cluster.send("GET", link, Cookie=cookie)
        assert (answer.status, answer.headers["Location"]) == (302, shown)
    cluster.uis.status, cluster.uis.location = 101, ""
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 502
    without = await cluster.send("GET", f"{cluster.origin}{base}", Cookie=cookie)
    assert (without.status, without.headers["Location"]) == (303, f"{base}/")


@pytest.mark.parametrize(("error", "status"), [(RetryLater("no driver now"), 503), (Conflict("it is off"), 409)])
async def test_an_error_is_shown_and_the_link_stays_with_the_browser(
    cluster: Cluster, error: Exception, status: int
) -> None:
    cluster.uis.error = error
    link = await cluster.link()
    answer = await cluster.send("GET", link)
    assert (answer.status, answer.body.decode()) == (status, f"{error}\n")
    cluster.uis.error = None
    cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 200


async def test_a_link_ends_with_the_session_that_has_asked_for_it(cluster: Cluster) -> None:
    session = await cluster.session()
    link = await cluster.link(Cookie=session, Origin=cluster.site.base)
    cookie = await cluster.opened(link)
    assert (
        await cluster.send("POST", f"{cluster.site.base}/logout", Cookie=session, Origin=cluster.site.base)
    ).status == 303
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 403


async def test_a_link_ends_after_its_time(cluster: Cluster) -> None:
    link = await cluster.link()
    cookie = await cluster.opened(link)
    cluster.clock.now += LIFETIME_SECONDS - 1
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 200
    cluster.clock.now += 1
    assert (await cluster.send("GET", link, Cookie=cookie)).status == 403


async def test_a_job_that_has_no_attempt_has_no_link(cluster: Cluster) -> None:
    cluster.site.gateway.add(job_view(job_id(3), "waiting", attempt=0))
    path = f"{cluster.site.base}/v1/jobs/{job_id(3)}/spark-ui-links"
    assert (await cluster.send("POST", path, Authorization=f"Bearer {TOKEN}")).status == 404


class Asks:
    """A request, as far as links need one."""

    scheme, url = "http", URL("http://node:8081/")

    def __init__(self, name: str) -> None:
        self._identity = Identity(name, Role.VIEWER)

    def __getitem__(self, key: object) -> Identity:
        assert key is REQUEST_IDENTITY
        return self._identity

    def get(self, key: object) -> None:
        return None


class Opens:
    """A request with a ticket, as far as links need one."""

    def __init__(self, link: str) -> None:
        self.rel_url, self.cookies = URL(URL(link).path), dict[str, str]()


def is_open(links: SparkUiLinks, link: str) -> bool:
    return links.opened(Opens(link)) is not None  # type: ignore[arg-type]


def test_links_are_bounded_and_nobody_ends_those_of_all_others() -> None:
    links, view = SparkUiLinks(8082), SparkUiView(JOB, 1)
    of_alice = links.new(Asks("alice"), view)  # type: ignore[arg-type]
    of_bob = [links.new(Asks("bob"), view) for _ in range(MOST_OF_ONE + 1)]  # type: ignore[arg-type]
    assert not is_open(links, of_bob[0])
    assert is_open(links, of_bob[1])
    others = [links.new(Asks(f"user-{number}"), view) for number in range(MOST_TICKETS - MOST_OF_ONE)]  # type: ignore[arg-type]
    assert not is_open(links, of_alice), "the oldest ends"
    assert is_open(links, others[0])


@pytest.mark.parametrize("path", ["", "*", "ticket"])
def test_a_request_whose_path_has_no_slash_has_no_ticket(path: str) -> None:
    request = Opens("http://node:8082/")
    request.rel_url = URL(path)
    assert SparkUiLinks(8082).opened(request) is None  # type: ignore[arg-type]


async def test_the_ui_of_an_attempt_that_has_failed_is_shown_while_its_job_waits_for_the_next() -> None:
    gateway, uis = FakeGateway(), Uis()
    job = job_view(JOB, "etl")
    gateway.add(msgspec.structs.replace(job, job_master=""))
    with pytest.raises(RetryLater, match="has no driver now"):
        await read_spark_ui(gateway, uis, SparkUiView(JOB, 2), "/")
    ended = AttemptRecord(attempt=2, task_manager=TaskManagerId("tm"), started_ms=1, ended_ms=2)
    gateway.add(msgspec.structs.replace(job, attempts=(ended,), job_master=""))
    await read_spark_ui(gateway, uis, SparkUiView(JOB, 2), "/", in_pieces=True)
    assert uis.asked == [("", JOB, 2, "/", "")]


async def test_a_standby_says_where_the_leader_is() -> None:
    port = bind_port("127.0.0.1", 0)
    leader: list[str] = []
    app = build_spark_proxy_standby(lambda: leader[0] if leader else None, guard=guard)
    server = await serve_http(app, port)
    try:
        async with ClientSession() as client:
            for known in ("election may be under way", "the leader, node2:8081"):
                async with client.get(f"http://127.0.0.1:{port.port}/ticket/jobs/") as answer:
                    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                    assert known in await answer.text()
                assert port.connections.proven == 0, "a stranger stays one"
                leader.append("node2:8081")
    finally:
        await server.close()
