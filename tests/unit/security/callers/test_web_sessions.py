"""What a browser's session can do, for how long, and what an attacker with its cookie or an old link cannot do."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from aiohttp import ClientSession, DummyCookieJar

from emberkeep.adapters.http.login_page import LOGIN_PATH
from emberkeep.adapters.http.sessions import (
    CODE_SECONDS,
    IDLE_SECONDS,
    LIFETIME_SECONDS,
    MOST_CODES,
    MOST_SESSIONS,
    WebSessions,
)
from emberkeep.base.identity import CLUSTER, Identity, Role
from emberkeep.jobs.model import JobStatus
from emberkeep.rest.table import ROUTES
from emberkeep.web.session_routes import session_routes
from tests.unit.rest.fake_gateway import FakeGateway, driver_report, job_id, job_view, task_manager_view
from tests.unit.rest.server import TOKEN, Answer, Site, read, running_site

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-7")]

JOB = job_id(1)
HTML = {"Accept": "text/html,application/xhtml+xml"}
FORM = "application/x-www-form-urlencoded"


class Hands:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Browser:
    """Sends requests as a browser does: with cookies and Origin, without the token."""

    site: Site
    session: ClientSession
    clock: Hands
    cookie: str = ""

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, data: str | None = None
    ) -> Answer:
        sent = {"Cookie": self.cookie} if self.cookie else {}
        if method not in ("GET", "HEAD"):
            sent["Origin"] = self.site.base
        async with self.session.request(
            method, self.site.base + path, headers={**sent, **(headers or {})}, data=data, allow_redirects=False
        ) as response:
            return await read(response)

    async def submit(self, **fields: str) -> Answer:
        """Submit the login form, and keep the cookie."""
        answer = await self.request("POST", LOGIN_PATH, data=urlencode(fields), headers={"Content-Type": FORM, **HTML})
        if "Set-Cookie" in answer.headers:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    async def new_code(self) -> str:
        answer = await self.site.request("POST", "/v1/login-links")
        assert answer.status == 201
        return str(answer.json()["path"]).removeprefix(f"{LOGIN_PATH}?code=")


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    gateway, clock = FakeGateway(), Hands()
    gateway.add(job_view(JOB, "etl"), job_view(job_id(2), "old", JobStatus.FINISHED))
    gateway.add_task_managers(task_manager_view(2, drivers=(driver_report(JOB),)))
    async with (
        running_site(tmp_path, gateway, sessions=WebSessions(clock)) as site,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        yield Browser(site, session, clock)


@pytest.fixture
async def logged_in(browser: Browser) -> Browser:
    assert (await browser.submit(token=TOKEN)).status == 303
    return browser


class TestLogin:
    async def test_the_form_takes_the_token_and_gives_a_strict_cookie_that_is_not_made_of_it(
        self, browser: Browser
    ) -> None:
        first = await browser.submit(token=TOKEN)
        attributes = set(first.headers["Set-Cookie"].split("; "))
        port = browser.site.base.rpartition(":")[2]

        assert (first.status, first.headers["Location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= attributes
        assert browser.cookie.startswith(f"emberkeep-{port}=")
        assert (await browser.request("GET", "/")).status == 200

        earlier = browser.cookie
        await browser.submit(token=TOKEN)
        assert browser.cookie != earlier
        browser.cookie = earlier
        assert (await browser.request("GET", "/")).status == 401

    async def test_a_cookie_derived_from_the_token_opens_nothing(self, browser: Browser) -> None:
        name = f"emberkeep-{hashlib.sha256(TOKEN.encode()).hexdigest()[:8]}"
        value = hmac.new(TOKEN.encode(), b"emberkeep web session", hashlib.sha256).hexdigest()
        port = browser.site.base.rpartition(":")[2]
        for cookie in (f"{name}={value}", f"emberkeep-{port}={value}", f"emberkeep-{port}={TOKEN}"):
            browser.cookie = cookie
            assert (await browser.request("GET", "/")).status == 401

    async def test_the_token_in_an_address_logs_nobody_in(self, browser: Browser) -> None:
        for path in (f"{LOGIN_PATH}?token={TOKEN}", f"/?token={TOKEN}"):
            answer = await browser.request("GET", path, headers=HTML)
            assert "Set-Cookie" not in answer.headers
            assert TOKEN.encode() not in answer.body

    async def test_a_wrong_token_or_none_gets_a_page_and_no_cookie(self, browser: Browser) -> None:
        for fields in ({"token": "wrong"}, {"token": ""}, {}, {"code": "wrong"}, {"code": TOKEN}):
            answer = await browser.submit(**fields)
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False), fields
            assert answer.headers["Content-Type"].startswith("text/html")
            assert b'name="token"' in answer.body

    async def test_the_form_of_another_page_is_refused(self, browser: Browser) -> None:
        for origin in ("null", "http://127.0.0.1:1", "https://evil.example"):
            answer = await browser.request(
                "POST", LOGIN_PATH, data=f"token={TOKEN}", headers={"Content-Type": FORM, "Origin": origin}
            )
            assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)

    async def test_a_form_is_small_and_a_form(self, browser: Browser) -> None:
        assert (await browser.submit(token="x" * 20_000)).status == 413
        answer = await browser.request("POST", LOGIN_PATH, data="{}", headers={"Content-Type": "application/json"})
        assert answer.status == 415
        answer = await browser.request("POST", LOGIN_PATH, data="token=\xff%ff&&=", headers={"Content-Type": FORM})
        assert answer.status == 401

    async def test_a_form_that_breaks_off_is_refused(self, browser: Browser) -> None:
        host = browser.site.base.removeprefix("http://")
        for body in (b"Content-Length: 9\r\n\r\ntok", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
            reader, writer = await asyncio.open_connection(*host.split(":"))
            head = f"POST {LOGIN_PATH} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Type: {FORM}\r\n"
            writer.write(head.encode() + body)
            writer.write_eof()
            answer = await reader.read()
            assert answer.partition(b"\r\n")[0].split()[1:2] in ([b"400"], []), answer
            writer.close()

    async def test_browsers_send_the_origin_of_our_forms(self, browser: Browser) -> None:
        answer = await browser.request("GET", LOGIN_PATH, headers=HTML)
        assert (answer.status, answer.headers["Referrer-Policy"]) == (200, "same-origin")


class TestLink:
    async def test_it_logs_in_once(self, browser: Browser) -> None:
        code = await browser.new_code()
        page = await browser.request("GET", f"{LOGIN_PATH}?code={code}", headers=HTML)
        assert (page.status, "Set-Cookie" in page.headers) == (200, False)
        assert f'value="{code}"'.encode() in page.body
        assert b"/static/login.js" in page.body

        assert (await browser.submit(code=code)).status == 303
        assert (await browser.request("GET", "/")).status == 200

        stolen = await browser.submit(code=code)
        assert (stolen.status, "Set-Cookie" in stolen.headers) == (401, False)
        assert b"was used already" in stolen.body

    async def test_a_look_at_it_does_not_use_it_up(self, browser: Browser) -> None:
        code = await browser.new_code()
        for method in ("GET", "HEAD", "GET"):
            await browser.request(method, f"{LOGIN_PATH}?code={code}")
        assert (await browser.submit(code=code)).status == 303

    async def test_it_expires(self, browser: Browser) -> None:
        code = await browser.new_code()
        browser.clock.now += CODE_SECONDS
        assert (await browser.submit(code=code)).status == 401

    async def test_markup_in_it_is_not_shown(self, browser: Browser) -> None:
        answer = await browser.request("GET", f'{LOGIN_PATH}?code="><script>alert(1)</script>', headers=HTML)
        assert (answer.status, b"alert" in answer.body) == (401, False)

    async def test_only_the_token_makes_one(self, logged_in: Browser) -> None:
        assert (await logged_in.request("POST", "/v1/login-links")).status == 403
        logged_in.cookie = ""
        assert (await logged_in.request("POST", "/v1/login-links")).status == 401


class TestEnd:
    async def test_log_out_ends_the_session_on_the_server(self, logged_in: Browser) -> None:
        answer = await logged_in.request("POST", "/logout")

        assert (answer.status, answer.headers["Location"]) == (303, LOGIN_PATH)
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert (await logged_in.request("GET", "/")).status == 401

    async def test_every_page_has_the_button(self, logged_in: Browser) -> None:
        for path in ("/", "/jobs", "/nodes", f"/jobs/{JOB}", "/jobs/nonsense"):
            assert b'<form method="post" action="/logout">' in (await logged_in.request("GET", path)).body

    async def test_another_page_cannot_log_out(self, logged_in: Browser) -> None:
        answer = await logged_in.request("POST", "/logout", headers={"Origin": "http://evil.example"})
        assert answer.status == 403
        assert (await logged_in.request("GET", "/")).status == 200

    async def test_it_ends_without_use(self, logged_in: Browser) -> None:
        logged_in.clock.now += IDLE_SECONDS - 1
        assert (await logged_in.request("GET", "/")).status == 200
        logged_in.clock.now += IDLE_SECONDS
        answer = await logged_in.request("GET", "/", headers=HTML)
        assert (answer.status, b"Your session has ended" in answer.body) == (401, True)

    async def test_it_ends_in_spite_of_use(self, logged_in: Browser) -> None:
        until = logged_in.clock.now + LIFETIME_SECONDS
        while logged_in.clock.now + IDLE_SECONDS / 2 < until:
            logged_in.clock.now += IDLE_SECONDS / 2
            assert (await logged_in.request("GET", "/")).status == 200
        logged_in.clock.now = until
        assert (await logged_in.request("GET", "/")).status == 401


class TestReach:
    async def test_it_cannot_use_rpc_nor_submit_nor_read_blobs(self, logged_in: Browser) -> None:
        sha = "0" * 64
        for method, path in (
            ("POST", "/rpc/v1/StartDriver"),
            ("POST", "/rpc/v1/RegisterTaskManager"),
            ("POST", "/v1/jobs"),
            ("POST", f"/v1/jobs/{JOB}/blobs"),
            ("PUT", f"/v1/jobs/{JOB}/blobs/p-{sha}"),
            ("GET", f"/v1/jobs/{JOB}/blobs/p-{sha}"),
            ("DELETE", "/v1/cluster"),
            ("POST", "/v1/storage/purge"),
        ):
            answer = await logged_in.request(method, path)
            assert answer.status == 403, (method, path, answer.status)
            assert "a web session may not" in answer.problem().detail
        assert logged_in.site.shutdowns == []

    async def test_it_can_use_the_buttons(self, logged_in: Browser) -> None:
        answer = await logged_in.request("PATCH", f"/v1/jobs/{JOB}?mode=cancel")
        assert answer.status == 202
        assert [cancelled[0] for cancelled in logged_in.site.gateway.cancelled] == [JOB]

    async def test_every_address_on_the_pages_can_be_used(self, logged_in: Browser) -> None:
        """Crawl the pages: no link, source or button leads to a route that a session may not use."""
        seen: set[tuple[str, str]] = set()
        todo = [("GET", "/")]
        while todo:
            method, path = todo.pop()
            if (method, path) in seen or path == "/logout":
                continue
            seen.add((method, path))
            if "/events" in path:  # a stream, which does not end
                continue
            answer = await logged_in.request(method, path, headers={"Content-Type": "application/json"})
            assert answer.status not in (401, 403), (method, path, answer.status)
            if "html" in answer.headers.get("Content-Type", ""):
                todo += _addresses(answer.body.decode())
        assert len(seen) > 20

    async def test_each_route_of_the_api_that_it_may_use_exists(self) -> None:
        routes = {(route.method, route.full_path) for route in ROUTES} | {("GET", "/metrics")}
        assert session_routes([]) <= routes


def _addresses(page: str) -> list[tuple[str, str]]:
    shown = re.findall(r'(?:href|src|data-logs|data-source|data-api)="(/[^"#]*)"', page)
    buttons = re.findall(r'data-sends="(\w+) (/[^"]*)"', page)
    blocks = re.findall(r'data-(blocks|unblocks)="([^"]+)" data-kind="(\w+)"', page)
    return [
        *(("GET", path) for path in shown),
        *buttons,
        *(
            ("PUT" if verb == "blocks" else "DELETE", f"/v1/blocklist/{kind}/{quote(name, safe='')}")
            for verb, name, kind in blocks
        ),
    ]


class TestBounds:
    def test_sessions_are_bounded_and_those_in_use_stay(self) -> None:
        sessions = WebSessions(Hands())
        first, second = sessions.begin(CLUSTER), sessions.begin(CLUSTER)
        for _ in range(MOST_SESSIONS - 2):
            sessions.begin(CLUSTER)
        assert sessions.use(first)
        sessions.begin(CLUSTER)
        assert (sessions.use(first), sessions.use(second)) == (CLUSTER, None)

    def test_codes_are_bounded_and_the_newest_stay(self) -> None:
        sessions = WebSessions(Hands())
        codes = [sessions.new_code(CLUSTER) for _ in range(MOST_CODES + 1)]
        assert [sessions.redeem(codes[0]), sessions.redeem(codes[1]), sessions.redeem(codes[-1])] == [
            None,
            CLUSTER,
            CLUSTER,
        ]

    def test_neither_ids_nor_codes_are_kept(self) -> None:
        sessions = WebSessions(Hands())
        session, code = sessions.begin(CLUSTER), sessions.new_code(CLUSTER)
        kept = repr(vars(sessions))
        assert session not in kept
        assert code not in kept


class TestOneIdentityOfMany:
    """A valid login is not slowed down, so nothing else keeps a viewer from beginning session after session."""

    ADMIN, VIEWER = Identity("ada", Role.ADMIN), Identity("vera", Role.VIEWER, "trains")

    async def test_it_ends_no_session_of_another(self) -> None:
        sessions = WebSessions()
        admins = sessions.begin(self.ADMIN)
        theirs = [sessions.begin(self.VIEWER) for _ in range(2 * MOST_SESSIONS)]

        assert sessions.use(admins) == self.ADMIN
        assert [sessions.is_open(each) for each in theirs].count(True) == MOST_SESSIONS - 1
        assert sessions.is_open(theirs[-1])

    async def test_nor_a_link_of_another(self) -> None:
        sessions = WebSessions()
        admins = sessions.new_code(self.ADMIN)
        theirs = [sessions.new_code(self.VIEWER) for _ in range(2 * MOST_CODES)]

        assert sessions.redeem(admins) == self.ADMIN
        assert sessions.redeem(theirs[-1]) == self.VIEWER
