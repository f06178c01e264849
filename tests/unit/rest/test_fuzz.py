"""Whatever comes in, a documented status goes out: never 500, never a hang, errors always as problems."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from emberkeep.rest.serving.routing import Route
from emberkeep.rest.table import ROUTES
from tests.campaign import examples
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Answer, running_site

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("name", "entry_point", "arguments", "artefacts", "spark_conf", "options", "resources", "python")
BODIES = st.one_of(
    JSON.map(msgspec.json.encode),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8).map(msgspec.json.encode),
    st.binary(max_size=64),
)
KNOWN = {"jobid": job_id(1), "taskmanagerid": "tm-127.0.0.2-1"}
PATH_VALUES = st.one_of(st.just(None), st.text(min_size=1, max_size=40), st.text("0123456789abcdef.~-_/%", min_size=1))
QUERIES = st.dictionaries(
    st.sampled_from(["offset", "limit", "mode", "grace", "maxExceptions", "x", ""]),
    st.text(max_size=8) | st.integers().map(str) | st.sampled_from(["nan", "inf", "-inf", "1e400", "cancel", "true"]),
    max_size=3,
)
REQUESTS = st.tuples(st.sampled_from(ROUTES), st.lists(PATH_VALUES, min_size=2, max_size=2), QUERIES, BODIES)


def target(route: Route, values: list[str | None], query: dict[str, str]) -> URL:
    """The route's path with values put in, percent-encoded, as an URL that nothing normalises."""
    path = route.full_path
    for name, value in zip(route.path_parameters, values, strict=False):
        path = path.replace(f"{{{name}}}", quote(KNOWN.get(name, "0" * 64) if value is None else value, safe=""))
    encoded = "&".join(f"{quote(key)}={quote(value)}" for key, value in query.items())
    return URL(f"{path}?{encoded}" if encoded else path, encoded=True)


def documented(route: Route, answer: Answer) -> bool:
    """Whether the route may answer so; 404 for paths that are none of ours after decoding."""
    return answer.status in {route.status, 304, 400, 404, 405, 409, 413, 415, *route.problems} - {500}


async def send(requests: list[Any]) -> None:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "flights"))
    gateway.add_task_managers(task_manager_view(2))
    with tempfile.TemporaryDirectory() as directory:
        async with running_site(Path(directory), gateway) as site:
            for route, values, query, body in requests:
                url = target(route, values, query)
                options: dict[str, Any] = {"headers": {"Content-Type": "application/json"}}
                if route.method in ("POST", "PUT", "PATCH"):
                    options["data"] = body
                async with asyncio.timeout(120):
                    if route.media == "text/event-stream":
                        site.api.closing.set()  # a stream of a running job ends when the server does
                    response = await site.session.request(
                        route.method,
                        URL(f"{site.base}{url}", encoded=True),
                        allow_redirects=False,
                        **{**options, "headers": {**options["headers"], "Authorization": "Bearer a-token-for-tests"}},
                    )
                    answer = Answer(response.status, response.headers, await response.read())
                assert documented(route, answer), (route.method, str(url), body, answer)
                if answer.status >= 400 and route.method != "HEAD":
                    assert answer.problem().status == answer.status


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(REQUESTS, min_size=8, max_size=16))
def test_no_request_breaks_the_server(requests: list[Any]) -> None:
    asyncio.run(send(requests))
