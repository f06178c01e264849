"""Nodes as ``emberkeep node`` shows them, and waiting until one has nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from emberkeep.cli.messages import say
from emberkeep.cli.wording import counted, until
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest import BlockedTaskManagerInfo, BlocklistInfo, TaskManagerSummary

NODE_COLUMNS = ("NODE", "TASK MANAGERS", "SLOTS", "IN USE", "DRIVERS", "BLOCKED", "CAUSE")
_POLL = 0.5  # seconds

Nodes = tuple[BlocklistInfo, list[TaskManagerSummary]]


async def read_nodes(client: RestClient) -> Nodes:
    return await client.blocklist(), await client.task_managers()


def node_rows(blocklist: BlocklistInfo, task_managers: Iterable[TaskManagerSummary]) -> list[tuple[str, ...]]:
    """One line per node, followed by one per task manager there that is blocked itself; then what is blocked and not
    registered."""
    standing: dict[str, list[TaskManagerSummary]] = {node: [] for node in blocklist.blocked_nodes}
    for task_manager in task_managers:
        standing.setdefault(task_manager.emberkeep.node_id, []).append(task_manager)
    rows = []
    alone = dict(blocklist.blocked_task_managers)
    for node, there in sorted(standing.items()):
        rows.append(_row(node, there, blocklist.blocked_nodes.get(node)))
        for task_manager in there:
            entry = alone.pop(task_manager.id, None)
            if entry is not None:
                rows.append(_row(f"  {task_manager.id}", [task_manager], entry))
    return [*rows, *(_row(f"  {name}", [], entry) for name, entry in sorted(alone.items()))]


def _row(name: str, there: Sequence[TaskManagerSummary], entry: BlockedTaskManagerInfo | None) -> tuple[str, ...]:
    return (
        name,
        str(len(there)),
        str(sum(task_manager.slots_number for task_manager in there)),
        str(_in_use(there)),
        str(_drivers(there)),
        "no" if entry is None else f"{entry.action.value} {until(entry.end_timestamp)}",
        "" if entry is None else entry.cause,
    )


def _in_use(there: Iterable[TaskManagerSummary]) -> int:
    return sum(task_manager.slots_number - task_manager.free_slots for task_manager in there)


def _drivers(there: Iterable[TaskManagerSummary]) -> int:
    places = (task_manager.emberkeep for task_manager in there)
    return sum(own.driver_places_total - own.driver_places_available for own in places)


async def wait_until_free(client: RestClient, name: str, *, task_manager: bool) -> None:
    """Return when no slot is in use there; tells how many are whenever that changes."""
    shown: int | None = None
    while True:
        there = [
            other
            for other in await client.task_managers()
            if name == (other.id if task_manager else other.emberkeep.node_id)
        ]
        left = _in_use(there)
        if left == 0:
            drivers = _drivers(there)
            stay = f"; {counted(drivers, 'driver')} still there, which will not be moved" if drivers else ""
            say(f"no slot of {name} is in use{stay}")
            return
        if left != shown:
            shown = left
            say(f"{counted(left, 'slot')} of {name} in use")
        await asyncio.sleep(_POLL)
