"""Task managers: list, details, history, stop; the history of all slots."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.clock import MOST_MS
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.protocol.rest import Empty
from emberkeep.protocol.rest_task_managers import SlotHistory, TaskManagerDetails, TaskManagers, UsageInfo
from emberkeep.rest.cluster.shapes import slot_history, task_manager_details, task_manager_summary, usage_info
from emberkeep.rest.serving.routing import CheckedRequest, Route

MAX_DRAIN = 7 * 24 * 3600  # seconds


class StopParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a task manager's stop."""

    drain: Annotated[
        float,
        Meta(
            description="Seconds for its work to leave, from 0 to 604800. Executors and streaming drivers move "
            "elsewhere if there is room, other drivers end with their jobs."
        ),
    ] = 0.0


async def stop(call: CheckedRequest) -> msgspec.Struct:
    query: StopParameters = call.query
    if not 0 <= query.drain <= MAX_DRAIN:
        raise InvalidInput(f"query parameter drain: {query.drain:g} is not from 0 to {MAX_DRAIN}", field="drain")
    await call.api.gateway.stop_task_manager(call.path["taskmanagerid"], drain=query.drain)
    return Empty()


class ReadUsage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a task manager's history."""

    after: Annotated[
        int, Meta(ge=0, le=MOST_MS, description="Only samples that begin after this time, in Unix milliseconds.")
    ] = 0


async def usage(call: CheckedRequest) -> msgspec.Struct:
    return usage_info(await call.api.gateway.usage(call.path["taskmanagerid"], after_ms=call.query.after))


async def slots(call: CheckedRequest) -> msgspec.Struct:
    return slot_history(await call.api.gateway.usage(None, after_ms=call.query.after))


async def task_managers(call: CheckedRequest) -> msgspec.Struct:
    return TaskManagers(taskmanagers=[task_manager_summary(view) for view in await call.api.gateway.task_managers()])


async def task_manager(call: CheckedRequest) -> msgspec.Struct:
    return task_manager_details(await call.api.gateway.task_manager(call.path["taskmanagerid"]))


ROUTES = (
    Route(
        "GET",
        "/taskmanagers",
        task_managers,
        "All registered task managers",
        "Task managers",
        role=Role.VIEWER,
        reply=TaskManagers,
    ),
    Route(
        "GET",
        "/taskmanagers/{taskmanagerid}",
        task_manager,
        "One task manager with its allocated slots",
        "Task managers",
        role=Role.VIEWER,
        reply=TaskManagerDetails,
        problems=(404,),
    ),
    Route(
        "GET",
        "/taskmanagers/{taskmanagerid}/usage",
        usage,
        "How busy the task manager's machine has been",
        "Task managers",
        role=Role.VIEWER,
        reply=UsageInfo,
        query=ReadUsage,
        problems=(404,),
        doc="The JobManager that leads keeps about a day of it and stores it once a minute, for the next leader. "
        "To read on, give as `after` one less than the `time` of the newest sample: it may have changed.",
    ),
    Route(
        "GET",
        "/slots/usage",
        slots,
        "How many of the cluster's slots were taken",
        "Task managers",
        role=Role.VIEWER,
        reply=SlotHistory,
        query=ReadUsage,
        doc="Kept and read on as the history of a task manager.",
    ),
    Route(
        "POST",
        "/taskmanagers/{taskmanagerid}/stop",
        stop,
        "End a task manager permanently",
        "Task managers",
        role=Role.OPERATOR,
        status=202,
        reply=Empty,
        query=StopParameters,
        problems=(404,),
        doc="The task manager takes no new work. After the drain its remaining executors end and are replaced "
        "elsewhere, its remaining drivers get SIGTERM and their jobs restart elsewhere. Then the task manager returns "
        "its slots, deletes its local state and ends.",
    ),
)
