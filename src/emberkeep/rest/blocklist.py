"""The blocklist: which nodes and task managers get no new work, until when, and why."""

from __future__ import annotations

import msgspec
from aiohttp import web

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import (
    Blocked,
    BlockedNode,
    Place,
    PlaceKind,
    entry_about,
    parse_cause,
    parse_end,
)
from emberkeep.jobmanager.views import TaskManagerView
from emberkeep.protocol.rest import BlockedNodeInfo, BlockedTaskManagerInfo, BlocklistInfo, BlockRequest
from emberkeep.rest.routing import Call, Route, json_response

_DECIMALS = 19  # of the largest time


async def blocklist(call: Call) -> msgspec.Struct:
    gateway = call.api.gateway
    listed = await gateway.blocklist()
    standing = await gateway.task_managers()
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
        action=entry.action, start_timestamp=entry.start_ms, end_timestamp=entry.end_ms, cause=entry.cause
    )


def _node(entry: Blocked, task_managers: list[TaskManagerView]) -> BlockedNodeInfo:
    return BlockedNodeInfo(
        action=entry.action,
        start_timestamp=entry.start_ms,
        end_timestamp=entry.end_ms,
        cause=entry.cause,
        task_managers=[view.info.id for view in task_managers if view.info.node_id == entry.id],
    )


async def block_node(call: Call) -> web.StreamResponse:
    made, status = await _block(call, Place(PlaceKind.NODE, call.path["nodeid"]))
    return json_response(_node(made, await call.api.gateway.task_managers()), status)


async def block_task_manager(call: Call) -> web.StreamResponse:
    made, status = await _block(call, Place(PlaceKind.TASK_MANAGER, call.path["taskmanagerid"]))
    return json_response(_task_manager(made), status)


async def _block(call: Call, place: Place) -> tuple[Blocked, int]:
    body: BlockRequest = call.body
    now = call.api.now_ms()
    entry = entry_about(
        place,
        action=body.action,
        start_ms=now,
        end_ms=parse_end(_number(body.end_timestamp, "endTimestamp"), now),
        causes=(parse_cause(body.cause),),
    )
    blocking = await call.api.gateway.block(entry, merge=body.allow_merge)
    return blocking.entry, 202 if blocking.merged else 201


def _number(value: int | str | None, field: str) -> int | None:
    """A number that came as a number or as a string. Raises InvalidInput."""
    if value is None or isinstance(value, int):
        return value
    if value.isascii() and value.removeprefix("-").isdecimal() and len(value) <= _DECIMALS + 1:
        return int(value)
    raise InvalidInput(f"{field}: {value[:40]!r} is not a whole number", field=field, hint="Unix milliseconds")


async def unblock_node(call: Call) -> web.StreamResponse:
    return await _unblock(call, Place(PlaceKind.NODE, call.path["nodeid"]))


async def unblock_task_manager(call: Call) -> web.StreamResponse:
    return await _unblock(call, Place(PlaceKind.TASK_MANAGER, call.path["taskmanagerid"]))


async def _unblock(call: Call, place: Place) -> web.StreamResponse:
    await call.api.gateway.unblock(place)
    return web.Response(headers={"Cache-Control": "no-store"})


_PUT_DOC = (
    "201: a new entry. 202: merged into the entry that was there (`allowMerge`): the stronger action, the earlier "
    "start, the later end, both causes. 409: there is an entry, and `allowMerge` is false. From the answer on nothing "
    "new is decided for that place, also by later JobManagers."
)

ROUTES = (
    Route("GET", "/blocklist", blocklist, "All blocked nodes and task managers", "Blocklist", reply=BlocklistInfo),
    Route(
        "PUT",
        "/blocklist/nodes/{nodeid}",
        block_node,
        "Block a node, or change its entry",
        "Blocklist",
        status=201,
        also=(202,),
        reply=BlockedNodeInfo,
        body=BlockRequest,
        problems=(409, 503, 504),
        names_empty=True,
        doc=_PUT_DOC,
    ),
    Route(
        "PUT",
        "/blocklist/taskmanagers/{taskmanagerid}",
        block_task_manager,
        "Block one task manager, or change its entry",
        "Blocklist",
        status=201,
        also=(202,),
        reply=BlockedTaskManagerInfo,
        body=BlockRequest,
        problems=(409, 503, 504),
        names_empty=True,
        doc=_PUT_DOC,
    ),
    Route(
        "DELETE",
        "/blocklist/nodes/{nodeid}",
        unblock_node,
        "Unblock a node",
        "Blocklist",
        media="",
        problems=(404, 503, 504),
        names_empty=True,
    ),
    Route(
        "DELETE",
        "/blocklist/taskmanagers/{taskmanagerid}",
        unblock_task_manager,
        "Unblock a task manager",
        "Blocklist",
        media="",
        problems=(404, 503, 504),
        names_empty=True,
    ),
)
