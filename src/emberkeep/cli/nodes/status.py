"""The table of nodes that ``emberkeep node`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from emberkeep.cli.wording import counted, until
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_blocklist import BlockedTaskManagerInfo, BlocklistInfo
from emberkeep.protocol.rest_task_managers import TaskManagerSummary

_COLUMNS = ("NODE", "TASK MANAGERS", "SLOTS", "IN USE", "DRIVERS", "BLOCKED", "CAUSE", "LEAVING")
# What a list of nodes leaves out first on a narrow terminal.
LESS_OF_NODES: Final = ("TASK MANAGERS", "DRIVERS", "SLOTS")

Nodes = tuple[BlocklistInfo, list[TaskManagerSummary]]


async def read_nodes(client: RestClient) -> Nodes:
    return await client.blocklist(), await client.task_managers()


def node_table(
    blocklist: BlocklistInfo, task_managers: Sequence[TaskManagerSummary], *, is_wide: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of all nodes. ``is_wide``: include the ids of each node's task managers."""
    rows = node_rows(blocklist, task_managers)
    if not is_wide:
        return _COLUMNS, rows
    ids: dict[str, list[str]] = {}
    for each in task_managers:
        ids.setdefault(each.emberkeep.node_id, []).append(each.id)
    return (*_COLUMNS, "IDS"), [(*row, ", ".join(sorted(ids.get(row[0], [])))) for row in rows]


def node_rows(blocklist: BlocklistInfo, task_managers: Iterable[TaskManagerSummary]) -> list[tuple[str, ...]]:
    """Return one row per registered or blocked node, then one per blocked task manager that is not registered.

    A node's row is followed by the rows of its task managers that are blocked themselves.
    """
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
        str(slots_in_use(there)),
        str(drivers_there(there)),
        ("no" if entry is None else _blocked_text(entry)) + ("; disk full" if _has_full_disk(there) else ""),
        "" if entry is None else entry.cause,
        evacuation_text(there),
    )


def _has_full_disk(there: Iterable[TaskManagerSummary]) -> bool:
    return any(task_manager.emberkeep.disk_full for task_manager in there)


def _blocked_text(entry: BlockedTaskManagerInfo) -> str:
    """Return an entry as "MARK_BLOCKED_AND_EVACUATE_TASKS until it is unblocked, drivers wait"."""
    drivers = f", drivers {entry.drivers.value}" if entry.drivers is not None else ""
    return f"{entry.action.value} {until(entry.end_timestamp)}{drivers}"


def slots_in_use(there: Iterable[TaskManagerSummary]) -> int:
    return sum(task_manager.slots_number - task_manager.free_slots for task_manager in there)


def drivers_there(there: Iterable[TaskManagerSummary]) -> int:
    places = (task_manager.emberkeep for task_manager in there)
    return sum(own.driver_places_total - own.driver_places_available for own in places)


def evacuation_text(there: Iterable[TaskManagerSummary]) -> str:
    """Return the progress of the evacuation of these task managers as text; "" if nothing leaves."""
    found = [
        task_manager.emberkeep.evacuation for task_manager in there if task_manager.emberkeep.evacuation is not None
    ]
    texts = []
    executors = sum(evacuation.executors for evacuation in found)
    if executors:
        shuffle = counted(sum(evacuation.shuffle_blocks for evacuation in found), "shuffle block")
        cached = counted(sum(evacuation.cached_blocks for evacuation in found), "cached block")
        bound = "at least " if any(evacuation.at_least for evacuation in found) else ""
        texts.append(f"{counted(executors, 'executor')} leaving with {bound}{shuffle} and {cached}")
    alone = sum(evacuation.executors_waiting for evacuation in found)
    if alone:
        texts.append(f"{alone} of them without another executor to hand over to")
    moving = sum(evacuation.drivers_moving for evacuation in found)
    if moving:
        texts.append(f"{counted(moving, 'driver')} moving")
    staying = sum(evacuation.drivers_staying for evacuation in found)
    if staying:
        texts.append(f"{counted(staying, 'driver')} staying until the job ends")
    return "; ".join(texts)
