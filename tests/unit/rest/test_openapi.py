"""The documents are made from the table that is served, and describe all of it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from emberkeep.rest.openapi import document
from emberkeep.rest.serving.routing import PATH_PARAMETERS, Route
from emberkeep.rest.table import ROUTES
from tests.unit.rest.fake_gateway import job_id, wish_of
from tests.unit.rest.server import Site
from tools.rest_reference import render


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document(ROUTES)


@pytest.fixture(scope="module")
def reference() -> str:
    """The page that is made from the table."""
    return render()


def refs(value: Any) -> set[str]:
    """All references in a document."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(refs(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(refs(item) for item in value))
    return set()


async def test_the_document_lists_what_is_served(site: Site) -> None:
    served = (await site.get("/v1/openapi.json")).json()

    assert served == json.loads(json.dumps(document(ROUTES)))
    assert served["openapi"] == "3.1.0"
    described = [(item, path) for path, item in served["paths"].items() if "$ref" not in item]
    assert {(method.upper(), path) for item, path in described for method in item} == {
        (route.method, route.full_path) for route in ROUTES
    }
    aliases = {path: item["$ref"] for path, item in served["paths"].items() if "$ref" in item}
    assert aliases["/blocklist/nodes/{nodeid}"] == "#/paths/~1v1~1blocklist~1nodes~1{nodeid}"
    assert aliases.keys() == {route.path for route in ROUTES if route.unversioned}


def test_references_lead_somewhere_and_names_are_unique(described: dict[str, Any]) -> None:
    items = [item for item in described["paths"].values() if "$ref" not in item]
    operations = [operation["operationId"] for item in items for operation in item.values()]
    paths = {f"#/paths/{path.replace('/', '~1')}" for path in described["paths"]}

    assert refs(described) - paths <= {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert len(operations) == len(set(operations))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_described_completely(route: Route, described: dict[str, Any], reference: str) -> None:
    operation = described["paths"][route.full_path][route.method.lower()]

    assert operation["summary"]
    assert operation["tags"]
    assert str(route.status) in operation["responses"]
    in_path = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", route.path)) <= PATH_PARAMETERS.keys()
    assert all(item["description"] for item in operation["parameters"])
    assert f"### {route.method} {route.full_path}\n" in reference


async def test_replies_are_of_the_types_that_the_document_names(site: Site) -> None:
    values = {"jobid": job_id(1), "taskmanagerid": "tm-127.0.0.2-1"}
    await site.gateway.upgrade(job_id(1), wish_of(site.gateway.views[job_id(1)]))
    checked = 0
    for route in ROUTES:
        if route.method != "GET" or route.reply is None or not set(route.path_parameters) <= values.keys():
            continue
        if route.query is not None and any(field.required for field in msgspec.structs.fields(route.query)):
            continue
        answer = await site.get(route.full_path.format(**values))
        if answer.status == 503 or route.path.endswith("/merged-logs"):
            continue  # the task manager is not there
        msgspec.json.decode(answer.body, type=route.reply, strict=True)
        checked += 1
    assert checked >= 14
