"""Malformed query parameters of every route are refused with words, never with 500."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest
from yarl import URL

from emberkeep.rest.serving.routing import Route
from emberkeep.rest.table import ROUTES
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import TOKEN, Answer, Site

KNOWN: Final = {"jobid": job_id(1), "taskmanagerid": "tm-127.0.0.2-2", "key": f"p-{'0' * 64}"}
MALFORMED: Final = (
    "",
    " ",
    "-1",
    "0",
    "1.5",
    "1e400",
    "nan",
    "9" * 15,
    "9" * 19,
    "9" * 5000,
    "-" + "9" * 30,
    "\u0661\u0662",  # digits, for some readers
    "1_000",
    "2026-13-45",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "g" * 64,
    "A" * 64,
    "a" * 65,
    "1-" + "a" * 64,
    "999999999999999-" + "f" * 64,
    "1-" + "a" * 64 + "\n",
    "99999999999999999999-99999999999999999999",
    "1-1\n",
    "a:1",
    "driver:-1",
    "driver:" + "9" * 5000,
    "1:" + "9" * 30 + ",,",
    ",",
    ":",
    "../../etc/passwd",
    "//",
    "/\0",
    "s3://",
    "file:///\0",
    "\0",
    "\x7f",
    "\U0010ffff",
    "%%",
    "*",
    "\\",
    "a" * 300,
    "team a",
    "\u00e9" * 100,
)
NOT_UTF8: Final = ("%ff", "%c3%28", "%ed%a0%80", "1%ff")


def target(route: Route, name: str, encoded: str) -> str:
    path = route.full_path
    for each in route.path_parameters:
        path = path.replace(f"{{{each}}}", KNOWN.get(each, "0" * 32))
    return f"{path}?{quote(name)}={encoded}"


async def asked(site: Site, route: Route, path: str) -> Answer:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data: Any = b"{}" if route.method in ("POST", "PUT", "PATCH") else None
    async with asyncio.timeout(60):
        response = await site.session.request(
            route.method, URL(f"{site.base}{path}", encoded=True), allow_redirects=False, data=data, headers=headers
        )
        return Answer(response.status, response.headers, await response.read())


WITH_QUERY: Final = [route for route in ROUTES if route.query is not None]


@pytest.mark.parametrize("route", WITH_QUERY, ids=lambda route: f"{route.method} {route.path}")
async def test_no_value_of_a_query_parameter_breaks_the_server(
    site: Site, gateway: FakeGateway, route: Route, tmp_path: Path
) -> None:
    assert route.query is not None
    gateway.add(job_view(job_id(1), "flights"))
    gateway.add_task_managers(task_manager_view(2))
    site.api.closing.set()  # a stream ends at once, and nobody waits
    broken = []
    for field in msgspec.structs.fields(route.query):
        for encoded in [*(quote(value, safe="") for value in MALFORMED), *NOT_UTF8]:
            path = target(route, field.encode_name, encoded)
            answer = await asked(site, route, path)
            if answer.status >= 500 and answer.status not in route.problems:
                broken.append((path[:300], answer.status, answer.body[:300]))
            elif answer.status >= 400:
                assert answer.problem().status == answer.status
    assert broken == []


@pytest.mark.parametrize("encoded", NOT_UTF8)
async def test_a_value_that_is_not_utf_8_is_refused(site: Site, gateway: FakeGateway, encoded: str) -> None:
    gateway.add(job_view(job_id(1), "flights"))
    for path in ("/v1/jobs/overview?owner=", "/v1/events?text="):
        response = await site.session.get(
            URL(f"{site.base}{path}{encoded}", encoded=True), headers={"Authorization": f"Bearer {TOKEN}"}
        )
        answer = Answer(response.status, response.headers, await response.read())
        assert answer.status == 400
        assert answer.problem().detail == f"query parameter {path[:-1].partition('?')[2]} is not UTF-8"
