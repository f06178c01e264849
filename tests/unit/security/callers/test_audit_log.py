"""The audit log of a JobManager's port: every change and every refusal, and who may read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import ClientSession, CookieJar, web
from structlog.testing import capture_logs

from emberkeep.adapters.http.auditing import logging_refusals
from emberkeep.adapters.http.login_page import LOGIN_PATH
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.audit.refusals import FIRST, INTERVAL
from emberkeep.audit.selection import Selection
from emberkeep.jobs.model import JobStatus
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import TOKEN, ServesNoRpc, Site, running_site
from tests.unit.security.callers.test_roles import TokenPerRole

pytestmark = pytest.mark.req("SEC-15")

JOB = job_id(1)
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(JOB, "etl"), job_view(job_id(2), "old", JobStatus.FINISHED))
    async with running_site(tmp_path, gateway) as running:
        yield running


async def recorded(site: Site, most: int) -> list[dict[str, object]]:
    """The entries, the oldest first, once there are ``most`` of them."""
    async with asyncio.timeout(60):
        while True:
            found = (await site.get("/v1/audit")).json()["entries"]
            if len(found) >= most:
                return list(reversed(found))


async def test_a_change_is_recorded_with_who_what_where_and_outcome(site: Site) -> None:
    assert (await site.request("PATCH", f"/v1/jobs/{JOB}?mode=cancel")).status == 202
    assert (await site.request("PATCH", f"/v1/jobs/{job_id(9)}")).status == 404
    done, failed = await recorded(site, 2)
    assert done["action"] == "PATCH /v1/jobs/{jobid}"
    assert (done["identity"], done["role"], done["login"]) == ("cluster", "admin", "token")
    assert (done["address"], done["target"], done["parameters"]) == ("127.0.0.1", {"jobid": JOB}, {"mode": "cancel"})
    assert (done["status"], done["outcome"]) == (202, "done")
    assert (failed["status"], failed["outcome"]) == (404, "failed")
    assert str(job_id(9)) in str(failed["reason"])


async def test_reading_is_not_recorded(site: Site) -> None:
    for path in ("/v1/jobs", "/", "/metrics", "/v1/audit"):
        assert (await site.get(path)).status == 200
    await site.request("DELETE", "/v1/cluster")
    assert [entry["action"] for entry in await recorded(site, 1)] == ["DELETE /v1/cluster"]


async def test_refusals_are_recorded_without_the_credential(site: Site) -> None:
    async with ClientSession() as stranger:
        async with stranger.get(
            f"{site.base}/v1/jobs?token=geheimnis1", headers={"Authorization": "Bearer geheimnis2"}
        ):
            pass
        async with stranger.get(f"{site.base}/v1/jobs", headers={"Host": "evil.example"}):
            pass
    wrong, rebound = await recorded(site, 2)
    assert (wrong["identity"], wrong["login"], wrong["status"], wrong["outcome"]) == ("", "none", 401, "refused")
    assert wrong["action"] == "GET /v1/jobs"
    assert rebound["status"] == 403
    assert "geheimnis" not in json.dumps([wrong, rebound])


async def test_a_flood_of_refusals_hides_no_change(site: Site) -> None:
    async with ClientSession() as stranger:
        for number in range(50):
            async with stranger.get(f"{site.base}/{number}"):
                pass
    await site.request("DELETE", "/v1/cluster")
    entries = await recorded(site, FIRST + 1)
    assert [entry["status"] for entry in entries[:FIRST]] == [401] * FIRST
    assert [entry["action"] for entry in entries[FIRST:]] == ["DELETE /v1/cluster"]


async def test_a_login_and_what_a_session_does_are_recorded(site: Site) -> None:
    headers = {"Origin": site.base, "Content-Type": FORM}
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
        for token in ("wrong-token", TOKEN):
            data = urlencode({"token": token})
            async with browser.post(site.base + LOGIN_PATH, data=data, headers=headers, allow_redirects=False):
                pass
        async with browser.patch(f"{site.base}/v1/jobs/{JOB}", headers={"Origin": site.base}):
            pass
    wrong, login, cancel = await recorded(site, 3)
    assert (wrong["action"], wrong["status"], wrong["identity"]) == ("POST /login", 401, "")
    assert (login["action"], login["outcome"], login["identity"]) == ("POST /login", "done", "cluster")
    assert (cancel["login"], cancel["status"]) == ("session", 202)
    assert TOKEN not in json.dumps([wrong, login, cancel])


async def test_control_characters_in_a_path_do_not_reach_the_file(site: Site, tmp_path: Path) -> None:
    async with ClientSession() as stranger, stranger.get(f"{site.base}/%1b%5d0;evil%07%0a%c2%9b"):
        pass
    await recorded(site, 1)
    text = (tmp_path / "audit" / "audit.log").read_text()
    assert [char for char in text if not char.isprintable()] == ["\n"]


async def test_a_request_that_ends_without_a_reply_is_recorded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(site.gateway, "cancel", broken)
    with pytest.raises(Exception, match=r"disconnected|reset|closed"):
        await site.request("PATCH", f"/v1/jobs/{JOB}")
    (entry,) = await recorded(site, 1)
    assert (entry["outcome"], entry["status"]) == ("unknown", 0)


async def test_the_page_shows_entries_inertly_and_filters_them(site: Site) -> None:
    await site.request("PATCH", f"/v1/jobs/{JOB}?mode=%3Cscript%3E")
    await recorded(site, 1)
    page = await site.get("/audit")
    assert page.status == 200
    assert b"PATCH /v1/jobs/{jobid}" in page.body
    assert b"<script>" not in page.body
    assert b"&lt;script&gt;" in page.body
    assert b"No such entries" in (await site.get("/audit?identity=nobody")).body
    assert (await site.get("/audit?outcome=evil")).status == 400
    assert b"No such entries" not in (await site.get("/audit?since=2020-01-01T00:00&until=9000-01-01T00:00")).body
    for times in ("since=9000-01-01T00:00", "until=2020-01-01T00:00"):
        assert b"No such entries" in (await site.get(f"/audit?{times}")).body
    refused = await site.get("/audit?until=yesterday")
    assert (refused.status, b"is not a time" in refused.body) == (400, True)


async def test_what_an_identity_may_not_do_is_recorded_under_its_name(tmp_path: Path) -> None:
    async with running_site(tmp_path, FakeGateway(), tokens=TokenPerRole()) as site:
        viewer = {"Authorization": "Bearer token-of-viewer"}
        assert (await site.request("DELETE", "/v1/cluster", headers=viewer)).status == 403
        assert (await site.get("/v1/audit", headers=viewer)).status == 403
        assert (await site.get("/audit", headers=viewer)).status == 403
        entries = await recorded(site, 3)
    assert {(entry["identity"], entry["role"], entry["outcome"]) for entry in entries} == {
        ("the viewer", "viewer", "refused")
    }
    assert [entry["action"] for entry in entries] == ["DELETE /v1/cluster", "GET /v1/audit", "GET /audit"]
    assert "needs the role admin" in str(entries[0]["reason"])


async def test_a_process_without_an_audit_log_logs_refusals_and_their_number() -> None:
    seconds = [0.0]
    app = web.Application(middlewares=[logging_refusals(lambda: seconds[0])])
    secure(app, AccessPolicy("the-token"))
    app.add_routes(rpc_routes(ServesNoRpc()))
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    try:
        async with ClientSession() as stranger:
            with capture_logs() as logged:
                for number in range(20):
                    seconds[0] = 0.0 if number < 19 else INTERVAL
                    async with stranger.post(
                        f"http://{server.address}/rpc/v1/StartDriver", headers={"Authorization": "Bearer wrong"}
                    ) as answer:
                        assert answer.status == 401
    finally:
        await server.close()
    refused = [entry for entry in logged if entry["event"] == "refused a request"]
    assert [entry["count"] for entry in refused] == [1] * FIRST + [19 - FIRST, 1]
    assert refused[0]["action"] == "POST /rpc/v1/StartDriver"
    assert "wrong" not in str(refused)


async def test_pages_continue_where_the_page_before_ended(site: Site) -> None:
    for _ in range(5):
        await site.request("PATCH", f"/v1/jobs/{JOB}")
    await recorded(site, 5)
    first = (await site.get("/v1/audit?limit=3")).json()
    second = (await site.get(f"/v1/audit?limit=3&before={first['next']}")).json()
    ids = [entry["id"] for entry in first["entries"] + second["entries"]]
    assert (len(ids), second["next"]) == (5, "")
    assert ids == sorted(set(ids), reverse=True)
    assert len((await site.api.audit.read(Selection(job=JOB))).entries) == 5
