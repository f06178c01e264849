"""Generates docs/rest.md from the route table, so that the page cannot differ from the served routes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import groupby

import msgspec

from emberkeep.rest.openapi import Json, document, parameters
from emberkeep.rest.serving.routing import Route
from emberkeep.rest.table import ROUTES

_HEAD = """\
# REST API

<!-- Written by `python -m tools.check_docs --write` from the route table. Do not edit. -->

This page is for those who call a cluster from programs.

The JobManager serves everything below `/v1` on `rest.port`. Requests and responses have the same form as in
Flink's REST API wherever Flink has the same resource, so Flink's tools can list and cancel jobs. Emberkeep's own
fields are below the field `emberkeep`. The
OpenAPI 3.1 document at `/v1/openapi.json` has the same content. Prometheus reads `/metrics`.

- **Access**: every request carries `Authorization: Bearer <token>`. The token is in the file
  `security.token-file`, by default `token` below the state directory. The server's certificate is issued by
  the cluster's own CA, `tls/ca.pem` below the state directory: let clients trust it, and send the token to no
  other server.
- **Flink's command line** (2.3) works with this API: `list`, `stop`, `savepoint`, `cancel`. Give
  `-m host:port -Dsecurity.ssl.rest.enabled=true` after the command, and the token in the environment:
  `FLINK_REST_CLIENT_HEADERS="Authorization:Bearer <token>"`. Import the CA with
  `keytool -importcert -storetype PKCS12 -file ca.pem -keystore trust.p12`, and set in Flink's `config.yaml`:
  `security.ssl.rest.truststore`, `security.ssl.rest.truststore-password`, `security.ssl.rest.truststore-type: PKCS12`,
  `security.ssl.protocol: TLSv1.3` and `security.ssl.algorithms: TLS_AES_256_GCM_SHA384`.
- **Times** are Unix milliseconds, durations milliseconds; -1 means "has not happened".
- **Errors** are `application/problem+json` (RFC 9457): `status`, `title`, `detail` (what was wrong), `field` (which
  part of the request), `hint` (what to do), and Flink's list `errors`. Any request may get 400 (bad input), 401 (no
  valid token), 403 (a foreign Host or Origin, or a role that the route does not admit), 404 (no such resource), 405
  (with `Allow`) and 500.
- **503** means "later": nothing has changed, try again. **504** means that the outcome is unknown: read the resource
  before you repeat the request. Submissions, uploads and cancellations may always be repeated.
- **Unknown** query parameters and unknown fields of bodies are refused. Unknown fields of the objects inside a
  submission are ignored, so the command of a newer release can submit. Replies may gain fields: ignore unknown ones.

```console
$ curl --cacert ~/.local/state/emberkeep/tls/ca.pem \\
      -H "Authorization: Bearer $(cat ~/.local/state/emberkeep/token)" https://127.0.0.1:8081/v1/jobs/overview
```
"""


_TAIL = """

## Read next

[Clusters](clusters.md): where the API listens. [Security](security.md): roles, tokens and certificates.
"""


def render() -> str:
    """Return the text of docs/rest.md."""
    described = document(ROUTES)
    by_tag = sorted(ROUTES, key=lambda route: [r.tag for r in ROUTES].index(route.tag))
    lines = [_HEAD]
    for tag, routes in groupby(by_tag, key=lambda route: route.tag):
        lines.append(f"## {tag}\n")
        for route in routes:
            lines.extend(_section(route))
    lines.append("## Bodies\n")
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines.extend(_body(name, schema))
    return "\n".join(lines).rstrip() + _TAIL


def _section(route: Route) -> Iterator[str]:
    yield f"### {route.method} {route.full_path}\n"
    also = f" Served as `{route.path}` as well." if route.unversioned else ""
    yield f"{route.summary}.{' ' + route.doc if route.doc else ''}{also}\n"
    yield f"Least role: `{route.role}`.\n"
    described = parameters(route)
    if described:
        yield "| parameter | in | type | meaning |"
        yield "|---|---|---|---|"
        for item in described:
            yield f"| `{item['name']}` | {item['in']} | {_parameter(item['schema'])} | {item['description']} |"
        yield ""
    if route.body is not None:
        instead = "" if route.reference is None else f", or {_link(route.reference.__name__)} if it is large"
        yield f"Body: {_link(route.body.__name__)}{instead}.\n"
    elif route.raw_body:
        yield f"Body: bytes. {route.raw_body}\n"
    yield f"Response: {route.status} {HTTPStatus(route.status).phrase}, {_reply(route)}.{_problems(route)}\n"
    for header in route.reply_headers:
        yield f"- `{header.name}`: {header.doc}"
    if route.reply_headers:
        yield ""


def _parameter(schema: Json) -> str:
    """Return a parameter's type with its bounds and default.

    >>> _parameter({"type": "integer", "minimum": 0, "maximum": 9, "default": 2})
    'integer, 0 to 9, 2 if not given'
    """
    words = [_type(schema)]
    if "minimum" in schema:
        words.append(f"{schema['minimum']} to {schema['maximum']}")
    if schema.get("default") not in (None, ""):
        words.append(f"{schema['default']} if not given")
    return ", ".join(words)


def _reply(route: Route) -> str:
    if route.reply is None:
        empty = not route.media or route.method == "HEAD" or route.status == HTTPStatus.NO_CONTENT
        return "no body" if empty else f"`{route.media}`"
    schemas, _ = msgspec.json.schema_components([route.reply], ref_template="{name}")
    return _type(schemas[0])


def _problems(route: Route) -> str:
    also = f" Also possible: {_statuses(route.also)}." if route.also else ""
    errors = f" Errors: {_statuses(route.problems)}." if route.problems else ""
    return also + errors


def _statuses(statuses: Iterable[int]) -> str:
    return ", ".join(f"{status} {HTTPStatus(status).phrase}" for status in statuses)


def _body(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield " ".join(schema["description"].split()) + "\n"
    if "enum" in schema:
        yield "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".\n"
    properties = schema.get("properties", {})
    if properties:
        yield "| field | type |"
        yield "|---|---|"
        for field, described in properties.items():
            optional = "" if field in schema.get("required", ()) else ", optional"
            yield f"| `{field}` | {_type(described)}{optional} |"
        yield ""


def _type(schema: Json) -> str:
    """Describe a JSON schema in a few words.

    >>> _type({"type": "array", "items": {"type": "string"}})
    'list of string'
    """
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    return str(kind)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
