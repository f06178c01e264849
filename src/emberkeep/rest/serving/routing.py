"""The row type of the route table, and the aiohttp route of a row: parse path, query and body, call, encode.

The OpenAPI document and the reference page are generated from the same rows, so the three cannot differ.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import parse_job_id, parse_task_manager_id, parse_trigger_id
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.blobs.model import parse_blob_key
from emberkeep.blocklist.model import parse_node_id
from emberkeep.identities.job_access import visible
from emberkeep.identities.model import NAME_PATTERN, parse_token_name
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.blob_holders import HOLDER_PATTERN, parse_holder
from emberkeep.rest.serving.invalid_body import invalid_body
from emberkeep.rest.serving.log_ids import JOB_LOG_ID_PATTERN, LOG_ID_PATTERN, parse_job_log_id, parse_log_id
from emberkeep.rest.serving.request_bodies import read_bounded

QueryT = TypeVar("QueryT", bound=msgspec.Struct)

MAX_JSON_BODY = 16 * 1024**2  # bytes; arguments and Spark configuration, never file content


@dataclass(frozen=True)
class PathParameter:
    """A variable part of a path. ``parse`` raises InvalidInput."""

    pattern: str
    doc: str
    parse: Callable[[str], Any]


@dataclass(frozen=True)
class Header:
    name: str
    doc: str


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was checked against its route.

    ``path``: the parsed path parameters. ``query`` and ``body``: parsed into the types that the route names.
    """

    api: Api
    request: web.Request
    path: Mapping[str, Any]
    query: Any
    body: Any

    @property
    def identity(self) -> Identity:
        """The caller, which the access checks have recorded."""
        return self.request[REQUEST_IDENTITY]

    async def jobs(self) -> list[JobView]:
        """Return the jobs that the caller sees, newest submission first."""
        return visible(self.identity, await self.api.gateway.jobs())

    async def briefs(self) -> list[JobBrief]:
        """Return the same jobs in brief."""
        return visible(self.identity, await self.api.gateway.briefs())


