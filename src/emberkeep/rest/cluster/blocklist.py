"""The blocklist: which nodes and task managers get no new work, until when, and why."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import (
    PLATFORM_CAUSE,
    BlockAction,
    Blocked,
    BlockedNode,
    EvacuatedDrivers,
    Place,
    PlaceKind,
    entry_about,
    parse_cause,
    parse_end,
)
from emberkeep.protocol.rest_blocklist import BlockedNodeInfo, BlockedTaskManagerInfo, BlocklistInfo, BlockRequest
from emberkeep.rest.serving.routing import CheckedRequest, Route, json_response

_DECIMALS = 19  # digits of the largest time


async def blocklist(call: CheckedRequest) -> msgspec.Struct:
    gateway = call.api.gateway
    listed = await gateway.blocklist()
    standing = await gateway.task_managers_by_node()
    return BlocklistInfo(
        blocked_task_managers={
            TaskManagerId(entry.id): _task_manager(entry)
            for entry in listed.entries
            if not isinstance(entry, BlockedNode)
        },
        blocked_nodes={entry.id: _node(entry, standing) for entry in listed.entries if isinstance(entry, BlockedNode)},
    )


def _task_manager(entry: Blocked) -> BlockedTaskManagerInfo:
    return BlockedTaskManagerInfo(
        action=entry.action,
        start_timestamp=entry.start_ms,
        end_timestamp=entry.end_ms,
        cause=entry.cause,
        drivers=_drivers_said(entry),
    )


def _node(entry: Blocked, standing: Mapping[str, list[TaskManagerId]]) -> BlockedNodeInfo:
    return BlockedNodeInfo(
        action=entry.action,
        start_timestamp=entry.start_ms,
        end_timestamp=entry.end_ms,
        cause=entry.cause,
        drivers=_drivers_said(entry),
        task_managers=standing.get(entry.id, []),
    )


def _drivers_said(entry: Blocked) -> EvacuatedDrivers | None:
    """Return WAIT if an evacuation lets drivers stay, else None, which omits the field.

    So all other entries have exactly FLIP-224's fields.
    """
    stay = entry.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS and entry.drivers is EvacuatedDrivers.WAIT
    return entry.drivers if stay else None


def _place(call: CheckedRequest) -> Place:
    """Return the node or task manager named in the path."""
    if "nodeid" in call.path:
        return Place(PlaceKind.NODE, call.path["nodeid"])
    return Place(PlaceKind.TASK_MANAGER, call.path["taskmanagerid"])


async def block(call: CheckedRequest) -> web.StreamResponse:
    body: BlockRequest = call.body
    now = call.api.now_ms()
    entry = entry_about(
        _place(call),
        action=body.action,
        start_ms=now,
        end_ms=parse_end(_number(body.end_timestamp, "endTimestamp"), now),
        causes=(_cause(body.cause),),
        drivers=_drivers(body),
    )
    merge = body.allow_merge in (True, "true")
    blocking = await call.api.gateway.block(entry, merge=merge, keep_drivers=body.drivers is None)
    made, status = blocking.entry, 202 if blocking.merged else 201
    if isinstance(made, BlockedNode):
        return json_response(_node(made, await call.api.gateway.task_managers_by_node()), status)
    return json_response(_task_manager(made), status)


def _cause(text: str) -> str:
    """Return the checked cause. Raises InvalidInput also for one that marks an entry as the resource manager's own."""
    cause = parse_cause(text)
    if cause.startswith(PLATFORM_CAUSE):
        raise InvalidInput(
            f"the cause begins with {PLATFORM_CAUSE.rstrip()!r}, as those of nodes that the platform takes out of "
            "service: such entries are removed when the platform has the node back",
            field="cause",
            hint="say it in other words",
        )
    return cause


def _drivers(body: BlockRequest) -> EvacuatedDrivers:
    """Return what happens to drivers without a streaming query: RESTART by default in an evacuation, else WAIT.

    Raises InvalidInput if the request sets ``drivers`` but does not evacuate.
    """
    if body.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS:
        return body.drivers or EvacuatedDrivers.RESTART
    if body.drivers is not None:
        raise InvalidInput(
            f"drivers is given with {body.action.value}", field="drivers", hint="only an evacuation moves drivers"
        )
    return EvacuatedDrivers.WAIT


def _number(value: int | str | None, field: str) -> int | None:
    """Return a whole number that was sent as a number or as a string. Raises InvalidInput."""
    if value is None or isinstance(value, int):
        return value
    if value.isascii() and value.removeprefix("-").isdecimal() and len(value) <= _DECIMALS + 1:
        return int(value)
    raise InvalidInput(f"{field}: {value[:40]!r} is not a whole number", field=field, hint="Unix milliseconds")


async def unblock(call: CheckedRequest) -> web.StreamResponse:
    await call.api.gateway.unblock(_place(call))
    return web.Response(headers={"Cache-Control": "no-store"})


_PUT_DOC = (
    "201: a new entry. 202: merged into the existing entry (`allowMerge`): the stronger action, the earlier start, the "
    "later end, both causes. 409: an entry exists, and `allowMerge` is false. From the reply on, no JobManager places "
    "new work there, including later leaders."
)


def _routes(path: str, kind: str, reply: type[msgspec.Struct]) -> tuple[Route, Route]:
    """Return the routes that add and remove entries of one kind."""
    return (
        Route(
            "PUT",
            path,
            block,
            f"Block a {kind.replace('_', ' ')}, or change its entry",
            "Blocklist",
            role=Role.OPERATOR,
            status=201,
            also=(202,),
            reply=reply,
            body=BlockRequest,
            problems=(409, 503, 504),
            names_empty=True,
            operation=f"block_{kind}",
            unversioned=True,
            doc=_PUT_DOC,
        ),
        Route(
            "DELETE",
            path,
            unblock,
            f"Unblock a {kind.replace('_', ' ')}",
            "Blocklist",
            role=Role.OPERATOR,
            media="",
            problems=(404, 503, 504),
            names_empty=True,
            operation=f"unblock_{kind}",
            unversioned=True,
        ),
    )


ROUTES = (
    Route(
        "GET",
        "/blocklist",
        blocklist,
        "All blocked nodes and task managers",
        "Blocklist",
        role=Role.VIEWER,
        reply=BlocklistInfo,
        unversioned=True,
    ),
    *_routes("/blocklist/nodes/{nodeid}", "node", BlockedNodeInfo),
    *_routes("/blocklist/taskmanagers/{taskmanagerid}", "task_manager", BlockedTaskManagerInfo),
)
