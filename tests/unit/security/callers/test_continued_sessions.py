"""A browser's session goes on at the next leader; nobody else's does, and not for long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlencode

import msgspec
import pytest
from aiohttp import ClientSession, DummyCookieJar, web

from emberkeep.adapters.http.continued_sessions import EPOCH_HEADER, OTHERS_HEADER, PASS_HEADER, ContinuedSessions
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.sessions import LIFETIME_SECONDS, WebAccess, WebSessions
from emberkeep.adapters.http.web_login import login_routes
from emberkeep.base.identity import CLUSTER, Identity, Role
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.identities.session_passes import VALID_MS, SessionPass, SessionPasses

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-7")]

TOKEN = "tok-" + "x" * 40
PAGE = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
ANNA = Identity("anna", Role.VIEWER, "sales")


@dataclass
class World:
    """Two JobManagers with one wall clock, and what each holds true."""

    now_ms: int = 1_000_000
    left_out: set[str] = field(default_factory=set)  # names whose tokens are revoked
    addresses: list[str] = field(default_factory=list)

    def seconds(self) -> float:
        return self.now_ms / 1000


@dataclass
class JobManager:
    world: World
    sessions: WebSessions
    client: ClientSession
    epoch: int
    address: str = ""

    @property
    def origin(self) -> str:
        return f"http://{self.address}"

    async def page(self, cookie: str, path: str = "/") -> tuple[int, dict[str, str], str]:
        headers = {**PAGE, "Cookie": cookie}
        async with self.client.get(self.origin + path, headers=headers, allow_redirects=False) as answer:
            return answer.status, dict(answer.headers), await answer.text()

    def cookie(self, identity: Identity = CLUSTER) -> str:
        return f"emberkeep-{self.address.rpartition(':')[2]}={self.sessions.begin(identity)}"

    async def passed(self, cookie: str) -> str:
        return (await self.page(cookie))[1][PASS_HEADER]

    async def asks(self, origin: str, after: str) -> tuple[int, str | None]:
        path = f"/login/continue?after={after}"
        async with self.client.get(self.origin + path, headers={"Origin": origin}) as answer:
            return answer.status, answer.headers.get("Access-Control-Allow-Origin")

    async def take(self, text: str, origin: str, page: str = "/jobs") -> tuple[int, str, str]:
        """Return the status, the text, and the cookie of the session that goes on here."""
        data = urlencode({"pass": text, "page": page})
        headers = {**PAGE, "Origin": origin}
        async with self.client.post(f"{self.origin}/login/continue", headers=headers, data=data) as answer:
            return answer.status, await answer.text(), answer.headers.get("Set-Cookie", "").partition(";")[0]


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def old(world: World) -> AsyncIterator[JobManager]:
    async for started in _started(world, 4):
        yield started


@pytest.fixture
async def new(world: World) -> AsyncIterator[JobManager]:
    async for started in _started(world, 5):
        yield started


async def _started(world: World, epoch: int) -> AsyncIterator[JobManager]:
    sessions = WebSessions(world.seconds, lambda identity: identity.name not in world.left_out)

    async def show(request: web.Request) -> web.Response:
        return web.Response(text=request[REQUEST_IDENTITY].name, content_type="text/html")

    app = web.Application()
    secure(
        app, AccessPolicy(TOKEN, web=WebAccess(sessions, frozenset({("GET", "/")})), roles={("GET", "/"): Role.VIEWER})
    )
    async with ClientSession(cookie_jar=DummyCookieJar()) as client:
        job_manager = JobManager(world, sessions, client, epoch)
        passes = SessionPasses(TOKEN)
        continued = ContinuedSessions(
            passes, sessions, lambda: job_manager.epoch, lambda: world.now_ms, lambda: world.addresses
        )
        app.add_routes([*login_routes(TOKEN, sessions), *continued.routes(), web.get("/", show)])
        continued.attach(app)
        server = await serve_http(app, bind_port("127.0.0.1", 0))
        job_manager.address = server.address
        world.addresses.append(server.address)
        try:
            yield job_manager
        finally:
            await server.close()


async def test_a_session_goes_on_at_the_next_leader_as_the_same_user(old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie(ANNA))
    status, shown, cookie = await new.take(text, old.origin, "/jobs?state=FAILED&page=2")
    assert status == 200
    assert 'content="0; url=/jobs?state=FAILED&amp;page=2"' in shown
    assert (await new.page(cookie))[2] == "anna"
    assert [new.sessions.use(cookie.partition("=")[2])] == [ANNA]


async def test_the_session_of_the_clusters_own_token_goes_on_as_such(old: JobManager, new: JobManager) -> None:
    cookie = (await new.take(await old.passed(old.cookie()), old.origin))[2]
    assert new.sessions.use(cookie.partition("=")[2]) is CLUSTER


async def test_a_session_does_not_get_longer(world: World, old: JobManager, new: JobManager) -> None:
    cookie = old.cookie()
    world.now_ms += 30 * 60_000
    new_cookie = (await new.take(await old.passed(cookie), old.origin))[2]
    left = new.sessions.seconds_left(new_cookie.partition("=")[2])
    assert LIFETIME_SECONDS - 1801 <= left <= LIFETIME_SECONDS - 1800


@pytest.mark.parametrize(
    "page", ["//other.example", "https://other.example", "/\\other", '/"><script>', "jobs", "/a;url=x"]
)
async def test_no_other_server_is_reached_through_it(old: JobManager, new: JobManager, page: str) -> None:
    _, shown, _ = await new.take(await old.passed(old.cookie()), old.origin, page)
    assert 'content="0; url=/"' in shown
    assert page not in shown


async def test_a_pass_is_used_once(old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie())
    assert (await new.take(text, old.origin))[2]
    status, _, cookie = await new.take(text, old.origin)
    assert (status, cookie) == (401, "")


async def test_a_pass_is_nothing_where_its_writer_still_leads(old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie())
    assert (await old.take(text, old.origin))[0] == 401
    new.epoch = old.epoch
    assert (await new.take(text, old.origin))[0] == 401


async def test_a_pass_expires(world: World, old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie())
    world.now_ms += VALID_MS
    assert (await new.take(text, old.origin))[0] == 401


async def test_another_servers_page_cannot_use_a_pass(old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie())
    for origin in ("null", "https://other.example", new.origin):
        assert (await new.take(text, origin))[0] == 401
    assert (await new.take(text, old.origin))[0] == 200


async def test_a_revoked_token_ends_its_passes(world: World, old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie(ANNA))
    world.left_out.add("anna")
    assert (await new.take(text, old.origin))[0] == 401


async def test_a_changed_pass_and_one_of_another_cluster_are_refused(old: JobManager, new: JobManager) -> None:
    text = await old.passed(old.cookie(ANNA))
    found = SessionPasses(TOKEN).read(text)
    assert found is not None
    raised = msgspec.structs.replace(found, role=Role.ADMIN)
    foreign = SessionPasses("another token").written(raised)
    claim, signature = SessionPasses("another token").written(raised).split(".")[0], text.split(".")[1]
    for wrong in (foreign, f"{claim}.{signature}", text[:-1], "", "x" * 5000, ".", "é"):
        assert (await new.take(wrong, old.origin))[0] == 401


async def test_only_pages_of_job_managers_learn_who_leads(old: JobManager, new: JobManager) -> None:
    assert await new.asks(old.origin, "4") == (204, old.origin)
    assert await new.asks("http://other.example", "4") == (204, None)


async def test_a_session_that_has_just_ended_is_told_from_a_takeover(old: JobManager, new: JobManager) -> None:
    headers = (await old.page(old.cookie()))[1]
    assert headers[EPOCH_HEADER] == "4"
    for after in ("5", "6", "", "x", "9" * 30):
        assert await new.asks(old.origin, after) == (409, old.origin)


async def test_a_page_may_reach_the_other_job_managers_and_nobody_else(old: JobManager, new: JobManager) -> None:
    headers = (await old.page(old.cookie()))[1]
    assert headers[OTHERS_HEADER] == new.origin
    policy = headers["Content-Security-Policy"]
    assert f"connect-src 'self' {new.origin};" in policy
    assert f"form-action 'self' {new.origin};" in policy


async def test_who_sends_the_token_or_nothing_gets_no_pass(old: JobManager) -> None:
    async with old.client.get(old.origin, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert answer.status == 200
        assert PASS_HEADER not in answer.headers
    status, headers, _ = await old.page("")
    assert status == 401
    assert PASS_HEADER not in headers


def test_a_pass_of_a_later_release_with_more_fields_is_read() -> None:
    class Later(SessionPass, frozen=True, kw_only=True):
        shade: str = ""

    later = Later(id="i", host="h", epoch=1, issued_ms=1, until_ms=9, name="anna", role=Role.VIEWER, shade="dark")
    found = SessionPasses(TOKEN).read(SessionPasses(TOKEN).written(later))
    assert found is not None
    assert found.name == "anna"
