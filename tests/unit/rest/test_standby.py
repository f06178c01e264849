"""What a JobManager that does not lead answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port
from emberkeep.adapters.http.switch import SwitchedPort
from emberkeep.rest.standby import STANDBY_PUBLIC, build_standby

pytestmark = [pytest.mark.anyio, pytest.mark.req("HA-1")]

PUBLIC = STANDBY_PUBLIC | {"/v1/liveness", "/v1/readiness", "/v1/leader"}


class Standby:
    def __init__(self) -> None:
        self.leader: str | None = "127.0.0.9:8081"
        self.problem = ""
        self.port = bind_port("127.0.0.1", 0)
        self.switch = SwitchedPort(self.port)
        self.client = aiohttp.ClientSession(f"http://{self.port.address}", headers={"Authorization": "Bearer secret"})

    def app(self) -> aiohttp.web.Application:
        policy = AccessPolicy("secret", hosts=frozenset(), public=PUBLIC)
        return build_standby(lambda: self.leader, secure=lambda app: secure(app, policy), problem=lambda: self.problem)


@pytest.fixture
async def standby() -> AsyncIterator[Standby]:
    standby = Standby()
    await standby.switch.open(standby.app())
    yield standby
    await standby.client.close()
    await standby.switch.close()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
async def test_requests_are_sent_on_to_the_leader_as_they_are(standby: Standby, method: str) -> None:
    body = b"x" * 900_000 if method in ("POST", "PUT") else None
    async with standby.client.request(
        method, "/v1/jobs/ab%2Fc?states=RUNNING&x=%20", data=body, allow_redirects=False
    ) as answer:
        assert answer.status == 307
        assert answer.headers["Location"] == "http://127.0.0.9:8081/v1/jobs/ab%2Fc?states=RUNNING&x=%20"


async def test_without_a_leader_clients_are_told_to_try_again(standby: Standby) -> None:
    standby.leader = None
    async with standby.client.get("/v1/jobs", allow_redirects=False) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
    async with standby.client.get("/v1/readiness") as answer:
        assert answer.status == 503


@pytest.mark.req("SAFE-2")
async def test_one_that_could_not_take_over_well_is_not_ready_and_says_why(standby: Standby) -> None:
    standby.problem = "the shared storage cannot be read here now"
    async with standby.client.get("/v1/readiness", headers={"Authorization": ""}) as answer:
        assert answer.status == 503
        assert standby.problem in await answer.text()
    async with standby.client.get("/v1/liveness") as answer:
        assert answer.status == 200


async def test_probes_need_no_token_and_tell_the_truth(standby: Standby) -> None:
    async with aiohttp.ClientSession(f"http://{standby.port.address}") as client:
        for path, status in (("/v1/liveness", 200), ("/v1/readiness", 200), ("/v1/leader", 503)):
            async with client.get(path) as answer:
                assert (path, answer.status) == (path, status)
        async with client.get("/v1/jobs", allow_redirects=False) as answer:
            assert answer.status == 307  # the leader asks for the token; only it knows named tokens


@pytest.mark.req("SEC-7")
async def test_a_browser_without_a_session_is_sent_to_the_leader(standby: Standby) -> None:
    origin = {"Origin": f"http://{standby.port.address}"}
    async with aiohttp.ClientSession(f"http://{standby.port.address}") as browser:
        for path in ("/", "/jobs?state=RUNNING", "/jobs/ab/logs/x~y", "/taskmanagers", "/nodes", "/events"):
            async with browser.get(path, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (307, f"http://127.0.0.9:8081{path}")
        for method, path in (("GET", "/login?code=x"), ("POST", "/login"), ("POST", "/logout")):
            async with browser.request(
                method,
                path,
                data={"token": "secret"} if method == "POST" else None,
                headers=origin,
                allow_redirects=False,
            ) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "http://127.0.0.9:8081/")
        for method, path in (("GET", "/v1/jobs"), ("POST", "/jobs"), ("POST", "/"), ("GET", "/metrics")):
            async with browser.request(method, path, headers=origin, allow_redirects=False) as answer:
                assert (method, path, answer.status) == (method, path, 307)


async def test_connections_end_when_another_application_takes_the_port(standby: Standby) -> None:
    async with standby.client.get("/v1/liveness") as answer:
        await answer.read()
        connection = answer.connection
    del connection

    async def leads(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="leads")

    leading = aiohttp.web.Application()
    leading.router.add_get("/v1/liveness", leads)
    await standby.switch.switch(leading)
    async with standby.client.get("/v1/liveness") as answer:
        assert await answer.text() == "leads"
    await standby.switch.switch(standby.app())
    async with standby.client.get("/v1/liveness") as answer:
        assert b"standby" in await answer.read()
