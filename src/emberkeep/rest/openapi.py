"""The OpenAPI 3.1 document, generated from the route table and the types of its bodies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

import emberkeep
from emberkeep.protocol.rest import PROBLEM_MEDIA_TYPE, Problem
from emberkeep.rest.serving.routing import PATH_PARAMETERS, Header, Route

Json = dict[str, Any]

_REFS = "#/components/schemas/{name}"
# Statuses with which any request may be refused; a route adds its own.
COMMON_PROBLEMS = (400, 401, 403, 429, 500)


def document(routes: Sequence[Route]) -> Json:
    """Return the OpenAPI document of all routes."""
    kinds = [kind for route in routes for kind in (route.reply, route.body, route.reference) if kind is not None]
    kinds.append(Problem)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    schema_of = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.full_path, {})[route.method.lower()] = _operation(route, schema_of)
        if route.unversioned:
            paths[route.path] = {"$ref": f"#/paths/{route.full_path.replace('/', '~1')}"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Emberkeep REST API",
            "version": emberkeep.__version__,
            "description": "Shapes are those of Flink's REST API for everything that Flink has; Emberkeep's own fields "
            "are below `emberkeep`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route, schema_of: dict[str, Json]) -> Json:
    operation: Json = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "x-emberkeep-role": route.role.value,
        "parameters": parameters(route),
        "responses": _responses(route, schema_of),
    }
    if route.doc:
        operation["description"] = route.doc
    if route.body is not None:
        kinds = [schema_of[repr(kind)] for kind in (route.body, route.reference) if kind is not None]
        content = {"application/json": {"schema": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.raw_body:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "description": route.raw_body, "content": content}
    return operation


def operation_id(route: Route) -> str:
    """Return a name for code generators: the handler's module, then the row's ``operation`` or the handler's name.

    >>> from emberkeep.base.identity import Role
    >>> operation_id(Route("GET", "/x", operation_id, "", "", role=Role.VIEWER))
    'openapi_operation_id'
    """
    return f"{route.handler.__module__.rpartition('.')[2]}_{route.operation or route.handler.__name__}"


def parameters(route: Route) -> list[Json]:
    """Return the path, query and header parameters of a route, in OpenAPI's form."""
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[name].doc,
            "schema": {"type": "string", "pattern": PATH_PARAMETERS[name].pattern},
        }
        for name in route.path_parameters
    ]
    in_headers = [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.doc,
            "schema": {"type": "string"},
        }
        for header in route.headers
    ]
    return [*in_path, *_query_parameters(route), *in_headers]


def _query_parameters(route: Route) -> Iterable[Json]:
    if route.query is None:
        return
    _, components = msgspec.json.schema_components([route.query], ref_template=_REFS)
    schema = components[route.query.__name__]
    for name, described in schema["properties"].items():
        rest = {key: value for key, value in described.items() if key != "description"}
        yield {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": described.get("description", ""),
            "schema": rest,
        }


def _responses(route: Route, schema_of: dict[str, Json]) -> Json:
    success: Json = {"description": HTTPStatus(route.status).phrase}
    if route.reply is not None:
        success["content"] = {route.media: {"schema": schema_of[repr(route.reply)]}}
    elif route.media and route.method != "HEAD" and route.status != HTTPStatus.NO_CONTENT:
        success["content"] = {route.media: {"schema": {"type": "string"}}}
    if route.reply_headers:
        success["headers"] = {header.name: _header(header) for header in route.reply_headers}
    problem = {PROBLEM_MEDIA_TYPE: {"schema": schema_of[repr(Problem)]}}
    refusals = {
        str(status): {"description": HTTPStatus(status).phrase, "content": problem}
        for status in sorted({*COMMON_PROBLEMS, *route.problems})
    }
    further = {str(status): {"description": HTTPStatus(status).phrase} for status in route.also}
    return {str(route.status): success, **further, **refusals}


def _header(header: Header) -> Json:
    return {"description": header.doc, "schema": {"type": "string"}}