Handler = Callable[[CheckedRequest], Awaitable[msgspec.Struct | list[Any] | web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One row of the route table.

    - ``role``: the least role that may call it.
    - ``reply``: type of the JSON reply; None if ``media`` names another kind of body.
    - ``also``: statuses of further replies that are not errors.
    - ``problems``: statuses of errors that this route adds to those that every route may return.
    - ``reference``: type of the body that may replace a large ``body``: its field ``blob`` names the BLOB with it.
    - ``operation``: name of the row if its handler serves several rows; "" for the handler's name.
    - ``names_empty``: if True, an empty id in the path is bad input (400), not an unknown path (404).
    - ``shared``: if True, identities with a namespace may call it although its path names no job: the handler shows
      them only what they may see. Routes whose paths name a job are open to identities that see the job.
    - ``drivers``: if True, drivers may call it for their own jobs; ``role`` does not apply to them.
    - ``unversioned``: if True, the route is also served without ``/v1``.
    """

    method: str
    path: str  # below /v1
    handler: Handler
    summary: str
    tag: str
    role: Role = field(kw_only=True)
    status: int = 200
    also: tuple[int, ...] = ()
    reply: Any = None
    media: str = "application/json"  # "": the body is empty
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    reference: type[msgspec.Struct] | None = None
    raw_body: str = ""  # describes the bytes of a body that is not JSON
    headers: tuple[Header, ...] = ()
    reply_headers: tuple[Header, ...] = ()
    problems: tuple[int, ...] = ()
    names_empty: bool = False
    operation: str = ""
    unversioned: bool = False
    shared: bool = False
    drivers: bool = False
    doc: str = ""

    @property
    def full_path(self) -> str:
        return API_PREFIX + self.path

    @property
    def path_parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


PATH_PARAMETERS: dict[str, PathParameter] = {
    "jobid": PathParameter("^[0-9a-f]{32}$", "Job id: 32 hex digits.", parse_job_id),
    "taskmanagerid": PathParameter(
        "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", "Id of the task manager.", parse_task_manager_id
    ),
    "nodeid": PathParameter("^.{1,253}$", "Id of the node.", parse_node_id),
    "triggerid": PathParameter("^[0-9a-f]{32}$", "Trigger id of the request.", parse_trigger_id),
    "key": PathParameter(
        "^[pt]-[0-9a-f]{64}$",
        "BLOB key: `p-` (permanent) or `t-` (transient) and the content's SHA-256.",
        parse_blob_key,
    ),
    "holder": PathParameter(f"^{HOLDER_PATTERN}$", "The holder whose reference ends.", parse_holder),
    "tokenid": PathParameter(f"^{NAME_PATTERN}$", "Id of a token, or the name of its holder.", parse_token_name),
    "name": PathParameter(f"^{LOG_ID_PATTERN}$", "`name` of a log in the list.", parse_log_id),
    "logid": PathParameter(f"^{JOB_LOG_ID_PATTERN}$", "`id` of a log in the job's list.", parse_job_log_id),
}


def bind(route: Route, api: Api) -> list[web.RouteDef]:
    """Return the aiohttp routes that serve a row."""

    async def serve(request: web.Request) -> web.StreamResponse:
        path = {name: PATH_PARAMETERS[name].parse(request.match_info[name]) for name in route.path_parameters}
        query = _route_query(request, route)
        body = None if route.body is None else await _read_json(request, route.body, route.reference)
        answer = await route.handler(CheckedRequest(api, request, path, query, body))
        if isinstance(answer, web.StreamResponse):
            return answer
        return json_response(answer, route.status)

    # aiohttp would also serve HEAD for every GET; serve only what the table lists.
    options = {"allow_head": False} if route.method == "GET" else {}
    paths = [route.full_path, route.path] if route.unversioned else [route.full_path]
    return [
        web.route(route.method, path.replace("}", ":[^{}/]*}") if route.names_empty else path, serve, **options)
        for path in paths
    ]


def json_response(body: msgspec.Struct | list[Any], status: int = 200) -> web.Response:
    """Return ``body`` as a JSON response that is never cached, since it shows the state of this moment."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )


def _route_query(request: web.Request, route: Route) -> msgspec.Struct | None:
    if route.query is not None:
        return parse_query(request, route.query)
    for name in request.query:
        raise _unknown_parameter(name, "this resource has no query parameters")
    return None


def parse_query(request: web.Request, kind: type[QueryT]) -> QueryT:
    """Return the query string as a struct. Raises InvalidInput for an unknown, repeated or invalid parameter."""
    _check_text(request)
    known = _parameter_names(kind)
    given: dict[str, str | list[str]] = {}
    for name in request.query:
        if name not in known:
            raise _unknown_parameter(name, f"possible: {', '.join(known)}")
        values = request.query.getall(name)
        if any(value.endswith("\n") for value in values):  # the end of a pattern would match before it
            raise InvalidInput(f"query parameter {name} ends with a line break", field=name)
        if len(values) > 1 and not known[name]:
            raise InvalidInput(f"query parameter {name} is given twice", field=name)
        given[name] = values if known[name] else values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        refusal = invalid_body(error)
        raise InvalidInput(f"query parameter {refusal.field}: {refusal.message}", field=refusal.field) from None


def _check_text(request: web.Request) -> None:
    """Raise InvalidInput for text that is not UTF-8. It is replaced in the parsed query, and would match nothing."""
    for given in request.rel_url.raw_query_string.split("&"):
        try:
            unquote_to_bytes(given).decode("utf-8")
        except UnicodeError:
            name = given.partition("=")[0].encode("ascii", "replace").decode("ascii")[:64]
            raise InvalidInput(f"query parameter {name} is not UTF-8", field=name) from None


@functools.cache
def _parameter_names(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Return the names of a query's parameters; the value is True if the parameter may be repeated."""
    types = get_type_hints(kind)
    return {item.encode_name: get_origin(types[item.name]) is list for item in msgspec.structs.fields(kind)}


def _unknown_parameter(name: str, hint: str) -> InvalidInput:
    shown = name[:64]
    return InvalidInput(f"{shown!r} is not a query parameter of this resource", field=shown, hint=hint)


async def _read_json(
    request: web.Request, kind: type[msgspec.Struct], reference: type[msgspec.Struct] | None
) -> msgspec.Struct:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text=f"the body is {request.content_type}, application/json is expected")
    data = await read_bounded(request, MAX_JSON_BODY)
    try:
        if reference is not None and "blob" in from_json(data, dict[str, msgspec.Raw]):
            return from_json(data, reference)
        return from_json(data, kind)
    except msgspec.DecodeError as error:
        raise invalid_body(error) from None
