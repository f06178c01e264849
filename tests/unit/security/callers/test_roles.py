"""Each route with each role: what the route table says decides, and nobody else gets through."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.http.login_page import LOGIN_PATH, LOGOUT_PATH
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.base.identity import Identity, Role
from emberkeep.rest.application import build_application
from emberkeep.rest.table import ROUTES, least_roles
from emberkeep.web.pages import web_routes
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import NoTokens, Site, running_site

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-12")]

OPEN = {LOGIN_PATH, LOGOUT_PATH, "/static/{name}"}
VALUES = {
    "jobid": job_id(1),
    "taskmanagerid": "tm-127.0.0.2-1",
    "nodeid": "127.0.0.2",
    "tokenid": "nobody",
    "triggerid": "0" * 32,
    "key": f"p-{'0' * 64}",
    "holder": "h",
    "name": "x",
    "logid": "x",
}


class TokenPerRole(NoTokens):
    """Knows the tokens "token-of-viewer" and so on, and one that has expired."""

    def identify(self, credential: str) -> Identity | str:
        if credential == "token-of-yesterday":
            return "the token 'ci' expired at 2026-11-22 10:00:00 UTC"
        role = credential.removeprefix("token-of-")
        return Identity(f"the {role}", Role(role)) if role in set(Role) else ""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    job = job_view(job_id(1), "flights")
    assert job.graph is not None
    gateway.add(msgspec.structs.replace(job, graph=msgspec.structs.replace(job.graph, owner="the submitter")))
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway, tokens=TokenPerRole()) as site:
        site.api.closing.set()
        site.api.own_logs.close()
        yield site


def served(site: Site) -> dict[tuple[str, str], Role | None]:
    """All routes of a JobManager's application but the login's, each with the least role that the table has for it."""
    pages = web_routes(site.web_sources)
    app = build_application(site.api, secure=lambda app: secure(app, AccessPolicy("")), roles={}, routes=pages)
    roles = least_roles(pages)
    found = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    return {each: roles.get(each) for each in found if each[1] not in OPEN}


async def test_each_route_has_a_role(site: Site) -> None:
    assert not [route for route, role in served(site).items() if role is None]
    assert len(served(site)) > len(ROUTES)


@pytest.mark.parametrize("role", Role)
async def test_each_route_asks_for_its_role(site: Site, role: Role) -> None:
    order = list(Role)
    wrong = []
    for (method, pattern), least in served(site).items():
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: VALUES[found[1]], pattern)
        headers = {"Authorization": f"Bearer token-of-{role}"}
        answer = await site.request(method, path, headers=headers)
        assert least is not None
        allowed = order.index(role) >= order.index(least)
        if (answer.status == 403) is allowed or answer.status == 401:
            wrong.append((method, path, answer.status))
    assert wrong == []


async def test_a_named_token_calls_no_rpc(site: Site) -> None:
    answer = await site.request("POST", "/rpc/v1/StartDriver", headers={"Authorization": "Bearer token-of-admin"})

    assert answer.status == 403
    assert "is for the processes of the cluster" in answer.problem().detail


async def test_a_refusal_names_the_role_and_the_command_that_gives_it(site: Site) -> None:
    answer = await site.request("PATCH", f"/v1/jobs/{job_id(1)}", headers={"Authorization": "Bearer token-of-viewer"})

    problem = answer.problem()
    assert (answer.status, site.gateway.cancelled) == (403, [])
    assert "needs the role submitter, and 'the viewer' has the role viewer" in problem.detail
    assert problem.hint == "an administrator can give it: `emberkeep token create 'the viewer' --role submitter`"


@pytest.mark.parametrize(
    ("path", "status", "detail", "hint"),
    [
        (
            "/audit",
            403,
            "GET /audit needs the role admin, and &#x27;the viewer&#x27; has the role viewer",
            "an administrator can give it: `emberkeep token create &#x27;the viewer&#x27; --role admin`",
        ),
        ("/no<b>thing", 404, "nothing exists at /no&lt;b&gt;thing", None),
    ],
)
async def test_a_person_who_opens_what_cannot_be_shown_gets_a_page(
    site: Site, path: str, status: int, detail: str, hint: str | None
) -> None:
    browser = {"Authorization": "Bearer token-of-viewer", "Accept": "text/html,application/xhtml+xml"}
    shown = await site.get(path, headers=browser)
    told = await site.get(path, headers={"Authorization": "Bearer token-of-viewer"})

    assert (shown.status, told.status) == (status, status)
    assert shown.headers["Content-Type"] == "text/html; charset=utf-8"
    page = shown.body.decode()
    assert f"<p>{detail}</p>" in page
    assert re.findall('<p class="id">(.*)</p>', page) == ([] if hint is None else [hint])
    assert told.problem().status == status
    if status == 403:
        entries = (await site.get("/v1/audit", headers={"Authorization": "Bearer token-of-admin"})).json()["entries"]
        assert {entry["reason"] for entry in entries} == {told.problem().detail}


async def test_a_token_that_has_expired_says_when(site: Site) -> None:
    answer = await site.request("GET", "/v1/jobs", headers={"Authorization": "Bearer token-of-yesterday"})

    assert answer.status == 401
    assert answer.problem().detail == "the token 'ci' expired at 2026-11-22 10:00:00 UTC"
    assert "emberkeep token create" in (answer.problem().hint or "")


@pytest.mark.req("SEC-7")
async def test_a_session_has_the_role_of_its_token(site: Site) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": site.base, "Authorization": ""}
    login = await site.request("POST", LOGIN_PATH, data="token=token-of-viewer", headers=form)
    assert login.status == 303
    browser = {"Origin": site.base, "Authorization": "", "Cookie": login.headers["Set-Cookie"].partition(";")[0]}

    assert (await site.get("/jobs", headers=browser)).status == 200
    refused = await site.request("PATCH", f"/v1/jobs/{job_id(1)}", headers=browser)

    assert (refused.status, site.gateway.cancelled) == (403, [])
    assert "needs the role submitter" in refused.problem().detail
