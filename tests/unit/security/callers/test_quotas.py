"""One caller's load: it is refused with the time to wait, and takes nothing from others."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import ClientSession

from emberkeep.adapters.http.login_page import LOGIN_PATH
from emberkeep.base.errors import OverQuota
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.http_calls import HttpCalls, Request
from emberkeep.client.rest_client import RestClient
from emberkeep.quotas.quotas import BURST_SECONDS, FAILED_LOGINS, CallerLimits, Quotas
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.jobs.test_submission import body
from tests.unit.rest.server import TOKEN, Site, running_site
from tests.unit.security.callers.test_roles import TokenPerRole

pytestmark = pytest.mark.req("SEC-16")

RATE = 2
FIRST = int(RATE * BURST_SECONDS)
LOOPING = {"Authorization": "Bearer token-of-viewer"}
OTHER = {"Authorization": "Bearer token-of-operator"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "etl"))
    quotas = Quotas(CallerLimits(requests_per_second=RATE, upload_bytes_per_second=1000))
    async with running_site(tmp_path, gateway, tokens=TokenPerRole(), quotas=quotas) as running:
        yield running


async def test_a_client_in_a_loop_does_not_starve_another(site: Site) -> None:
    async def loop() -> list[int]:
        return [(await site.get("/v1/jobs", headers=LOOPING)).status for _ in range(10 * FIRST)]

    async def work() -> list[int]:
        return [(await site.get("/v1/jobs", headers=OTHER)).status for _ in range(FIRST)]

    *looping, working = await asyncio.gather(loop(), loop(), loop(), work())
    statuses = list(itertools.chain(*looping))
    assert working == [200] * FIRST
    assert statuses.count(429) > len(statuses) / 2
    assert set(statuses) == {200, 429}
    assert (await site.get("/v1/jobs")).status == 200


async def test_a_refusal_names_the_quota_its_key_and_when_to_try_again(site: Site) -> None:
    answers = [await site.get("/v1/jobs", headers=LOOPING) for _ in range(2 * FIRST)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.headers["Retry-After"] == "1"
    assert refused.problem().detail == f"'the viewer' has sent more than {RATE} requests a second"
    assert "security.quota.requests-per-second" in (refused.problem().hint or "")


async def test_uploads_wait_after_too_many_bytes(site: Site) -> None:
    path = f"/v1/jobs/{job_id(1)}"
    large = await site.request("PATCH", path, data=b"x" * 50_000, headers=OTHER)
    refused = await site.request("PATCH", path, data=b"x", headers=OTHER)
    reading = await site.get("/v1/jobs", headers=OTHER)
    assert [large.status, refused.status, reading.status] == [202, 429, 200]
    assert int(refused.headers["Retry-After"]) > 10
    assert "security.quota.upload-bytes-per-second" in (refused.problem().hint or "")


async def test_wrong_tokens_of_an_address_are_refused_and_the_right_one_passes(site: Site) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    statuses = [(await site.get("/v1/jobs", headers=wrong)).status for _ in range(FAILED_LOGINS + 5)]
    assert statuses == [401] * FAILED_LOGINS + [429] * 5
    assert (await site.get("/v1/jobs")).status == 200
    async with ClientSession() as stranger, stranger.get(f"{site.base}/v1/jobs") as answer:
        assert answer.status == 401  # no guess


async def test_guesses_at_the_login_form_are_refused_and_the_right_token_passes(site: Site) -> None:
    headers = {
        "Origin": site.base,
        "Authorization": "",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "text/html",
    }

    async def log_in(token: str) -> int:
        answer = await site.request("POST", LOGIN_PATH, data=urlencode({"token": token}), headers=headers)
        return answer.status

    assert [await log_in("wrong") for _ in range(FAILED_LOGINS)] == [401] * FAILED_LOGINS
    assert await log_in("wrong") == 429
    assert await log_in(TOKEN) == 303


async def test_a_job_over_the_quota_of_its_namespace_is_refused(site: Site) -> None:
    site.gateway.refusal = OverQuota("namespace 'a' has 2 jobs", hint="wait", seconds=9.2)
    new = body(artefacts=[], entry_point={"kind": "module", "name": "app"}, jobid="")
    refused = await site.request("POST", "/v1/jobs", json=new)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "10")
    assert refused.problem().detail == "namespace 'a' has 2 jobs"


async def test_a_client_waits_as_it_is_told(site: Site) -> None:
    endpoint = Endpoint(url=site.base, token="token-of-viewer", source="a test")
    async with RestClient(endpoint, patience=0.0) as client:
        for _ in range(FIRST + 2):  # the last ones wait
            assert [job.name for job in await client.jobs()] == ["etl"]


async def test_a_client_whose_wait_would_be_long_says_why(tmp_path: Path) -> None:
    quotas = Quotas(CallerLimits(upload_bytes_per_second=1))
    async with running_site(tmp_path, FakeGateway(), tokens=TokenPerRole(), quotas=quotas) as site:
        upload = await site.request(
            "POST", "/v1/jobs", data=b"x" * 500, headers={"Authorization": "Bearer token-of-submitter"}
        )
        assert upload.status != 429
        calls = HttpCalls(Endpoint(url=site.base, token="token-of-submitter"), patience=0.0)
        calls.open()
        with pytest.raises(OverQuota, match="more than 1 bytes a second") as caught:
            await calls.call(Request("POST", "/jobs", body=lambda: b"x"))
        await calls.close()
    assert "upload-bytes-per-second" in (caught.value.hint or "")


async def test_a_client_with_a_wrong_token_does_not_wait(site: Site) -> None:
    async with RestClient(Endpoint(url=site.base, token="wrong", source="a test")) as client:
        for _ in range(FAILED_LOGINS + 2):
            with pytest.raises(NotAuthorised):
                await client.jobs()


@pytest.mark.req("SEC-7")
async def test_an_event_stream_ends_with_its_session(site: Site) -> None:
    form = {"Origin": site.base, "Authorization": "", "Content-Type": "application/x-www-form-urlencoded"}
    login = await site.request("POST", LOGIN_PATH, data=urlencode({"token": "token-of-viewer"}), headers=form)
    browser = {"Origin": site.base, "Authorization": "", "Cookie": login.headers["Set-Cookie"].partition(";")[0]}
    async with asyncio.timeout(60):
        async with site.open("GET", f"/v1/jobs/{job_id(1)}/events", headers=browser) as stream:
            assert (await stream.content.readline()) == b"event: job\n"
            assert (await site.request("POST", "/logout", headers=browser)).status == 303
            await stream.content.read()  # ends


@pytest.mark.req("SEC-11")
async def test_an_event_stream_ends_when_its_token_is_revoked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60):
        async with site.open("GET", f"/v1/jobs/{job_id(1)}/events", headers=OTHER) as stream:
            assert (await stream.content.readline()) == b"event: job\n"
            monkeypatch.setattr(TokenPerRole, "identify", lambda *_: "the token is revoked")
            await stream.content.read()  # ends
