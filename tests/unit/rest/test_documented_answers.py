"""Requests that schemathesis makes from the OpenAPI document, for every route: each answer is as the document says.

All examples come from fixed seeds, and their number is bounded.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from emberkeep.rest.openapi import document
from emberkeep.rest.table import ROUTES, least_roles
from tests.campaign import examples
from tests.unit.rest.served import AUTHORIZED, IDENTITIES, Served

SCHEMA = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(document(ROUTES))))
OPERATIONS: list[Any] = [cast(Any, found).ok() for found in SCHEMA.get_all_operations()]
CASES = [
    pytest.param(operation, mode, id=f"{operation.label}-{mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or operation.path_parameters or operation.query or operation.body
]
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BOUNDED = settings(
    max_examples=examples(3),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        server = Served(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@functools.cache
def _cases(label: str, mode: GenerationMode) -> Any:
    """The requests of an operation. To read its schemas takes longer than to make a few of them."""
    (operation,) = (each for each in OPERATIONS if each.label == label)
    return operation.as_strategy(generation_mode=mode)


def test_the_document_has_the_whole_surface() -> None:
    assert {operation.label for operation in OPERATIONS} >= {f"{route.method} {route.full_path}" for route in ROUTES}


@pytest.mark.req("SEC-19")
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_answers_are_as_documented(served: Served, operation: Any, mode: GenerationMode) -> None:
    @seed(20261120)
    @BOUNDED
    @given(case=_cases(operation.label, mode))
    def check(case: Any) -> None:
        answer = _call(served, case, AUTHORIZED)
        if not (answer.status_code == 400 and answer.headers["content-type"][0].startswith("text/plain")):
            case.validate_response(answer, checks=CHECKS)  # else it was no HTTP, and aiohttp itself has refused it

    check()


@pytest.mark.req("SEC-19")
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_without_a_token_nothing_is_answered(served: Served, operation: Any, mode: GenerationMode) -> None:
    probe = operation.label.removeprefix("GET ") in {"/v1/liveness", "/v1/readiness", "/v1/leader"}

    @seed(20261120)
    @BOUNDED
    @given(case=_cases(operation.label, mode))
    def check(case: Any) -> None:
        answer = _call(served, case, {})
        assert answer.status_code < 500
        assert probe or answer.status_code in {400, 401, 403, 404, 405}, answer.text

    check()


@pytest.mark.req("SEC-12", "SEC-19")
@pytest.mark.parametrize("operation", [pytest.param(each, id=each.label) for each in OPERATIONS])
def test_answers_to_each_role_are_as_documented(served: Served, operation: Any) -> None:
    least = least_roles([])[operation.method.upper(), operation.path]

    @seed(20261123)
    @settings(BOUNDED, max_examples=examples(1))
    @given(case=_cases(operation.label, GenerationMode.POSITIVE))
    def check(case: Any) -> None:
        for identity in IDENTITIES:
            answer = _call(served, case, {"Authorization": f"Bearer token-of-{identity.name}"})
            case.validate_response(answer, checks=CHECKS)
            if not identity.role.includes(least):
                assert answer.status_code in {400, 403}, (identity, answer.text)

    check()


def _call(served: Served, case: Any, headers: Mapping[str, str]) -> Any:
    return case.call(base_url=f"http://{served.address}", headers=dict(headers), timeout=60, allow_redirects=False)
