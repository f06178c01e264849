"""Who gets in, and what refusals look like."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import ClientSession, DummyCookieJar, web
from aiohttp.test_utils import make_mocked_request

from emberkeep.adapters.http.security import (
    AccessPolicy,
    check_bind_address,
    secure,
)
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.sessions import WebAccess, WebSessions, session_cookie_name
from emberkeep.adapters.http.web_login import login_routes
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.identity import Role
from emberkeep.protocol.rest import Problem

TOKEN = "tok-" + "x" * 40
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ERRORS: dict[str, Exception] = {
    "invalid": InvalidInput("wrong", field="f", hint="do"),
    "absent": Absent("gone"),
    "conflict": Conflict("late"),
    "retry": RetryLater("busy"),
    "unknown": UnknownOutcome("perhaps"),
    "fatal": Fatal("no space"),
    "bug": KeyError("secret"),
}


class Site:
    """A secured server, and one request at a time to it."""

    def __init__(self, session: ClientSession, address: str) -> None:
        self._session = session
        self.address = address

    async def request(self, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        async with self._session.request(
            method, f"http://{self.address}{path}", headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, dict(answer.headers), await answer.read()

    async def log_in(self) -> str:
        """Return the cookie of a new session."""
        async with self._session.post(
            f"http://{self.address}/login",
            data={"token": TOKEN},
            headers={"Origin": f"http://{self.address}"},
            allow_redirects=False,
        ) as answer:
            return answer.headers["Set-Cookie"].partition(";")[0]


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(text="in")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    sessions = WebSessions()
    policy = AccessPolicy(
        token=TOKEN,
        hosts=frozenset({"spark.example"}),
        public=frozenset({"/static/{name}"}),
        web=WebAccess(sessions, frozenset({("GET", "/"), ("POST", "/")})),
        roles={("GET", "/"): Role.VIEWER, ("POST", "/"): Role.VIEWER},
    )
    app = web.Application()
    secure(app, policy)

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write_eof(b"in")
        return response

    async def fail(request: web.Request) -> web.Response:
        raise ERRORS[request.match_info["kind"]]

    app.add_routes(
        [
            *login_routes(TOKEN, sessions),
            web.get("/", _ok),
            web.post("/", _ok),
            web.get("/stream", stream),
            web.get("/static/{name}", _ok),
            web.post("/static/{name}", _ok),
            web.get("/fail/{kind}", fail),
        ]
    )
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    async with ClientSession(cookie_jar=DummyCookieJar()) as session:
        yield Site(session, server.address)
    await server.close()


@pytest.mark.anyio
class TestToken:
    async def test_bearer_opens(self, site: Site) -> None:
        assert (await site.request("GET", "/", **BEARER))[0] == 200
        assert (await site.request("GET", "/", Authorization=f"bearer {TOKEN}"))[0] == 200

    @pytest.mark.parametrize(
        "authorization", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \udcff", TOKEN]
    )
    async def test_anything_else_does_not(self, site: Site, authorization: str) -> None:
        status, headers, body = await site.request("GET", "/", Authorization=authorization)
        assert status == 401
        assert headers["WWW-Authenticate"] == "Bearer"
        assert headers["Content-Type"].startswith("application/problem+json")
        assert TOKEN.encode() not in body

    async def test_no_token_no_entry_not_even_to_learn_what_exists(self, site: Site) -> None:
        assert (await site.request("GET", "/"))[0] == 401
        assert (await site.request("GET", "/no-such-thing"))[0] == 401

    async def test_public_routes_need_none_but_only_those(self, site: Site) -> None:
        assert (await site.request("GET", "/static/app.js"))[0] == 200
        assert (await site.request("GET", "/static/../"))[0] == 401

    async def test_the_token_in_a_query_opens_nothing(self, site: Site) -> None:
        assert (await site.request("GET", f"/?token={TOKEN}"))[0] == 401


@pytest.mark.anyio
@pytest.mark.req("SEC-7")
class TestSession:
    """The sessions themselves are in ``tests.unit.security``."""

    async def test_a_change_by_cookie_must_come_from_our_own_page(self, site: Site) -> None:
        own = f"http://{site.address}"
        _, headers, _ = await site.request(
            "POST", f"/login?token={TOKEN}", Origin=own, **{"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert "Set-Cookie" not in headers
        cookie = await site.log_in()
        assert (await site.request("GET", "/", Cookie=cookie))[0] == 200
        assert (await site.request("POST", "/", Cookie=cookie))[0] == 403
        assert (await site.request("POST", "/", Cookie=cookie, Origin=own))[0] == 200

    async def test_a_port_without_pages_takes_no_cookie_and_shows_no_login_page(self, site: Site) -> None:
        cookie = await site.log_in()
        app = web.Application()
        secure(app, AccessPolicy(token=TOKEN))
        app.add_routes([web.get("/", _ok)])
        server = await serve_http(app, bind_port("127.0.0.1", 0))
        try:
            async with ClientSession(cookie_jar=DummyCookieJar()) as session:
                other = Site(session, server.address)
                port = server.address.rpartition(":")[2]
                value = cookie.partition("=")[2]
                for path in ("/", "/login"):
                    status, headers, _ = await other.request(
                        "GET", path, Cookie=f"emberkeep-{port}={value}", Accept="text/html"
                    )
                    assert (status, headers["Content-Type"].split(";")[0]) == (401, "application/problem+json")
        finally:
            await server.close()

    @pytest.mark.parametrize(
        ("scheme", "host", "name"),
        [
            ("http", "127.0.0.1:8081", "emberkeep-8081"),
            ("http", "[::1]:80", "emberkeep-80"),
            ("http", "spark.example", "emberkeep-80"),
            ("https", "spark.example", "__Host-emberkeep-443"),
            ("https", "spark.example:8443", "__Host-emberkeep-8443"),
        ],
    )
    def test_the_cookie_is_named_by_what_the_browser_connects_to(self, scheme: str, host: str, name: str) -> None:
        request = make_mocked_request("GET", "/", headers={"Host": host}).clone(scheme=scheme)
        assert session_cookie_name(request) == name


@pytest.mark.anyio
class TestOrigin:
    @pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1"])
    async def test_changes_from_other_pages_are_refused_with_any_credential(self, site: Site, origin: str) -> None:
        assert (await site.request("POST", "/", Origin=origin, **BEARER))[0] == 403
        assert (await site.request("POST", "/static/x", Origin=origin))[0] == 403

    async def test_programs_send_none_and_show_a_bearer(self, site: Site) -> None:
        assert (await site.request("POST", "/", **BEARER))[0] == 200
        assert (await site.request("POST", "/"))[0] == 403


@pytest.mark.anyio
class TestHost:
    @pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.9", "[::1]:80", "spark.example", "SPARK.example:1"])
    async def test_own_names(self, site: Site, host: str) -> None:
        assert (await site.request("GET", "/", Host=host, **BEARER))[0] == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "[", "", "spark.example@evil.example"]
    )
    async def test_other_names_are_refused_even_with_the_token(self, site: Site, host: str) -> None:
        status, _, body = await site.request("GET", "/", Host=host, **BEARER)
        assert status == 403
        assert b"security.allowed-hosts" in body

    async def test_a_browser_without_a_session_is_shown_how_to_log_in(self, site: Site) -> None:
        for path, shown in (("/", 401), ("/login", 200), ("/login?token=wrong", 200), ("/login?code=wrong", 401)):
            status, headers, body = await site.request("GET", path, Accept="text/html,application/xhtml+xml")
            assert status == shown
            assert headers["Content-Type"].startswith("text/html")
            assert b'name="token"' in body
            assert TOKEN.encode() not in body
            assert "Set-Cookie" not in headers

    async def test_login_under_another_name_gives_no_cookie(self, site: Site) -> None:
        status, headers, _ = await site.request("POST", "/login", Host="evil.example", Origin="http://evil.example")
        assert status == 403
        assert "Set-Cookie" not in headers


@pytest.mark.anyio
class TestAnswers:
    @pytest.mark.parametrize("path", ["/", "/stream", "/missing", "/fail/bug", "/login"])
    async def test_every_answer_has_the_security_headers(self, site: Site, path: str) -> None:
        _, headers, _ = await site.request("GET", path, **BEARER)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Server"] == "Emberkeep"

    @pytest.mark.parametrize(
        ("kind", "status"),
        [("invalid", 400), ("absent", 404), ("conflict", 409), ("retry", 503), ("unknown", 504), ("fatal", 500)],
    )
    async def test_our_errors_are_problem_documents(self, site: Site, kind: str, status: int) -> None:
        got, headers, body = await site.request("GET", f"/fail/{kind}", **BEARER)
        problem = msgspec.json.decode(body, type=Problem)
        error = ERRORS[kind]
        assert isinstance(error, EmberkeepError)
        assert (got, problem.status) == (status, status)
        assert headers["Content-Type"].startswith("application/problem+json")
        assert (problem.detail, problem.hint, problem.errors) == (error.message, error.hint, [str(error)])
        assert problem.field == ("f" if kind == "invalid" else None)
        assert ("Retry-After" in headers) == (kind == "retry")

    async def test_a_bug_tells_nothing(self, site: Site) -> None:
        status, _, body = await site.request("GET", "/fail/bug", **BEARER)
        assert status == 500
        assert b"secret" not in body
        assert b"Traceback" not in body

    async def test_unknown_paths_and_methods_are_problems_too(self, site: Site) -> None:
        status, _, body = await site.request("GET", "/missing", **BEARER)
        assert (status, msgspec.json.decode(body, type=Problem).detail) == (404, "nothing exists at /missing")
        status, headers, _ = await site.request("DELETE", "/", **BEARER)
        assert status == 405
        assert set(headers["Allow"].split(",")) == {"GET", "HEAD", "POST"}


class TestBindAddress:
    @pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.4", "localhost", "::1", "[::1]"])
    def test_loopback_is_always_fine(self, address: str) -> None:
        check_bind_address(address, token_configured=False)

    @pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "10.1.2.3", "myhost", "localhost.evil"])
    def test_others_only_with_a_configured_token(self, address: str) -> None:
        with pytest.raises(InvalidInput, match=r"security\.token-file") as caught:
            check_bind_address(address, token_configured=False)
        assert caught.value.field == "rest.bind-address"
        check_bind_address(address, token_configured=True)
