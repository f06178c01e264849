"""Task managers: list and detail."""

from __future__ import annotations

import msgspec

from emberkeep.protocol.rest import TaskManagerDetails, TaskManagers
from emberkeep.rest.cluster_shapes import task_manager_details, task_manager_summary
from emberkeep.rest.routing import Call, Route


async def task_managers(call: Call) -> msgspec.Struct:
    return TaskManagers(taskmanagers=[task_manager_summary(view) for view in await call.api.gateway.task_managers()])


async def task_manager(call: Call) -> msgspec.Struct:
    return task_manager_details(await call.api.gateway.task_manager(call.path["taskmanagerid"]))


ROUTES = (
    Route("GET", "/taskmanagers", task_managers, "All registered task managers", "Task managers", reply=TaskManagers),
    Route(
        "GET",
        "/taskmanagers/{taskmanagerid}",
        task_manager,
        "One task manager with its allocated slots",
        "Task managers",
        reply=TaskManagerDetails,
        problems=(404,),
    ),
)
